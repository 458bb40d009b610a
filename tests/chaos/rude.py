"""Clients that stand still, that stop reading, or that go away in the middle."""

import contextlib
import json
import random
import socket
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
HEAD = b"POST /v2/models/%b/infer HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
# More would be a flood, which has tests of its own.
MOST_OPEN = 60


def body(model, x):
    tensor = {"name": model.x, "datatype": "INT64", "shape": [1, 1], "data": [x]}
    return json.dumps({"inputs": [tensor]}).encode()


class RudeClients:
    """Their connections stay open until they are forgotten."""

    def __init__(self):
        self._open = []

    def _connect(self, port):
        connection = socket.create_connection(("127.0.0.1", port))
        self._open.append(connection)
        while len(self._open) > MOST_OPEN:
            self._open.pop(0).close()
        return connection

    def forget(self):
        while self._open:
            self._open.pop().close()

    def half_head(self, server, model, number):
        port = (server.http_port, server.metrics_port)[number % 2]
        self._connect(port).sendall(b"POST /v2/models/plain/inf")

    def half_body(self, server, model, number):
        whole = body(model, number)
        self._connect(server.http_port).sendall(HEAD % (model.name.encode(), len(whole)) + whole[: len(whole) // 2])

    def half_preface(self, server, model, number):
        self._connect(server.grpc_port).sendall(PREFACE[: 1 + number % (len(PREFACE) - 1)])

    def idle_channel(self, server, model, number):
        """A connection of gRPC without a call, which answers no PING."""
        self._connect(server.grpc_port).sendall(PREFACE + SETTINGS)

    def unread(self, server, model, number):
        """Many requests one after the other, whose answers nobody reads."""
        connection = self._connect(server.http_port)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        whole = body(model, number)
        connection.setblocking(False)
        # What does not fit into the buffers is not sent.
        with contextlib.suppress(BlockingIOError, ConnectionError):
            for _ in range(200):
                connection.sendall(HEAD % (model.name.encode(), len(whole)) + whole)

    def aborted(self, server, model, number):
        """Requests whose connections are reset in the middle, or before their answer."""
        chance = random.Random(number)
        whole = HEAD % (model.name.encode(), len(body(model, number))) + body(model, number)
        for _ in range(20):
            with contextlib.suppress(ConnectionError), socket.create_connection(("127.0.0.1", server.http_port)) as connection:
                connection.sendall(whole[: chance.randint(1, len(whole))])
                # It is closed with a reset.
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def reset_streams(self, server, model, number):
        """HTTP/2 streams that are opened and reset at once."""
        headers = b"\x83\x86\x44\x05/x/yz\x41\x01a"
        connection = self._connect(server.grpc_port)
        frames = [PREFACE + SETTINGS]
        for stream in range(1, 41, 2):
            frames.append(struct.pack(">I", len(headers))[1:] + bytes([1, 4]) + struct.pack(">I", stream) + headers)
            frames.append(bytes([0, 0, 4, 3, 0]) + struct.pack(">II", stream, 8))
        with contextlib.suppress(ConnectionError):
            connection.sendall(b"".join(frames))
