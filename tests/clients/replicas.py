"""Replicas of a server, which can be replaced, and HAProxy in front of them as `packaging/haproxy` configures it."""

import contextlib
import re

import numpy as np
import processes
import proxies
from protocols import add_sub_inputs
from serving import PATIENCE, ROOT, Server, eventually, free_port, refuses_connections


class Fleet:
    """Two servers, each with ports of its own, which can be replaced."""

    def __init__(self, tmp_path, *arguments):
        self.ports = [(free_port(), free_port()) for _ in range(2)]
        self._make = lambda index: Server(
            tmp_path, *arguments, f"--http-port={self.ports[index][0]}", f"--grpc-port={self.ports[index][1]}"
        )
        self._started = contextlib.ExitStack()

    def _start(self, index):
        return self._started.enter_context(self._make(index))

    def replace(self, index):
        """Stops the server and starts it anew."""
        server = self.servers[index]
        server.terminate()
        assert server.process.wait(PATIENCE) == 0, server.log_end()
        self.servers[index] = self._start(index)

    def __enter__(self):
        with self._started:
            self.servers = [self._start(index) for index in range(2)]
            self._started = self._started.pop_all()
        return self

    def __exit__(self, *error):
        return self._started.__exit__(*error)


@contextlib.contextmanager
def haproxy(folder, name, ports):
    """HAProxy with one of the configurations, in front of replicas with these ports. Gives its ports of HTTP and gRPC."""
    text = (ROOT / f"packaging/haproxy/{name}.cfg").read_text()
    own = {8000: free_port(), 8001: free_port()}
    for port, used in own.items():
        text = text.replace(f"bind :{port}", f"bind 127.0.0.1:{used}")
    for number, (http, grpc) in enumerate(ports, start=1):
        text = text.replace(f"10.0.0.{number}:8000", f"127.0.0.1:{http}")
        text = text.replace(f"10.0.0.{number}:8001", f"127.0.0.1:{grpc}")
    assert not re.search(r"10\.0\.0|\b800[01]\b", re.sub("#.*", "", text)), text
    config, log_path = folder / f"{name}.cfg", folder / f"{name}.log"
    config.write_text(text)
    line = [proxies.haproxy_program(), "-db", "-f", config]
    with open(log_path, "wb") as log, processes.running(line, stdout=log, stderr=processes.STDOUT) as process:

        def listens():
            assert process.poll() is None, f"HAProxy ended with {process.returncode}: {log_path.read_text()}"
            return not any(map(refuses_connections, own.values()))

        eventually(listens, "HAProxy to listen")
        yield own[8000], own[8001]


def keep_asking(protocol, address, done, outcomes):
    """A client of the library with one connection, or as many as it must open, one request after the other."""
    inputs, expected = add_sub_inputs(protocol)
    with protocol.library.InferenceServerClient(address) as client:
        while not done.is_set():
            try:
                answered = client.infer("add_sub", inputs).as_numpy("OUTPUT0")
            except Exception as error:
                outcomes[str(error)] += 1
                continue
            np.testing.assert_array_equal(answered, expected + 1000)
            outcomes["answered"] += 1
            done.wait(0.02)
