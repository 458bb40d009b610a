"""Passes requests of HTTP on to the server: an application of ASGI, as Ray Serve calls it."""

from __future__ import annotations

import json
from typing import Any, Awaitable, Callable, Iterable, Mapping, MutableMapping
from urllib.parse import quote

import aiohttp
from multidict import CIMultiDict
from yarl import URL

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
            session = (await self._connections()).http
            headers = CIMultiDict((_text(key), _text(value)) for key, value in _end_to_end(scope["headers"]))
            async with session.request(scope["method"], _url(scope), data=body or None, headers=headers) as response:
                begun = True
                head = _end_to_end(response.raw_headers)
                await send({"type": "http.response.start", "status": response.status, "headers": head})
                async for part in response.content.iter_any():
                    await send({"type": "http.response.body", "body": part, "more_body": True})
                await send({"type": "http.response.body", "body": b""})
        except (aiohttp.ClientError, ServerError) as error:
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


def _text(content: bytes) -> str:
    return content.decode("latin-1")


def _end_to_end(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    lower = ((key.lower(), value) for key, value in headers)
    return [(key, value) for key, value in lower if key not in _HOP_BY_HOP]


def _url(scope: Mapping[str, Any]) -> URL:
    """What the client has asked for, without the prefix of the application."""
    path = _text(scope.get("raw_path") or quote(scope["path"]).encode())
    query = _text(scope.get("query_string", b""))
    prefix = scope.get("root_path", "").rstrip("/")
    return URL(f"http://nereid{path.removeprefix(prefix)}{'?' if query else ''}{query}", encoded=True)
