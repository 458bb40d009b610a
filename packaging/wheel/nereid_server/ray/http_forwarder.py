"""Passes requests of HTTP on to the server: an application of ASGI, as Ray Serve calls it."""

from __future__ import annotations

import json
from typing import Any, Awaitable, Callable, Iterable, Mapping, MutableMapping
from urllib.parse import quote

from ..process import ServerError
from .connections import Connections, lost

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

# What belongs to one connection, and is not passed on.
_HOP_BY_HOP = {b"connection", b"expect", b"host", b"keep-alive", b"te", b"transfer-encoding", b"upgrade"}


class HttpForwarder:
    """`connections` gives those to the server, or ends with ServerError."""

    def __init__(self, connections: Callable[[], Awaitable[Connections]]):
        self._connections = connections

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
        elif scope["type"] == "http":
            await self._forward(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1003})

    async def _forward(self, scope: Message, receive: Receive, send: Send) -> None:
        body = await _body(receive)
        if body is None:
            return
        begun = False
        try:
            http = (await self._connections()).http
            async with http.exchange(_method(scope), _target(scope), _end_to_end(scope["headers"]), body) as answer:
                begun = True
                head = _end_to_end(answer.headers)
                await send({"type": "http.response.start", "status": answer.status, "headers": head})
                is_last = False
                while not is_last:
                    part, is_last = await answer.part()
                    await send({"type": "http.response.body", "body": part, "more_body": not is_last})
        except (OSError, ServerError) as error:
            if begun:
                # The client must not take the part that it has for all.
                raise
            text = str(error) if isinstance(error, ServerError) else lost(error)
            head = [(b"content-type", b"application/json")]
            await send({"type": "http.response.start", "status": 503, "headers": head})
            await send({"type": "http.response.body", "body": json.dumps({"error": text}).encode()})


async def _body(receive: Receive) -> bytes | None:
    """The body of a request, or None if the client has gone."""
    parts = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


def _method(scope: Mapping[str, Any]) -> bytes:
    return bytes(scope["method"], "latin-1")


def _end_to_end(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Headers that are passed on. Their names are lower in ASGI."""
    return [header for header in headers if header[0] not in _HOP_BY_HOP]


def _target(scope: Mapping[str, Any]) -> bytes:
    """What the client has asked for, without the prefix of the application."""
    path: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    query: bytes = scope.get("query_string", b"")
    prefix = scope.get("root_path", "").rstrip("/").encode()
    return path.removeprefix(prefix) + (b"?" + query if query else b"")
