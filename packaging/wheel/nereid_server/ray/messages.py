"""The gRPC service of a server for Ray Serve, whose messages nobody parses: they stay bytes."""

from __future__ import annotations

from typing import Any

import grpc

SERVICE = "inference.GRPCInferenceService"
STREAM = "ModelStreamInfer"
UNARY = (
    "ServerLive",
    "ServerReady",
    "ModelReady",
    "ServerMetadata",
    "ModelMetadata",
    "ModelInfer",
    "ModelConfig",
    "ModelStatistics",
    "RepositoryIndex",
    "RepositoryModelLoad",
    "RepositoryModelUnload",
    "SystemSharedMemoryStatus",
    "SystemSharedMemoryRegister",
    "SystemSharedMemoryUnregister",
    "CudaSharedMemoryStatus",
    "CudaSharedMemoryRegister",
    "CudaSharedMemoryUnregister",
    "TraceSetting",
    "LogSettings",
)


class RawMessage:
    """A message as Ray Serve wants it: an object that has its bytes."""

    def __init__(self, content: bytes):
        self._content = content

    def SerializeToString(self) -> bytes:
        return self._content


def add_servicer(servicer: Any, server: Any) -> None:
    """Registers the service at a server of gRPC, without a type for its messages.

    Name it in `grpc_servicer_functions`. Ray's proxies pickle each message, and bytes are what always can be.
    """
    handlers = {name: grpc.unary_unary_rpc_method_handler(getattr(servicer, name)) for name in UNARY}
    handlers[STREAM] = grpc.stream_stream_rpc_method_handler(getattr(servicer, STREAM))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
