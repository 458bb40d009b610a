"""A server that is told to stop says that it is not ready, serves on for `--shutdown-delay-secs`, and then finishes what
runs.

The test with the balancer replaces servers twice at 100 connections a second, and with $NEREID_SHUTDOWN_FULL=1 50 times at
500 connections a second.
"""

import asyncio
import collections
import contextlib
import http.client
import json
import os
import queue
import socket
import struct
import threading
import time

import numpy as np
import pytest
import repository as models
import requests
from balancer import Balancer, ask_on_new_connections
from held import held_inputs
from protocols import GRPC, HTTP, add_sub_inputs
from replicas import Fleet, keep_asking, kept
from serving import PATIENCE, eventually, http_status, refuses_connections, run_to_end
from tritonclient.utils import InferenceServerException

# Longer than any test.
LONG_DELAY = 3600
SHORT_DELAY = 1
# A balancer on a busy machine needs a while to hear that a server is not ready.
DELAY_BEHIND_BALANCER = 4
IS_FULL = os.environ.get("NEREID_SHUTDOWN_FULL", "") == "1"
CYCLES, PER_SECOND = (50, 500) if IS_FULL else (2, 100)


@pytest.fixture
def folder(tmp_path, gate):
    folder = tmp_path / "models"
    folder.mkdir()
    models.add_sub(folder)
    models.accumulate(folder, "direct")
    gate.write(folder, "held", "max_batch_size: 1\ndynamic_batching {}\n")
    return folder


@pytest.fixture
def delayed(start, folder, backend_option):
    """A server of one's own that says that it leaves, and then serves until the test kills it."""
    started = []

    def start_delayed():
        started.append(start(folder, backend_option, f"--shutdown-delay-secs={LONG_DELAY}").wait_until_ready())
        return started[-1]

    yield start_delayed
    for server in started:
        assert server.process.poll() is None, server.log_end()
        server.kill()
        server.expected_code = server.process.returncode


@pytest.fixture
def delayed_shortly(start, folder, backend_option):
    """A server of one's own that leaves after a short while."""
    delay = f"--shutdown-delay-secs={SHORT_DELAY}"
    return lambda *options: start(folder, backend_option, delay, *options).wait_until_ready()


def leave(server):
    """Tells the server to stop. Returns when it has said so."""
    server.terminate()
    eventually(lambda: "The server is not ready any more" in server.log(), "the announcement")


def get(connection, path):
    connection.request("GET", path)
    answer = connection.getresponse()
    answer.read()
    return answer.status, answer.headers.get("Connection")


def is_closed(connection):
    return connection.sock is None or connection.sock.recv(1) == b""


def test_every_connection_learns_at_once_that_the_server_leaves_and_may_use_it(delayed):
    server = delayed()
    kept = http.client.HTTPConnection(server.http, timeout=PATIENCE)
    assert get(kept, "/v2/health/ready") == (200, None)
    with GRPC.connect(server) as client:
        assert client.is_server_ready()
        leave(server)
        assert get(kept, "/v2/health/ready") == (400, "close")
        assert requests.get(f"http://{server.http}/v2/health/ready", timeout=PATIENCE).json() == {
            "error": "Server not ready: it will stop"
        }
        assert http_status(server.http_port, "/v2/health/ready") == 400
        assert http_status(server.http_port, "/v2/health/live") == 200
        assert client.is_server_live() and not client.is_server_ready()
        assert health(server) == "NOT_SERVING"
        # Clients that know no other server are served.
        for protocol in (HTTP, GRPC):
            inputs, expected = add_sub_inputs(protocol)
            with protocol.connect(server) as late:
                answered = late.infer("add_sub", inputs).as_numpy("OUTPUT0")
                np.testing.assert_array_equal(answered, expected + 1000)
                assert late.is_model_ready("add_sub")
        np.testing.assert_array_equal(client.infer("add_sub", add_sub_inputs(GRPC)[0]).as_numpy("OUTPUT0"), expected + 1000)
        assert requests.get(server.metrics, timeout=PATIENCE).ok


def health(server):
    import grpc as grpc_library
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="health_of_test.proto", package="grpc.health.v1.test", syntax="proto3")
    file.message_type.add(name="Request")
    reply = file.message_type.add(name="Reply")
    reply.field.add(name="status", number=1, type=5, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    request, reply = (
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"grpc.health.v1.test.{name}")) for name in ("Request", "Reply")
    )
    with grpc_library.insecure_channel(server.grpc) as channel:
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check", request_serializer=request.SerializeToString, response_deserializer=reply.FromString
        )
        return ["UNKNOWN", "SERVING", "NOT_SERVING"][check(request()).status]


