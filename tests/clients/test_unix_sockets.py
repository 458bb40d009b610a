"""Unix sockets: every port may be a file, with its permissions, and without traces of ended servers."""

import http.client
import json
import os
import pathlib
import socket
import stat

import numpy as np
import processes
import pytest
import tritonclient.grpc
from protocols import GRPC, add_sub_inputs
from serving import PATIENCE, command, environment, eventually, run_to_end

MODEL = "/v2/models/add_sub/infer"


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path):
        super().__init__("localhost", timeout=PATIENCE)
        self._path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(self._path)


def ask(path, method, target, body=None):
    connection = UnixConnection(path)
    try:
        connection.request(method, target, body)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


@pytest.fixture
def sockets(tmp_path_factory):
    # Paths of sockets are short: a folder with the name of the test may be too long for that.
    folder = tmp_path_factory.mktemp("s")
    return {port: f"{folder}/{port}.sock" for port in ("http", "grpc", "metrics")}


def options(sockets):
    return [f"--{port}-address=unix:{path}" for port, path in sockets.items()]


@pytest.fixture
def on_sockets(start, repository_folder, sockets):
    return lambda *more: start(repository_folder, *options(sockets), *more)


def test_clients_of_both_protocols_and_scrapers_are_served(on_sockets, sockets):
    server = on_sockets()
    assert (server.http_port, server.grpc_port, server.metrics_port) == (None, None, None)
    with tritonclient.grpc.InferenceServerClient(f"unix:{sockets['grpc']}") as client:
        inputs, first = add_sub_inputs(GRPC)
        for _ in range(3):
            result = client.infer("add_sub", inputs)
            np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), first + 1000)
    tensor = {"datatype": "INT32", "shape": [1, 16], "data": list(range(16))}
    body = json.dumps({"inputs": [{"name": name, **tensor} for name in ("INPUT0", "INPUT1")]})
    status, answer = ask(sockets["http"], "POST", MODEL, body)
    assert status == 200 and json.loads(answer)["outputs"][0]["data"] == list(range(0, 32, 2))
    status, text = ask(sockets["metrics"], "GET", "/metrics")
    assert status == 200 and b'nv_inference_request_success{model="add_sub"' in text


@pytest.mark.parametrize("mode", [None, "600", "0666"])
def test_a_socket_has_its_permissions(on_sockets, sockets, mode):
    on_sockets(*([f"--unix-socket-mode={mode}"] if mode else []))
    for path in sockets.values():
        found = os.stat(path)
        assert stat.S_ISSOCK(found.st_mode) and stat.S_IMODE(found.st_mode) == int(mode or "660", 8)


def files(sockets):
    return sorted(path.name for path in pathlib.Path(sockets["http"]).parent.iterdir())


def test_a_server_removes_its_sockets_when_it_ends(on_sockets, sockets):
    server = on_sockets()
    assert len(files(sockets)) == 6
    server.terminate()
    assert server.process.wait(PATIENCE) == 0
    assert files(sockets) == []


def test_the_sockets_of_a_killed_server_are_replaced(on_sockets, sockets):
    killed = on_sockets()
    killed.kill()
    killed.expected_code = -9
    assert "http.sock" in files(sockets)
    on_sockets()
    assert ask(sockets["http"], "GET", "/v2/health/live")[0] == 200


def test_a_socket_in_use_is_left_to_its_server(on_sockets, sockets, repository_folder):
    on_sockets()
    line = command(repository_folder, *options(sockets))
    ended = run_to_end(*line[1:])
    assert ended.returncode == 1 and f"Socket 'unix:{sockets['grpc']}' already in use" in ended.stderr
    assert ask(sockets["http"], "GET", "/v2/health/live")[0] == 200


def test_a_file_that_is_no_socket_stays(sockets, repository_folder):
    with open(sockets["http"], "w") as file:
        file.write("content")
    line = command(repository_folder, *options(sockets))
    ended = run_to_end(*line[1:])
    assert ended.returncode == 1 and "not a socket" in ended.stderr
    with open(sockets["http"]) as file:
        assert file.read() == "content"


def test_http_on_a_socket_needs_an_address_for_metrics(repository_folder):
    ended = run_to_end(f"--model-repository={repository_folder}", "--http-address=unix:/nowhere/x")
    assert ended.returncode == 1 and "requires setting '--metrics-address'" in ended.stderr


def test_nobody_is_served_before_the_models_are_loaded(repository_folder, sockets):
    """Until then the server has the socket, and refuses connections."""
    line = command(repository_folder, *options(sockets))
    with processes.running(line, env=environment(), stdout=processes.DEVNULL, stderr=processes.DEVNULL) as process:

        def answers():
            try:
                return ask(sockets["http"], "GET", "/v2/health/ready")[0]
            except (FileNotFoundError, ConnectionRefusedError):
                return None

        first = eventually(answers, "an answer")
        assert first == 200
        process.terminate()
        assert process.wait(PATIENCE) == 0
