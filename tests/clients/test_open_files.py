"""A server that may open few files."""

import socket

from serving import PATIENCE, Server

# With its model the server needs about 50.
OPEN_FILES = 80
CLIENTS = 200
QUESTION = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"


def test_each_client_is_answered_although_there_are_too_few_descriptors(tmp_path, repository_folder):
    server = Server(tmp_path, repository_folder)
    server._line = ["prlimit", f"--nofile={OPEN_FILES}", *server._line]
    with server:
        server.wait_until_ready()
        address = ("127.0.0.1", server.http_port)
        clients = [socket.create_connection(address, timeout=PATIENCE) for _ in range(CLIENTS)]
        for client in clients:
            client.sendall(QUESTION)
        statuses = []
        for client in clients:
            statuses.append(int(client.recv(64).split()[1]))
            # Those that are served stay.
            if statuses[-1] == 503:
                client.close()
        assert set(statuses) == {200, 503}
        assert "the system permits " in server.log()
        for client in clients:
            client.close()