def test_each_answer_over_http_is_the_last_of_its_connection(delayed, gate):
    server = delayed()
    hold = gate.hold()
    busy = http.client.HTTPConnection(server.http, timeout=PATIENCE)
    content, json_length = HTTP.library.InferenceServerClient.generate_request_body(held_inputs(HTTP, hold, 3))
    idle = http.client.HTTPConnection(server.http, timeout=PATIENCE)
    get(idle, "/v2")
    busy.request("POST", "/v2/models/held/infer", content, {"Inference-Header-Content-Length": str(json_length)})
    hold.wait_until_running()
    leave(server)
    hold.release()
    answer = busy.getresponse()
    answer.read()
    assert (answer.status, answer.headers["Connection"]) == (200, "close")
    # A connection without a request stays open until it has had one.
    assert get(idle, "/v2") == (200, "close")
    assert is_closed(idle)


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, PING, GOAWAY = 0, 1, 4, 6, 7
# END_STREAM or ACK, and END_HEADERS.
END, END_HEADERS = 1, 4


class RawConnection:
    """A connection of HTTP/2, frame by frame."""

    def __init__(self, port, answers_pings=True):
        self._answers_pings = answers_pings
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self._socket.sendall(PREFACE)
        self.send(SETTINGS)

    def send(self, kind, payload=b"", flags=0, stream=0):
        self._socket.sendall(struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload)

    def _exactly(self, count):
        content = b""
        while len(content) < count and (piece := self._socket.recv(count - len(content))):
            content += piece
        return content

    def frames(self):
        """Kind and payload of each frame until the server closes the connection."""
        while head := self._exactly(9):
            kind, payload = head[3], self._exactly(int.from_bytes(head[:3], "big"))
            if kind == PING and not head[4] & END and self._answers_pings:
                self.send(PING, payload, END)
            yield kind, payload

    def call(self, method):
        """Begins a call without parameters as the first of the connection."""
        path = f"/inference.GRPCInferenceService/{method}"
        fields = {":method": "POST", ":scheme": "http", ":path": path, "content-type": "application/grpc", "te": "trailers"}
        text = [bytes([len(text)]) + text.encode() for field in fields.items() for text in field]
        block = b"".join(b"\0" + name + value for name, value in zip(text[::2], text[1::2], strict=True))
        self.send(HEADERS, block, END_HEADERS, 1)
        self.send(DATA, bytes(5), END, 1)


def farewells(port):
    """Last stream and code of each GOAWAY, and the seconds until the connection ends."""
    begun = time.monotonic()
    connection = RawConnection(port)
    found = [struct.unpack(">II", payload[:8]) for kind, payload in connection.frames() if kind == GOAWAY]
    return found, time.monotonic() - begun


def test_connections_of_grpc_are_told_to_go(delayed, threads):
    server = delayed()
    early = threads.submit(farewells, server.grpc_port)
    # Its first frames have been answered.
    assert next(RawConnection(server.grpc_port).frames())[0] == SETTINGS
    leave(server)
    # First "no new calls", then, when the client has heard it, the last call that was accepted.
    orderly = [(2**31 - 1, 0), (0, 0)]
    assert early.result(PATIENCE)[0] == orderly
    assert server.process.poll() is None
    # A client that comes all the same can use its connection for a while.
    found, seconds = farewells(server.grpc_port)
    assert found == orderly and seconds > 0.5


def test_a_call_of_a_client_that_does_not_know_of_the_stop_yet_is_answered(start, folder, backend_option):
    server = start(folder, backend_option).wait_until_ready()
    connection = RawConnection(server.grpc_port, answers_pings=False)
    frames = connection.frames()
    assert next(frames)[0] == SETTINGS
    server.terminate()
    # A ping follows the first GOAWAY.
    ping = next(payload for kind, payload in frames if kind == PING)
    connection.call("ServerMetadata")
    assert b"triton" in next(payload for kind, payload in frames if kind == DATA)
    # The server knows now that the client knows.
    connection.send(PING, ping, END)
    assert [struct.unpack(">II", payload[:8]) for kind, payload in frames if kind == GOAWAY] == [(1, 0)]
    assert server.process.wait(PATIENCE) == 0


class Stream:
    """A stream of a client, and its answers in order."""

    def __init__(self, client):
        self._client, self._answers = client, queue.Queue()
        client.start_stream(lambda result, error: self._answers.put((result, error)))

    def send(self, *arguments, **named):
        self._client.async_stream_infer(*arguments, **named)

    def answer(self):
        result, error = self._answers.get(timeout=PATIENCE)
        if error:
            raise error
        return result

    def add(self, number, sequence, start=False, end=False):
        """One step of a running sum."""
        value = [GRPC.input("X", np.array([[number]], np.int32))]
        self.send("accumulate_direct", value, sequence_id=sequence, sequence_start=start, sequence_end=end)
        return self.answer().as_numpy("SUM").item()


