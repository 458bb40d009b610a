"""The connections of a replica to one run of its server."""

from __future__ import annotations

import grpc
import grpc.aio

from .http_connections import HttpConnections
from .messages import SERVICE, STREAM, UNARY
from .supervisor import Sockets

# What gRPC itself says, with the code INTERNAL, of a call that begins while its channel is being closed.
_NOT_SENT = "Internal error from Core"
_NO_LIMIT = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


class Connections:
    """Connections of HTTP, and the calls of gRPC, whose messages are bytes."""

    def __init__(self, sockets: Sockets):
        self.http = HttpConnections(sockets.http)
        self._channel = grpc.aio.insecure_channel(f"unix:{sockets.grpc}", options=_NO_LIMIT)
        self.unary = {name: self._channel.unary_unary(f"/{SERVICE}/{name}") for name in UNARY}
        self.stream = self._channel.stream_stream(f"/{SERVICE}/{STREAM}")

    async def close(self) -> None:
        self.http.close()
        # Calls to a server that has ended learn that from their connection, within the second.
        await self._channel.close(1.0)


def refusal(error: grpc.aio.AioRpcError) -> tuple[grpc.StatusCode, str]:
    """The code and the text of a call that has failed: those of the server, or why there is no answer."""
    if error.details() == _NOT_SENT:
        return grpc.StatusCode.UNAVAILABLE, lost(error)
    return error.code(), error.details() or ""


def lost(error: Exception) -> str:
    """What to tell when a request has no answer."""
    return f"nereid has ended while it had the request: {error!r}"
