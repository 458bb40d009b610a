"""A server that may open few files."""

import socket

from serving import PATIENCE, Server

OPEN_FILES = 80
# Opens 30 files, as models do, and becomes the server.
BECOME = 'for n in {20..49}; do eval "exec $n</dev/null"; done; exec "$@"'
CLIENTS = 200
QUESTION = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"


def test_each_client_is_answered_although_there_are_too_few_descriptors(tmp_path, repository_folder):
    server = Server(tmp_path, repository_folder, "--max-connections-per-address=1000")
    server._line = ["prlimit", f"--nofile={OPEN_FILES}", "bash", "-c", BECOME, "sh", *server._line]
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
