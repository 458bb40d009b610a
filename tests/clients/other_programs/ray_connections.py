"""Tries the connections of a replica of Ray with servers that behave well and badly. Prints the names of what was tried."""

import asyncio
import tempfile

from nereid_server.ray.http_connections import _MOST_WAITING, HttpConnections


async def head_of(reader):
    return await reader.readuntil(b"\r\n\r\n")


async def turn():
    """Lets everything run that can."""
    done = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(done.set_result, None)
    await done


async def ask(connections, **changes):
    request = {"method": b"GET", "target": b"/v2", "headers": (), "body": b"", **changes}
    async with connections.exchange(**request) as answer:
        return answer.status, answer.headers, await answer.read()


def plain(body, more=b""):
    return b"HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\n\r\n%s" % (more, len(body), body)


async def a_connection_is_used_again(serve):
    accepted = []

    async def server(reader, writer):
        accepted.append(await head_of(reader))
        writer.write(plain(b"first")[:20])
        await writer.drain()
        writer.write(plain(b"first")[20:])
        accepted.append(await head_of(reader))
        assert await reader.readexactly(4) == b"body"
        writer.write(plain(b"second", b"Connection: close\r\nX-One: 1\r\n"))

    connections = await serve(server)
    assert await ask(connections) == (200, [(b"content-length", b"5")], b"first")
    sent = {"method": b"POST", "headers": [(b"x-two", b"2"), (b"content-length", b"9")], "body": b"body"}
    status, headers, body = await ask(connections, **sent)
    assert (status, body) == (200, b"second") and (b"x-one", b"1") in headers
    assert accepted[1] == b"POST /v2 HTTP/1.1\r\nhost: nereid\r\nx-two: 2\r\ncontent-length: 4\r\n\r\n"
    assert not connections._idle


async def the_server_waits_for_who_reads_slowly(serve):
    size = 64 * _MOST_WAITING
    sent = 0

    async def server(reader, writer):
        nonlocal sent
        await head_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(size >> 16):
            writer.write(b"10000\r\n" + bytes(1 << 16) + b"\r\n")
            await writer.drain()
            sent += 1 << 16
        writer.write(b"0\r\n\r\n")

    connections = await serve(server)
    async with connections.exchange(b"GET", b"/v2", (), b"") as answer:
        before = -1
        while sent != before:
            # The server goes on as far as it can.
            before = sent
            for _ in range(1000):
                await turn()
        assert 0 < sent < size // 4, sent
        assert len(await answer.read()) == size


async def what_is_no_answer_is_an_error(serve):
    contents = [b"nonsense\r\n\r\n", b"", plain(b"body")[:-1], b"HTTP/1.1 200 OK\r\nContent-Le"]

    async def server(reader, writer):
        await head_of(reader)
        writer.write(contents[0])

    connections = await serve(server)
    while contents:
        try:
            raise AssertionError(await ask(connections))
        except OSError:
            pass
        del contents[0]
    try:
        raise AssertionError(await ask(HttpConnections("/nowhere")))
    except OSError:
        pass
    assert not connections._idle


async def a_request_that_is_given_up_ends_its_connection(serve):
    ended = asyncio.get_running_loop().create_future()

    async def server(reader, writer):
        await head_of(reader)
        ended.set_result(await reader.read())

    connections = await serve(server)
    request = asyncio.create_task(ask(connections))
    while not connections._all:
        await turn()
    request.cancel()
    try:
        await request
    except asyncio.CancelledError:
        assert await ended == b""


async def an_answer_to_head_has_no_body(serve):
    async def server(reader, writer):
        await head_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
        await reader.read()

    connections = await serve(server)
    assert await ask(connections, method=b"HEAD") == (200, [(b"content-length", b"5")], b"")


async def try_it(attempt, folder):
    servers = []

    async def serve(handler):
        async def to_its_end(reader, writer):
            try:
                await handler(reader, writer)
            except (OSError, asyncio.IncompleteReadError):
                pass
            finally:
                writer.close()

        # The paths of sockets must be short.
        path = f"{folder}/s"
        servers.append(await asyncio.start_unix_server(to_its_end, path))
        return HttpConnections(path)

    await attempt(serve)
    servers[0].close()
    print(attempt.__name__)


for attempt in (
    a_connection_is_used_again,
    the_server_waits_for_who_reads_slowly,
    what_is_no_answer_is_an_error,
    a_request_that_is_given_up_ends_its_connection,
    an_answer_to_head_has_no_body,
):
    with tempfile.TemporaryDirectory(prefix="ray-") as folder:
        asyncio.run(asyncio.wait_for(try_it(attempt, folder), 60))
