"""A load balancer for tests: it passes TCP connections on, in turn, to the servers that say that they are ready. It runs as
a process of its own, so that the callers of a test do not slow it down.

The process reads the servers' ports from its command line, as JSON. It writes what happens to stdout, one JSON object a
line: where it listens, which server is ready or not, and which connections no server took. It ends with its stdin.
"""

import asyncio
import contextlib
import json
import sys
import threading
import time
from collections import Counter

import processes

CHECK = b"GET /v2/health/ready HTTP/1.1\r\nHost: balancer\r\nConnection: close\r\n\r\n"
CHECK_PERIOD = 0.1
# A machine that is busy delays answers. A server that has gone refuses the connection.
CHECK_TIMEOUT = 5


class Balancer:
    """The process, from the beginning of the context to its end. Each server is a pair of ports: HTTP and gRPC."""

    def __init__(self, servers):
        self._servers = servers
        self.is_ready = [False] * len(servers)
        # Connections that no server took. To clients they are failures.
        self.refused = Counter()

    def __enter__(self):
        line = [sys.executable, __file__, json.dumps(self._servers)]
        self._process = processes.start(line, stdin=processes.PIPE, stdout=processes.PIPE, text=True)
        self.http, self.grpc = json.loads(self._process.stdout.readline())["listens"]
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        return self

    def _read(self):
        for line in self._process.stdout:
            match json.loads(line):
                case {"server": index, "is_ready": is_ready}:
                    self.is_ready[index] = is_ready
                case {"refused": why}:
                    self.refused[why] += 1

    def __exit__(self, *_):
        self._process.stdin.close()
        self._reader.join()
        self._process.wait()


def tell(**event):
    print(json.dumps(event), flush=True)


class Balancing:
    """What the process does."""

    def __init__(self, servers):
        self._servers = servers
        self._is_ready = [False] * len(servers)
        self._turn = 0

    async def serve(self):
        loop = asyncio.get_running_loop()
        listening = [
            await loop.create_server(lambda kind=kind: Incoming(self, kind), "127.0.0.1", 0, backlog=1024) for kind in (0, 1)
        ]
        tell(listens=[f"127.0.0.1:{server.sockets[0].getsockname()[1]}" for server in listening])
        checks = [loop.create_task(self._check_for_ever(index)) for index in range(len(self._servers))]
        await loop.run_in_executor(None, sys.stdin.read)
        for check in checks:
            check.cancel()

    async def _check_for_ever(self, index):
        while True:
            is_ready = await answers_ready(self._servers[index][0])
            if is_ready != self._is_ready[index]:
                self._is_ready[index] = is_ready
                tell(server=index, is_ready=is_ready)
            await asyncio.sleep(CHECK_PERIOD)

    def next(self, kind):
        """The port of the next server that is ready."""
        for _ in self._servers:
            self._turn = (self._turn + 1) % len(self._servers)
            if self._is_ready[self._turn]:
                return self._servers[self._turn][kind]
        raise ConnectionRefusedError("no server is ready")


async def answers_ready(port):
    """Asks on a new connection."""
    try:
        async with asyncio.timeout(CHECK_TIMEOUT):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(CHECK)
            status = await reader.readline()
            writer.close()
    except OSError:
        return False
    return status.startswith(b"HTTP/1.1 200 ")


class Pipe(asyncio.Protocol):
    """One side of a connection. What it reads goes to the other side."""

    other = None

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.other.transport.write(data)

    def eof_received(self):
        with contextlib.suppress(OSError):
            self.other.transport.write_eof()
        # This side stays open until the other one ends, too.
        return True

    def connection_lost(self, _error):
        if self.other:
            self.other.transport.close()


class Incoming(Pipe):
    """The client's side. It reads nothing before the server's side is there."""

    def __init__(self, balancing, kind):
        self._balancing, self._kind = balancing, kind

    def connection_made(self, transport):
        super().connection_made(transport)
        transport.pause_reading()
        self._connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self):
        try:
            port = self._balancing.next(self._kind)
            _, outgoing = await asyncio.get_running_loop().create_connection(Pipe, "127.0.0.1", port)
        except OSError as error:
            tell(refused=repr(error))
            self.transport.abort()
            return
        outgoing.other, self.other = self, outgoing
        self.transport.resume_reading()


class Fresh(asyncio.Protocol):
    """One request on one new connection."""

    def __init__(self, outcomes, request):
        self._outcomes, self._request, self._received = outcomes, request, b""

    def connection_made(self, transport):
        transport.write(self._request)

    def data_received(self, data):
        self._received += data

    def connection_lost(self, error):
        received = self._received
        if received.startswith(b"HTTP/1.1 200 ") and received.endswith(b"}"):
            self._outcomes["answered"] += 1
        else:
            self._outcomes[f"{error!r} after {received[:60]!r}"] += 1


async def ask_on_new_connections(address, request, per_second, done, outcomes):
    """Sends so many requests a second, each on a new connection, whatever becomes of the others, until `done` is set.

    Returns how many were sent, and in how many seconds.
    """
    loop = asyncio.get_running_loop()
    host, port = address.split(":")
    begun = time.monotonic()
    asked, connecting = 0, set()

    async def ask():
        try:
            await loop.create_connection(lambda: Fresh(outcomes, request), host, int(port))
        except OSError as error:
            outcomes[f"connect: {error!r}"] += 1

    while not done.is_set():
        due = int((time.monotonic() - begun) * per_second) - asked
        for _ in range(due):
            task = loop.create_task(ask())
            connecting.add(task)
            task.add_done_callback(connecting.discard)
        asked += due
        await asyncio.sleep(0.005)
    seconds = time.monotonic() - begun
    async with asyncio.timeout(60):
        while outcomes.total() < asked:
            await asyncio.sleep(0.01)
    return asked, seconds


if __name__ == "__main__":
    asyncio.run(Balancing(json.loads(sys.argv[1])).serve())
