"""A server that a package has installed, in an environment that knows nothing of this repository."""

import contextlib
import http.client
import json
import os
import re
import socket

import processes
from processes import PATIENCE
from serving import eventually

# The port for clients, or that for a platform.
PORT = re.compile(r"Started .*HTTPService at \S*:(\d+)")
REQUEST = {
    "inputs": [
        {"name": name, "datatype": "INT32", "shape": [1, 16], "data": [value] * 16}
        for name, value in (("INPUT0", 3), ("INPUT1", 1))
    ]
}
# Nothing of the one who runs the tests: no virtual environment, no ONNX Runtime of the repository.
ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


@contextlib.contextmanager
def running(line, log_path, variables=None):
    """Starts a server, and gives its HTTP port when it serves. The system chooses the ports."""
    line = [*map(str, line), "--http-port=0", "--grpc-port=0", "--metrics-port=0"]
    variables = ENVIRONMENT | (variables or {})
    with (
        open(log_path, "wb") as log,
        processes.running(line, env=variables, stdout=log, stderr=processes.STDOUT) as process,
    ):

        def port():
            assert process.poll() is None, log_path.read_text()[-3000:]
            return PORT.search(log_path.read_text())

        yield int(eventually(port, f"the port in {log_path}")[1])
        process.terminate()
        assert process.wait(PATIENCE) == 0, log_path.read_text()[-3000:]


def ask(port, path="/v2/models/add_sub/infer"):
    """The sums and differences of a request to `add_sub`."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.request("POST", path, json.dumps(REQUEST))
    response = connection.getresponse()
    answer = json.loads(response.read())
    assert response.status == 200, answer
    return {output["name"]: output["data"][0] for output in answer["outputs"]}


def free_ports(count):
    """The first of so many ports in a row that nobody listens on now."""
    for first in range(20000, 30000, count):
        with contextlib.ExitStack() as opened, contextlib.suppress(OSError):
            for port in range(first, first + count):
                opened.enter_context(socket.create_server(("127.0.0.1", port)))
            return first
    raise AssertionError("all ports are in use")


def can(*command):
    """Whether this machine permits a command."""
    return processes.run(command).returncode == 0


def is_root():
    return os.geteuid() == 0
