"""A machine that vanishes while its answer is on the way: nothing is acknowledged, and nothing is refused."""

import contextlib
import ctypes
import http.client
import os
import pathlib
import shutil
import threading

import processes
import pytest
from held import held_inputs
from protocols import HTTP
from serving import PATIENCE, Server, eventually

CLONE_NEWNET = 0x40000000
ESTABLISHED = "01"


def may_have_networks():
    return shutil.which("ip") and processes.run(["unshare", "--net", "true"]).returncode == 0


class OwnNetwork(Server):
    """A server in a network of its own, which only has the loopback device."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        begin = 'ip link set lo up && exec "$@"'
        self._line = ["unshare", "--net", "sh", "-c", begin, "sh", *self._line]

    def connect(self):
        """A connection of a client in that network."""
        connection = http.client.HTTPConnection(self.http, timeout=PATIENCE)

        def connect():
            with open(f"/proc/{self.process.pid}/ns/net") as network:
                assert ctypes.CDLL(None).setns(network.fileno(), CLONE_NEWNET) == 0
            connection.connect()

        # The network is that of a thread. A socket keeps that of the thread that has made it.
        thread = threading.Thread(target=connect)
        thread.start()
        thread.join(PATIENCE)
        return connection

    def connections(self):
        """How many connections of the HTTP port are established, as the kernel sees them."""
        lines = pathlib.Path(f"/proc/{self.process.pid}/net/tcp").read_text().splitlines()[1:]
        rows = (line.split() for line in lines)
        return sum(int(row[1].split(":")[1], 16) == self.http_port and row[3] == ESTABLISHED for row in rows)

    def take_network_away(self):
        enter = ["nsenter", "--target", self.process.pid, "--net"]
        processes.run([*enter, "ip", "link", "set", "lo", "down"], check=True)


@pytest.mark.skipif(not may_have_networks(), reason="only root can make a network")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can enter a network")
def test_a_machine_that_vanishes_is_noticed_by_what_it_does_not_acknowledge(tmp_path, empty, gate, backend_option):
    gate.write(empty, "held", "max_batch_size: 1\n")
    hold = gate.hold()
    content, json_length = HTTP.library.InferenceServerClient.generate_request_body(held_inputs(HTTP, hold))
    headers = {"Inference-Header-Content-Length": str(json_length)}
    with OwnNetwork(tmp_path, empty, backend_option, "--client-write-timeout-secs=1") as server:
        with contextlib.closing(server.connect()) as connection:
            connection.request("POST", "/v2/models/held/infer", content, headers)
            hold.wait_until_running()
            assert server.connections() == 1
            server.take_network_away()
            hold.release()
            eventually(lambda: server.connections() == 0, "the connection to be given up")
