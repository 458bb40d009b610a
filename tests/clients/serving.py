"""The server as a process: started on ports of its own, watched from outside, and judged by how it ends.

The binary is $NEREID_BINARY, or the debug build. It finds ONNX Runtime by $NEREID_ONNXRUNTIME_LIBRARY, or where
`cargo xtask setup` puts it.
"""

import contextlib
import os
import pathlib
import random
import re
import signal
import socket
import struct
import time

import processes
from processes import PATIENCE

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = ROOT / os.environ.get("CARGO_TARGET_DIR", "target")
BINARY = pathlib.Path(os.environ.get("NEREID_BINARY", TARGET / "debug" / "nereid")).resolve()
LIBRARY = "NEREID_ONNXRUNTIME_LIBRARY"

# Tests of many random operations have a short form for the ordinary run, and a full one for NEREID_TORTURE=full.
FULL = os.environ.get("NEREID_TORTURE", "") == "full"


def size(short, full):
    """How many of something a test of random operations does."""
    return full if FULL else short


# A unix socket has no port.
PORT_LINES = {
    "http_port": re.compile(r"Started HTTPService at (?:unix:|\S*:(\d+))"),
    "grpc_port": re.compile(r"Started GRPCInferenceService at (?:unix:|\S*:(\d+))"),
    "metrics_port": re.compile(r"Started Metrics Service at (?:unix:|\S*:(\d+))"),
}


def environment():
    """The environment a server is started in."""
    variables = dict(os.environ)
    if LIBRARY not in variables:
        found = sorted((TARGET / "onnxruntime").glob("libonnxruntime.so.*"))
        if found:
            variables[LIBRARY] = str(found[-1])
    return variables


# The system gives ports from here on to whoever asks for any port.
ANY_PORT = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
CHOSEN_PORTS = range(20_000, max(ANY_PORT, 30_000))


def free_ports(count):
    """So many different ports that nobody listens on now. Usually nobody gets them who asks for any port, so they stay free."""
    ports = []
    with contextlib.ExitStack() as listeners:
        for port in random.sample(CHOSEN_PORTS, len(CHOSEN_PORTS)):
            if len(ports) == count:
                break
            with contextlib.suppress(OSError):
                listeners.enter_context(socket.create_server(("127.0.0.1", port)))
                ports.append(port)
    assert len(ports) == count, "too few ports are free"
    return ports


def free_port():
    """A port that nobody listens on now."""
    [port] = free_ports(1)
    return port


def refuses_connections(port):
    """Whether nobody listens on a port any more."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE).close()
    except (ConnectionRefusedError, ConnectionResetError):
        # Reset: the connection was waiting to be accepted when the port was closed.
        return True
    return False


def reset(connection):
    """Lets a connection of `http.client` close with a reset, so that the server learns at once that its client has gone."""
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def eventually(condition, what, patience=PATIENCE, pause=0.005):
    """Asks until the answer is true and gives it; fails, naming what was waited for, when patience ends."""
    end = time.monotonic() + patience
    while True:
        answer = condition()
        if answer:
            return answer
        assert time.monotonic() < end, f"waited {patience} s in vain for {what}"
        time.sleep(pause)


def command(repository, *options):
    """The command line of a server on ports that the system chooses; later options win."""
    line = [BINARY, f"--model-repository={repository}"]
    line += ["--http-address=127.0.0.1", "--grpc-address=127.0.0.1", "--metrics-address=127.0.0.1"]
    line += ["--http-port=0", "--grpc-port=0", "--metrics-port=0", *options]
    return [str(word) for word in line]


def run_to_end(*options, patience=PATIENCE):
    """Starts the server with exactly these options, expecting that it ends by itself."""
    return processes.run([BINARY, *options], env=environment(), timeout=patience)


def http_status(port, path, patience=PATIENCE):
    """The status of a GET request, or None if there is no answer."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=patience) as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            head = connection.recv(64)
    except OSError:
        return None
    return int(head.split()[1]) if head.startswith(b"HTTP/1.1 ") else None


class Server:
    """A running server. As a context: ready at the start, ended in order and without a panic at the end.

    `entered` has the servers that run, and those that have run in the present test.
    """

    entered = []

    def __init__(self, folder, repository, *options, variables=None, inherits=True):
        """With `inherits` false the server has no variables but ONNX Runtime's place and those that are given."""
        self.log_path = folder / f"server-{time.monotonic_ns()}.log"
        self._line = command(repository, *options)
        inherited = environment()
        if not inherits:
            inherited = {name: inherited[name] for name in (LIBRARY,) if name in inherited}
        self._environment = inherited | (variables or {})
        # How it is expected to end.
        self.expected_code = 0
        self.process = None

    def __enter__(self):
        assert self.process is None, "this server has been started: `start` returns servers that run"
        with self.open_log() as log:
            self.process = processes.start(self._line, env=self._environment, stdout=log, stderr=processes.STDOUT)
        Server.entered.append(self)
        try:
            self._wait_for_ports()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, kind, error, trace):
        if self.process.poll() is None:
            self.terminate()
        try:
            code = self.process.wait(PATIENCE)
        except processes.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the server does not end; {self.log_end()}") from error
        # A test that failed tells more than what became of its server.
        if kind is None:
            assert code == self.expected_code, f"the server ended with {code}; {self.log_end()}"
            assert "panicked" not in self.log(), self.log_end()

    def open_log(self):
        """What the server writes its log to."""
        return open(self.log_path, "wb")

    def _wait_for_ports(self):
        def started():
            assert self.process.poll() is None, f"ended with {self.process.returncode}; {self.log_end()}"
            log = self.log()
            found = {name: line.search(log) for name, line in PORT_LINES.items()}
            return all(found.values()) and {
                name: match[1] and int(match[1]) for name, match in found.items()
            }

        for name, port in eventually(started, f"the ports in {self.log_path}").items():
            setattr(self, name, port)
        self.http = f"127.0.0.1:{self.http_port}"
        self.grpc = f"127.0.0.1:{self.grpc_port}"
        self.metrics = f"http://127.0.0.1:{self.metrics_port}/metrics"

    def port_of(self, service):
        """The port of a further service, by its name in the log."""
        return int(re.search(rf"Started {service} at \S*:(\d+)", self.log())[1])

    def wait_until_ready(self):
        eventually(lambda: http_status(self.http_port, "/v2/health/ready") == 200, f"readiness; {self.log_end()}")
        return self

    def wait_for_log(self, text, count=1):
        """Waits until the log has the text so many times."""
        eventually(lambda: self.log().count(text) >= count, f"'{text}' in {self.log_path}")

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def log(self):
        return self.log_path.read_text(errors="replace")

    def log_end(self):
        return f"{self.log_path} ends:\n{self.log()[-3000:]}"

    def resident_bytes(self):
        """Memory of the process that is in use now."""
        return resident_bytes(self.process.pid)


def resident_bytes(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024
