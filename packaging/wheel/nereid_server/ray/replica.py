"""A replica of Ray Serve: it owns a server, and passes on what it gets, as bytes."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from typing import Any, AsyncIterator, Awaitable, Callable, Mapping, Sequence

import grpc
import grpc.aio
import numpy as np
from ray.serve.grpc_util import RayServegRPCContext, gRPCInputStream

from .. import BINARY
from ..process import ServerError
from ..server import answer, infer_path
from ..tensors import arrays, decode, encode
from .connections import Connections, lost, refusal
from .http_forwarder import HttpForwarder
from .messages import UNARY, RawMessage
from .supervisor import Sockets, Supervisor

# How long the server may take to say that it lives, in seconds.
_LONGEST_CHECK_S = 10.0
# Metadata of one call of gRPC, which is not passed on, begins with these words.
_OF_ONE_CALL = (":", "content-type", "grpc-", "te", "user-agent")


class Replica:
    """What Ray Serve makes of a deployment: see `nereid_server.ray.deployment`.

    `infer` and `infer_raw` are for handles. The methods with names of gRPC are for Ray's proxies, and there is one for each of
    the service. A server that has ended is started again here, so that Ray need not replace the replica. Requests that come
    meanwhile wait for `restart_wait_s`.
    """

    async def __init__(
        self, model_repository: str, options: Sequence[str], program: str | None, restart_wait_s: float
    ) -> None:
        self._restart_wait_s = restart_wait_s
        self._loop = asyncio.get_running_loop()
        # The connections, as soon as the server is ready.
        self._ready: asyncio.Future[Connections] = self._loop.create_future()
        self._reason = ""
        # Whether the server has answered the last check.
        self._answers = True
        self._closing: set[asyncio.Task[None]] = set()
        first_end: asyncio.Future[str] = self._loop.create_future()
        self._first_end = first_end
        # Its metrics are one replica's only, and would need a port.
        line = ["--allow-metrics=false", f"--model-repository={model_repository}", *options]
        self._supervisor = Supervisor(
            program or str(BINARY),
            line,
            lambda sockets: self._tell(self._has_started, sockets),
            lambda reason: self._tell(self._has_ended, reason),
        )
        await asyncio.wait([self._ready, first_end], return_when=asyncio.FIRST_COMPLETED)
        if not self._ready.done():
            await asyncio.to_thread(self._supervisor.stop)
            raise ServerError(first_end.result())

    async def __del__(self) -> None:
        # Ray calls it when the replica has no request any more.
        await asyncio.to_thread(self._supervisor.stop, signal.SIGTERM if self._answers else signal.SIGKILL)
        if self._ready.done():
            await self._ready.result().close()

    async def check_health(self) -> None:
        """Fails if starting the server again does not help, or if it runs and does not answer."""
        fault = self._supervisor.fault(time.monotonic())
        if fault is not None:
            raise ServerError(fault)
        try:
            await asyncio.wait_for(self._get("health/live"), _LONGEST_CHECK_S)
            self._answers = True
        except asyncio.TimeoutError:
            self._answers = False
            raise ServerError(f"nereid runs and has not answered for {_LONGEST_CHECK_S:g} s") from None

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """The load of the server, for the policy."""
        content = await self._get("load")
        load = json.loads(content) if content else {}
        return {name: load[name] for name in ("queued_work_seconds", "instance_busy_ratio") if name in load}

    async def _get(self, path: str) -> bytes:
        """The answer of the server, or nothing while there is none."""
        if not self._ready.done():
            return b""
        try:
            async with self._ready.result().http.exchange(b"GET", f"/v2/{path}".encode(), (), b"") as response:
                return await response.read()
        except OSError:
            return b""

    # From the thread of the supervisor to the loop.

    def _tell(self, function: Callable[..., None], argument: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(function, argument)
        except RuntimeError:
            # The loop is closed: the replica ends.
            pass

    def _has_started(self, sockets: Sockets) -> None:
        self._ready.set_result(Connections(sockets))

    def _has_ended(self, reason: str) -> None:
        self._reason = reason
        if not self._first_end.done():
            self._first_end.set_result(reason)
        if self._ready.done():
            closing = self._loop.create_task(self._ready.result().close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
            self._ready = self._loop.create_future()

    async def _connections(self) -> Connections:
        """Those to the server. Waits while it starts again.

        Raises ServerError with the status 503 if that takes too long.
        """
        if not self._ready.done():
            await asyncio.wait([self._ready], timeout=self._restart_wait_s)
        if not self._ready.done():
            waited = f"nereid has ended, and has not been ready again within {self._restart_wait_s:g} s"
            raise ServerError(f"{waited}; {self._reason}", 503)
        return self._ready.result()

    # For handles.

    async def infer_raw(self, request: bytes) -> bytes:
        """The answer to an `inference.ModelInferRequest`, an `inference.ModelInferResponse`; both are serialized."""
        connections = await self._connections()
        try:
            return await connections.unary["ModelInfer"](request)
        except grpc.aio.AioRpcError as error:
            code, details = refusal(error)
            raise ServerError(f"{code.name}: {details}") from None

    async def infer(
        self, model: str, inputs: Mapping[str, Any], *, version: int | None = None, **parameters: Any
    ) -> dict[str, np.ndarray]:
        """The outputs of a model: as `nereid_server.Server.infer`, whose inputs and parameters it takes."""
        headers, body = encode(arrays(inputs), parameters)
        target = f"/v2/{infer_path(model, version)}".encode()
        named = [(name.encode(), value.encode()) for name, value in headers.items()]
        connections = await self._connections()
        try:
            async with connections.http.exchange(b"POST", target, named, body) as response:
                told = {name.decode("latin-1").title(): value.decode("latin-1") for name, value in response.headers}
                return decode(*answer(response.status, told, await response.read()))
        except OSError as error:
            raise ServerError(lost(error), 503) from None

    # HTTP.

    def __serve_build_asgi_app__(self) -> HttpForwarder:
        return HttpForwarder(self._connections)

    # gRPC. The methods of single answers are made below.

    async def _unary(self, name: str, request: bytes, context: RayServegRPCContext) -> RawMessage:
        with _Refusals(context):
            call = (await self._connections()).unary[name](request, metadata=_metadata(context))
            content = await call
        context.set_trailing_metadata(list(await call.trailing_metadata()))
        return RawMessage(content)

    async def ModelStreamInfer(
        self, requests: gRPCInputStream[bytes], grpc_context: RayServegRPCContext
    ) -> AsyncIterator[RawMessage]:
        with _Refusals(grpc_context):
            call = (await self._connections()).stream(requests, metadata=_metadata(grpc_context))
            async for content in call:
                yield RawMessage(content)


def _method(name: str) -> Callable[..., Awaitable[RawMessage]]:
    async def method(self: Replica, request: bytes, grpc_context: RayServegRPCContext) -> RawMessage:
        return await self._unary(name, request, grpc_context)

    method.__name__ = name
    return method


for _name in UNARY:
    setattr(Replica, _name, _method(_name))


class _Refusals:
    """Gives errors of the server to the client of gRPC, with their code and text."""

    def __init__(self, context: RayServegRPCContext):
        self._context = context

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, grpc.aio.AioRpcError):
            code, details = refusal(error)
            self._context.set_code(code)
            self._context.set_details(details)
            raise ServerError(details) from None
        if isinstance(error, ServerError):
            self._context.set_code(grpc.StatusCode.UNAVAILABLE)
            self._context.set_details(str(error))


def _metadata(context: RayServegRPCContext) -> list[tuple[str, str | bytes]]:
    return [(key, value) for key, value in context.invocation_metadata() if not key.startswith(_OF_ONE_CALL)]
