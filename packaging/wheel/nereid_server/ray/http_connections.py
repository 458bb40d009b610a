"""Connections of HTTP/1.1 to the server, over a unix socket.

A request costs a third of what general clients need for it: theirs would be a fifth of the work of a replica.
"""

from __future__ import annotations

import asyncio
import collections
from types import TracebackType
from typing import Deque, Iterable, cast

import httptools

# The bytes of an answer that wait to be taken. The server is not read from while there are more.
_MOST_WAITING = 1 << 20

Headers = list[tuple[bytes, bytes]]


class HttpConnections:
    """All connections to one run of the server: as many as there are requests at a time."""

    def __init__(self, path: str):
        self._path = path
        self._idle: list[_Connection] = []
        self._all: set[_Connection] = set()

    def exchange(self, method: bytes, target: bytes, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> _Exchange:
        """`async with` sends the request, and gives the answer as soon as its headers are there: see `Answer`.

        It ends with OSError if the server cannot be reached or closes the connection before the end of the answer.
        """
        lines = [b"%s %s HTTP/1.1\r\nhost: nereid\r\n" % (method, target)]
        lines += [b"%s: %s\r\n" % header for header in headers if header[0] != b"content-length"]
        lines.append(b"content-length: %d\r\n\r\n" % len(body))
        return _Exchange(self, b"".join(lines), body, has_body=method != b"HEAD")

    async def take(self) -> _Connection:
        if self._idle:
            return self._idle.pop()
        _, connection = await asyncio.get_running_loop().create_unix_connection(lambda: _Connection(self), self._path)
        self._all.add(connection)
        return connection

    def give_back(self, connection: _Connection) -> None:
        self._idle.append(connection)

    def forget(self, connection: _Connection) -> None:
        self._all.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    def close(self) -> None:
        for connection in list(self._all):
            connection.abort()


class Answer:
    """The answer to a request: its status, its headers with lower names, and its body in parts."""

    def __init__(self, connection: _Connection):
        self._connection = connection
        self.status, self.headers = connection.status, connection.headers

    async def part(self) -> tuple[bytes, bool]:
        """What has come of the body since the last part, and whether it was the last one."""
        return await self._connection.part()

    async def read(self) -> bytes:
        """The whole body."""
        parts, is_last = [], False
        while not is_last:
            part, is_last = await self.part()
            parts.append(part)
        return b"".join(parts)


class _Exchange:
    def __init__(self, connections: HttpConnections, head: bytes, body: bytes, has_body: bool):
        self._connections = connections
        self._request = head, body
        self._has_body = has_body

    async def __aenter__(self) -> Answer:
        self._connection = await self._connections.take()
        try:
            await self._connection.send(*self._request, self._has_body)
        except BaseException:
            self._connection.abort()
            raise
        return Answer(self._connection)

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._connection.is_free():
            self._connections.give_back(self._connection)
        else:
            self._connection.abort()


class _Connection(asyncio.Protocol):
    """A connection, and the answer that it receives: the parser calls the methods whose names begin with `on`."""

    def __init__(self, owner: HttpConnections):
        self._owner = owner
        self._parser = httptools.HttpResponseParser(self)
        self._waiting: asyncio.Future[None] | None = None
        self._error: OSError | None = None
        self._begin()

    def _begin(self) -> None:
        self.status = 0
        self.headers: Headers = []
        self._parts: Deque[bytes] = collections.deque()
        self._waits = 0
        self._complete = False
        self._keeps = False

    async def send(self, head: bytes, body: bytes, has_body: bool) -> None:
        """Sends a request, and waits for the headers of its answer."""
        self._begin()
        self._transport.writelines((head, body)) if len(body) > _MOST_WAITING else self._transport.write(head + body)
        while not self.status:
            await self._wait()
        if not has_body:
            # The connection is not used again: the parser waits for a body.
            self._complete, self._keeps = True, False

    async def part(self) -> tuple[bytes, bool]:
        while not self._parts and not self._complete:
            await self._wait()
        part = b"".join(self._parts)
        self._parts.clear()
        if self._waits > _MOST_WAITING:
            self._transport.resume_reading()
        self._waits = 0
        return part, self._complete

    def is_free(self) -> bool:
        """Whether the whole answer has come, and the server keeps the connection."""
        return self._complete and self._keeps and self._error is None

    def abort(self) -> None:
        self._transport.abort()

    async def _wait(self) -> None:
        if self._error is not None:
            raise self._error
        self._waiting = asyncio.get_running_loop().create_future()
        await self._waiting

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Other loops have classes of their own.
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._error = ConnectionResetError(str(error or "the connection is closed"))
        self._owner.forget(self)
        self._wake()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._error = ConnectionResetError(f"the answer is not HTTP: {error}")
            self._transport.abort()
        self._wake()

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()

    def on_body(self, part: bytes) -> None:
        self._parts.append(part)
        before, self._waits = self._waits, self._waits + len(part)
        if before <= _MOST_WAITING < self._waits:
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        self._complete, self._keeps = True, self._parser.should_keep_alive()
