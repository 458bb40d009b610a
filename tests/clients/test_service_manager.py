"""systemd's contract: sockets that it has opened, and what it is told. The test plays systemd's part."""

import contextlib
import fcntl
import os
import socket

import processes
import pytest
from serving import PATIENCE, command, environment, http_status

# Gives the descriptors of $SOCKETS the numbers from 3 on, as systemd does, and becomes the server.
ACTIVATE = 'LISTEN_PID=$$; export LISTEN_PID; n=3; for s in $SOCKETS; do eval "exec $n<&$s"; n=$((n+1)); done; exec "$@"'


@pytest.fixture
def manager(tmp_path_factory):
    """The socket that the server tells its state to, and its path."""
    # Paths of sockets are short: a folder with the name of the test may be too long for that.
    path = f"{tmp_path_factory.mktemp('s')}/notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(path)
        told.settimeout(PATIENCE)
        yield told, path


@contextlib.contextmanager
def activated(line, sockets, variables):
    # Their numbers must not be those from 3 on, which the shell overwrites one after the other.
    copies = [fcntl.fcntl(listener.fileno(), fcntl.F_DUPFD_CLOEXEC, 50) for listener in sockets]
    variables = environment() | variables | {"LISTEN_FDS": str(len(copies)), "SOCKETS": " ".join(map(str, copies))}
    line = ["bash", "-c", ACTIVATE, "sh", *line]
    with processes.running(line, env=variables, pass_fds=copies, stderr=processes.PIPE, text=True) as server:
        for copy in copies:
            os.close(copy)
        yield server


def test_the_manager_learns_when_the_server_serves_and_when_it_stops(manager, start, repository_folder):
    told, path = manager
    server = start(repository_folder, variables={"NOTIFY_SOCKET": path})
    assert told.recv(4096).decode().splitlines() == ["READY=1", "STATUS=serving"]
    assert http_status(server.http_port, "/v2/health/ready") == 200
    server.terminate()
    assert told.recv(4096).decode().splitlines() == ["STOPPING=1"]


def test_clients_of_sockets_that_the_manager_has_opened_wait_until_the_server_serves(manager, repository_folder):
    told, path = manager
    with socket.create_server(("127.0.0.1", 0)) as http, socket.create_server(("127.0.0.1", 0)) as grpc:
        ports = [listener.getsockname()[1] for listener in (http, grpc)]
        # Nobody serves yet, and yet nobody is refused.
        with socket.create_connection(("127.0.0.1", ports[0]), timeout=PATIENCE) as early:
            early.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            line = command(repository_folder, f"--http-port={ports[0]}", f"--grpc-port={ports[1]}")
            with activated(line, [http, grpc], {"NOTIFY_SOCKET": path}) as server:
                assert early.recv(64).startswith(b"HTTP/1.1 200")
                assert b"READY=1" in told.recv(4096)
                assert http_status(ports[0], "/v2/health/ready") == 200
                server.terminate()
                assert server.wait(PATIENCE) == 0, server.stderr.read()


def test_a_socket_that_no_endpoint_has_ends_the_start(repository_folder):
    with socket.create_server(("127.0.0.1", 0)) as other:
        with activated(command(repository_folder), [other], {}) as server:
            error = server.communicate(timeout=PATIENCE)[1]
        port = other.getsockname()[1]
    assert server.returncode == 1
    assert f"the service manager has opened port {port}, but no endpoint of the server has this port" in error


def test_a_manager_that_is_gone_only_costs_a_warning(start, repository_folder):
    server = start(repository_folder, variables={"NOTIFY_SOCKET": "/nowhere/notify"})
    server.wait_for_log("the service manager cannot be told")
    assert http_status(server.http_port, "/v2/health/ready") == 200
