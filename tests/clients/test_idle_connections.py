"""Thousands of connections whose clients have nothing to ask."""

import contextlib
import socket

from serving import PATIENCE, eventually

COUNT = 1500
# A connection of hyper has two buffers of 8 KiB.
MOST_BYTES = 14 << 10
QUESTION = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"


def ask(client):
    client.sendall(QUESTION)
    assert client.recv(4096).startswith(b"HTTP/1.1 200 ")


def test_idle_connections_give_their_buffers_back_and_answer_again(start, tmp_path):
    (tmp_path / "models").mkdir()
    server = start(tmp_path / "models", f"--max-connections-per-address={2 * COUNT}").wait_until_ready()
    with contextlib.ExitStack() as clients:

        def connect():
            return clients.enter_context(socket.create_connection(("127.0.0.1", server.http_port), timeout=PATIENCE))

        ask(connect())
        before = server.resident_bytes()
        connections = [connect() for _ in range(COUNT)]
        for client in connections:
            ask(client)

        def held():
            return (server.resident_bytes() - before) / COUNT

        eventually(lambda: held() < MOST_BYTES, "buffers to go back")
        for client in connections:
            ask(client)
        eventually(lambda: held() < MOST_BYTES, "buffers to go back again")