def test_sequences_go_on_and_none_begins_while_the_server_leaves(delayed):
    """Also on a stream that is open."""
    server = delayed()
    with GRPC.connect(server) as client, HTTP.connect(server) as other:
        sums = Stream(client)
        assert sums.add(1, 7, start=True) == 1
        leave(server)
        assert sums.add(2, 7) == 3
        with pytest.raises(InferenceServerException, match="begins no sequence any more"):
            sums.add(3, 9, start=True)
        value = [HTTP.input("X", np.array([[1]], np.int32))]
        with pytest.raises(InferenceServerException, match="begins no sequence any more") as refused:
            other.infer("accumulate_direct", value, sequence_id=8, sequence_start=True)
        assert refused.value.status() == "503"
        assert other.infer("accumulate_direct", value, sequence_id=7).as_numpy("SUM").item() == 4
        assert sums.add(1, 7, end=True) == 5
        client.stop_stream(cancel_requests=True)


def test_the_delay_is_over_when_no_request_can_be_answered_any_more(start, tmp_path, backend_option):
    """A server whose models all have sequences waits for those that run."""
    folder = tmp_path / "models"
    folder.mkdir()
    models.accumulate(folder, "direct")
    server = start(folder, backend_option, f"--shutdown-delay-secs={LONG_DELAY}").wait_until_ready()
    value = [HTTP.input("X", np.array([[1]], np.int32))]
    with HTTP.connect(server) as client:
        client.infer("accumulate_direct", value, sequence_id=7, sequence_start=True)
        leave(server)
        assert client.infer("accumulate_direct", value, sequence_id=7).as_numpy("SUM").item() == 2
        assert server.process.poll() is None
        assert client.infer("accumulate_direct", value, sequence_id=7, sequence_end=True).as_numpy("SUM").item() == 3
    assert server.process.wait(PATIENCE) == 0
    assert "The last sequence has ended, and no other may begin" in server.log()


@pytest.mark.parametrize("status", [400, 404, 503])
def test_balancers_see_the_status_that_they_understand(start, folder, backend_option, status):
    delay = f"--shutdown-delay-secs={LONG_DELAY}"
    server = start(folder, backend_option, delay, f"--drain-status={status}").wait_until_ready()
    leave(server)
    assert http_status(server.http_port, "/v2/health/ready") == status
    assert http_status(server.http_port, "/v2/health/live") == 200
    server.kill()
    server.expected_code = server.process.returncode


def test_other_statuses_are_refused():
    ended = run_to_end("--drain-status=500")
    assert ended.returncode == 1 and "invalid argument for --drain-status" in ended.stderr, ended.stderr


@pytest.mark.parametrize("delay", [0, SHORT_DELAY])
def test_running_streams_and_sequences_finish(start, folder, backend_option, gate, delay):
    server = start(folder, backend_option, f"--shutdown-delay-secs={delay}").wait_until_ready()
    hold = gate.hold()
    with GRPC.connect(server) as client, GRPC.connect(server) as other, GRPC.connect(server) as idle:
        sums, held, unused = Stream(client), Stream(other), Stream(idle)
        assert [sums.add(1, 7, start=True), sums.add(1, 8, start=True)] == [1, 1]
        unused.send("add_sub", add_sub_inputs(GRPC)[0])
        unused.answer()
        held.send("held", held_inputs(GRPC, hold, 5))
        hold.wait_until_running()
        server.terminate()
        assert sums.add(2, 7) == 3
        eventually(lambda: refuses_connections(server.grpc_port), "gRPC to refuse connections")
        # What runs goes on; the rest is refused.
        assert [sums.add(4, 7), sums.add(1, 8)] == [7, 2]
        with pytest.raises(InferenceServerException, match="stop"):
            sums.add(1, 10, start=True)
        with pytest.raises(InferenceServerException):
            unused.answer()
        hold.release()
        assert held.answer().as_numpy("OUTPUT0").item() == 5
        assert [sums.add(1, 7, end=True), sums.add(1, 8, end=True)] == [8, 3]
        with pytest.raises(InferenceServerException):
            sums.answer()
        for each in (client, other, idle):
            each.stop_stream(cancel_requests=True)
    assert server.process.wait(PATIENCE) == 0


def test_a_stream_waits_for_no_sequence_of_other_connections(start, folder, backend_option):
    """Its own sequences have ended, or nobody can continue them."""
    server = start(folder, backend_option).wait_until_ready()
    with GRPC.connect(server) as client, GRPC.connect(server) as other:
        stream = Stream(client)
        assert [stream.add(1, 7, start=True), stream.add(2, 7, end=True)] == [1, 3]
        value = [GRPC.input("X", np.array([[1]], np.int32))]
        other.infer("accumulate_direct", value, sequence_id=8, sequence_start=True)
        server.terminate()
        with pytest.raises(InferenceServerException):
            stream.answer()
        client.stop_stream(cancel_requests=True)
    assert server.process.wait(PATIENCE) == 0
    assert "sequences have not ended" not in server.log()


def test_a_sequence_that_does_not_end_gets_half_of_the_exit_timeout(start, folder, backend_option):
    server = start(folder, backend_option, "--exit-timeout-secs=6").wait_until_ready()
    with GRPC.connect(server) as client:
        stream = Stream(client)
        assert stream.add(1, 7, start=True) == 1
        begun = time.monotonic()
        server.terminate()
        with pytest.raises(InferenceServerException):
            stream.answer()
        assert server.process.wait(PATIENCE) == 0
        assert time.monotonic() - begun >= 2.9
        client.stop_stream(cancel_requests=True)
    assert "1 sequences have not ended" in server.log()


def test_the_exit_timeout_begins_after_the_delay(delayed_shortly, gate):
    server = delayed_shortly("--exit-timeout-secs=1")
    server.expected_code = 1
    failed = queue.Queue()
    with GRPC.connect(server) as client:
        hold = gate.hold()
        client.async_infer("held", held_inputs(GRPC, hold), lambda result, error: failed.put(error))
        hold.wait_until_running()
        begun = time.monotonic()
        server.terminate()
        server.process.wait(PATIENCE)
        assert time.monotonic() - begun >= SHORT_DELAY + 0.9
        assert failed.get(timeout=PATIENCE) is not None
    assert "Exit timeout expired. Exiting immediately." in server.log()


def test_further_signals_do_not_shorten_the_delay(delayed_shortly):
    server = delayed_shortly()
    begun = time.monotonic()
    leave(server)
    for _ in range(3):
        server.terminate()
    assert server.process.wait(PATIENCE) == 0
    assert time.monotonic() - begun >= SHORT_DELAY


@pytest.mark.parametrize("value", ["-1", "soon", "99999999999999999999"])
def test_a_delay_is_a_number_of_seconds(value):
    ended = run_to_end(f"--shutdown-delay-secs={value}")
    assert ended.returncode == 1 and "shutdown-delay-secs" in ended.stderr, ended.stderr


def infer_request():
    tensor = {"datatype": "INT32", "shape": [1, 16], "data": list(range(16))}
    content = json.dumps({"inputs": [tensor | {"name": name} for name in ("INPUT0", "INPUT1")]}).encode()
    head = "POST /v2/models/add_sub/infer HTTP/1.1\r\nHost: balancer\r\nConnection: close\r\nContent-Length: {}\r\n\r\n"
    return head.format(len(content)).encode() + content


def test_servers_that_are_replaced_behind_a_balancer_lose_no_request(tmp_path, folder, backend_option, threads):
    """Each request that the callers send is answered with 200, while one of two servers after the other is replaced."""
    done = threading.Event()
    fresh, kept_http, kept_grpc = (collections.Counter() for _ in range(3))
    with (
        Fleet(tmp_path, folder, backend_option, f"--shutdown-delay-secs={DELAY_BEHIND_BALANCER}") as fleet,
        Balancer(fleet.ports) as balancer,
    ):

        def wait_until_used(*indices):
            eventually(lambda: all(balancer.is_ready[index] for index in indices), "the balancer to use the server")

        def ask():
            return asyncio.run(ask_on_new_connections(balancer.http, infer_request(), PER_SECOND, done, fresh))

        wait_until_used(0, 1)
        callers = [threads.submit(keep_asking, HTTP, kept, balancer.http, done, kept_http)]
        callers += [threads.submit(keep_asking, GRPC, kept, balancer.grpc, done, kept_grpc)]
        asking = threads.submit(ask)
        try:
            eventually(lambda: fresh["answered"] > PER_SECOND, "the load to be under way")
            for cycle in range(CYCLES):
                fleet.replace(cycle % 2)
                wait_until_used(cycle % 2)
        finally:
            done.set()
        asked, seconds = asking.result(PATIENCE)
        for caller in callers:
            caller.result(PATIENCE)
    print(f"{CYCLES} stops; {asked} new connections in {seconds:.1f} s, {asked / seconds:.0f}/s")
    outcomes = {"new connections": fresh, "HTTP": kept_http, "gRPC": kept_grpc}
    print({name: dict(counted.most_common(5)) for name, counted in outcomes.items()})
    failed = {name: counted.most_common(5) for name, counted in outcomes.items() if set(counted) != {"answered"}}
    assert not failed and not balancer.refused, (failed, balancer.refused)
