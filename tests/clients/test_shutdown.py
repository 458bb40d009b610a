"""SIGTERM: what was accepted is answered, what comes later is refused, and nothing idle holds the server up.

When is a request accepted? When the server has taken it from the connection. A request that is written to an idle
connection at the moment at which the server closes it never was: the client sees the connection end before any byte
of an answer, and the model has not run it. So the storm below counts on both sides: clients count right answers, and
the server, which a last long request keeps from ending, tells how many requests its model has run. Both must agree.
"""

import contextlib
import http.client
import json
import queue
import shutil
import signal
import socket
import threading
import time
from collections import Counter

import adders
import grpc as grpc_library
import numpy as np
import processes
import pytest
import repository as models
from adders import EXPLICIT, answer, refusal, repository_of
from held import held_inputs
from protocols import GRPC, HTTP, add_sub_inputs, metric, pending
from serving import PATIENCE, command, environment, eventually, refuses_connections
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException


@pytest.fixture
def own(start, tmp_path, gate, backend_option):
    """A server of one's own with a quick and a held model."""
    folder = tmp_path / "models"
    folder.mkdir()
    models.add_sub(folder)
    gate.write(folder, "held", "max_batch_size: 1\ndynamic_batching {}\n")
    return lambda *options: start(folder, backend_option, *options).wait_until_ready()


def end(server, number=signal.SIGTERM):
    """Tells the server to stop. If something holds it up, the exit timeout ends it with another status."""
    server.process.send_signal(number)
    assert server.process.wait(PATIENCE) == 0, server.log_end()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_an_idle_server_ends_at_once(own, number):
    end(own(), number)


@pytest.mark.parametrize("mode", ["explicit", "poll"])
def test_a_server_whose_reload_has_failed_ends_at_once(start, tmp_path, mode):
    """The old copy serves until then."""
    folder = repository_of(tmp_path, "a")
    explicit = mode == "explicit"
    options = (EXPLICIT, "--load-model=a") if explicit else ("--model-control-mode=poll", "--repository-poll-secs=1")
    server = start(folder, *options)
    with HTTP.connect(server) as client:
        (folder / "a" / "1" / "model.onnx").write_text("this is no model")
        if explicit:
            refusal(client.load_model, "a")
        eventually(lambda: "failed to load 'a' version 1" in server.log(), "the failure")
        assert answer(HTTP, client, "a") == 1
    end(server)


def test_idle_connections_do_not_hold_the_server_up(own):
    server = own()
    with HTTP.connect(server) as http_client, GRPC.connect(server) as grpc_client:
        http_client.infer("add_sub", add_sub_inputs(HTTP)[0])
        grpc_client.infer("add_sub", add_sub_inputs(GRPC)[0])
        # One that never said a word, too.
        with socket.create_connection(("127.0.0.1", server.http_port)):
            end(server)


def test_a_stream_on_which_nothing_is_under_way_does_not_hold_the_server_up(own):
    server = own()
    with GRPC.connect(server) as client:
        answers = queue.Queue()
        client.start_stream(lambda result, error: answers.put((result, error)))
        client.async_stream_infer("add_sub", add_sub_inputs(GRPC)[0])
        assert answers.get(timeout=PATIENCE)[1] is None
        end(server)
        client.stop_stream(cancel_requests=True)


def test_whatever_waits_or_runs_is_answered_and_newcomers_are_refused(own, threads, gate):
    """Eight requests: over HTTP, over gRPC, and on a stream; one runs, seven wait."""
    server = own()
    hold = gate.hold()

    def ask(protocol, x):
        with protocol.connect(server) as client:
            return client.infer("held", held_inputs(protocol, hold, x)).as_numpy("OUTPUT0").item()

    futures = [threads.submit(ask, (HTTP, GRPC)[x % 2], x) for x in range(6)]
    streamed = queue.Queue()
    with GRPC.connect(server) as client:
        client.start_stream(lambda result, error: streamed.put((result, error)))
        for x in (6, 7):
            client.async_stream_infer("held", held_inputs(GRPC, hold, x))
        eventually(lambda: pending(server, "held") == 7, "seven waiting requests")
        server.terminate()
        eventually(lambda: refuses_connections(server.http_port), "HTTP to refuse connections")
        eventually(lambda: refuses_connections(server.grpc_port), "gRPC to refuse connections")
        assert not any(future.done() for future in futures)
        assert metric(server, "nv_inference_request_failure", model="held", reason="CANCELED", version=1) == 0
        hold.release()
        assert [future.result(PATIENCE) for future in futures] == list(range(6))
        answers = [streamed.get(timeout=PATIENCE) for _ in (6, 7)]
        assert [error for _, error in answers] == [None, None]
        assert [result.as_numpy("OUTPUT0").item() for result, _ in answers] == [6, 7]
        client.stop_stream(cancel_requests=True)
    assert server.process.wait(PATIENCE) == 0


def test_a_busy_connection_is_told_that_it_will_be_closed(own, gate):
    server = own()
    hold = gate.hold()
    content, json_length = HTTP.library.InferenceServerClient.generate_request_body(held_inputs(HTTP, hold, 3))
    connection = http.client.HTTPConnection(server.http, timeout=PATIENCE)
    connection.request("POST", "/v2/models/held/infer", content, {"Inference-Header-Content-Length": str(json_length)})
    hold.wait_until_running()
    server.terminate()
    eventually(lambda: refuses_connections(server.http_port), "HTTP to refuse connections")
    hold.release()
    answer = connection.getresponse()
    assert (answer.status, answer.headers["Connection"].lower()) == (200, "close")
    answer.read()
    server.process.wait(PATIENCE)


def test_a_server_that_waits_says_for_what_and_a_second_interrupt_ends_it_at_once(own, gate):
    server = own("--exit-timeout-secs=3600")
    server.expected_code = 130
    with GRPC.connect(server) as client:
        hold = gate.hold()
        client.async_infer("held", held_inputs(GRPC, hold), lambda result, error: None)
        hold.wait_until_running()
        server.process.send_signal(signal.SIGINT)
        server.wait_for_log("s for 1 request of model 'held' (version 1); Ctrl-C ends it at once")
        server.process.send_signal(signal.SIGINT)
        server.process.wait(PATIENCE)


def test_a_request_that_takes_longer_than_the_exit_may_is_given_up(own, gate):
    server = own("--exit-timeout-secs=1")
    server.expected_code = 1
    failed = queue.Queue()
    with GRPC.connect(server) as client:
        hold = gate.hold()
        for _ in range(2):
            client.async_infer("held", held_inputs(GRPC, hold), lambda result, error: failed.put(error))
        eventually(lambda: pending(server, "held") == 1, "one waiting request")
        begun = time.monotonic()
        server.terminate()
        server.process.wait(PATIENCE)
        assert time.monotonic() - begun >= 0.9
        assert failed.get(timeout=PATIENCE) is not None
    assert "failed to stop server: Internal - Exit timeout expired. Exiting immediately." in server.log()


@contextlib.contextmanager
def starting(tmp_path, repository, *options):
    """A process that has only begun to start. It must end by itself."""
    log = tmp_path / "starting.log"
    with open(log, "wb") as output:
        line = command(repository, *options)
        with processes.running(line, env=environment(), stdout=output, stderr=processes.STDOUT) as process:
            yield process, log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_server_that_loads_its_models_obeys_a_signal_at_once(tmp_path, gate, backend_option, number):
    """One model is loaded, and the load of another hangs."""
    folder = tmp_path / "models"
    folder.mkdir()
    models.add_sub(folder)
    hold = gate.hold()
    gate.write(folder, "slow", "", load_hold=hold)
    with starting(tmp_path, folder, backend_option, "--shutdown-delay-secs=3600") as (process, log):
        hold.wait_until_running()
        eventually(lambda: "successfully loaded 'add_sub'" in log.read_text(), "the other model")
        process.send_signal(number)
        assert process.wait(PATIENCE) == 0, log.read_text()
    text = log.read_text()
    assert "successfully unloaded 'add_sub' version 1" in text and "panicked" not in text


def test_a_server_ends_at_once_after_a_reload_that_has_failed(start, tmp_path):
    folder = adders.repository_of(tmp_path, "a")
    server = start(folder, adders.EXPLICIT, "--load-model=a")
    with HTTP.connect(server) as client:
        (folder / "a" / "1" / "model.onnx").write_bytes(b"this is no model")
        with pytest.raises(InferenceServerException, match="load failed for model 'a'"):
            client.load_model("a")
        assert adders.answer(HTTP, client, "a") == 1
    end(server)


@pytest.mark.parametrize("mode", ["explicit", "poll"])
def test_a_load_that_hangs_does_not_hold_the_server_up(start, tmp_path, gate, backend_option, threads, mode):
    """A model is being reloaded. A request of its old copy, and a sequence of another model on a stream, finish."""
    folder = tmp_path / "models"
    folder.mkdir()
    models.accumulate(folder, "direct")
    gate.write(folder, "held", "max_batch_size: 1\n")
    polling = ("--repository-poll-secs=1", "--repository-settle-ms=0")
    options = [f"--model-control-mode={mode}", *(polling if mode == "poll" else ("--load-model=*",))]
    server = start(folder, backend_option, *options).wait_until_ready()
    load_hold, hold = gate.hold(), gate.hold()
    with GRPC.connect(server) as client, HTTP.connect(server) as http_client:
        answers = queue.Queue()
        client.start_stream(lambda result, error: answers.put((result, error)))

        def add(number, **sequence):
            value = [GRPC.input("X", np.array([[number]], np.int32))]
            client.async_stream_infer("accumulate_direct", value, sequence_id=7, **sequence)
            result, error = answers.get(timeout=PATIENCE)
            assert error is None, error
            return result.as_numpy("SUM").item()

        def ask(protocol, asked):
            return asked.infer("held", held_inputs(protocol, hold, 3)).as_numpy("OUTPUT0").item()

        assert add(1, sequence_start=True) == 1
        running = [threads.submit(ask, HTTP, http_client)]
        hold.wait_until_running()
        gate.write(tmp_path, "held", "max_batch_size: 1\n", load_hold=load_hold)
        shutil.copy(tmp_path / "held" / "config.pbtxt", folder / "held")
        loads = []
        if mode == "explicit":
            loads = [threads.submit(GRPC.connect(server).load_model, "held")]
        load_hold.wait_until_running()
        server.terminate()
        # The caller of the load waits for nothing.
        for load in loads:
            with pytest.raises(InferenceServerException, match="Server exiting"):
                load.result(PATIENCE)
        eventually(lambda: refuses_connections(server.grpc_port), "gRPC to refuse connections")
        assert add(2) == 3
        hold.release()
        assert [request.result(PATIENCE) for request in running] == [3]
        assert add(3, sequence_end=True) == 6
        assert server.process.wait(PATIENCE) == 0
        client.stop_stream(cancel_requests=True)


class Storm:
    """Callers that ask again as soon as they are answered, until the server is gone; and what became of it all."""

    # Of a request that got no answer. Anything else is an accepted request that was lost.
    NOT_ACCEPTED = {"connection refused", "connection ended before any answer", "unavailable"}

    def __init__(self, server):
        self.server = server
        self.stopping = threading.Event()
        self.outcomes = Counter()
        self.details = Counter()
        self._lock = threading.Lock()

    def count(self, outcome, detail=None):
        with self._lock:
            self.outcomes[outcome] += 1
            if detail:
                self.details[detail] += 1
        # Before SIGTERM nothing but answers is good.
        assert outcome == "answered" or self.stopping.is_set(), (outcome, detail)

    def http_caller(self, seed):
        """One keep-alive connection; a new one whenever it was closed."""
        random = np.random.default_rng(seed)
        connection = http.client.HTTPConnection(self.server.http, timeout=PATIENCE)
        while True:
            numbers = random.integers(0, 1000, 16).tolist()
            tensor = {"datatype": "INT32", "shape": [1, 16], "data": numbers}
            request = {"inputs": [tensor | {"name": name} for name in ("INPUT0", "INPUT1")]}
            try:
                connection.request("POST", "/v2/models/add_sub/infer", json.dumps(request))
                begun = connection.sock.recv(1, socket.MSG_PEEK)
            except ConnectionRefusedError:
                return self.count("connection refused")
            except (ConnectionResetError, BrokenPipeError):
                begun = b""
            if not begun:
                self.count("connection ended before any answer")
                connection.close()
                continue
            # From here on an answer has begun and must be whole and right.
            answer = connection.getresponse()
            content = json.loads(answer.read())
            if answer.status == 503:
                self.count("unavailable", content["error"])
                continue
            assert answer.status == 200, content
            assert content["outputs"][0]["data"] == [2 * number for number in numbers]
            self.count("answered")

    def grpc_caller(self, stub, seed):
        """All callers share a channel."""
        random = np.random.default_rng(seed)
        while True:
            numbers = random.integers(0, 1000, 16).astype(np.int32)
            request = service_pb2.ModelInferRequest(model_name="add_sub")
            for name in ("INPUT0", "INPUT1"):
                request.inputs.add(name=name, datatype="INT32", shape=[1, 16])
                request.raw_input_contents.append(numbers.tobytes())
            try:
                answer = stub.ModelInfer(request)
            except grpc_library.RpcError as error:
                assert error.code() == grpc_library.StatusCode.UNAVAILABLE, error
                return self.count("unavailable", error.details())
            np.testing.assert_array_equal(np.frombuffer(answer.raw_output_contents[0], np.int32), 2 * numbers)
            self.count("answered")


@pytest.mark.parametrize("seed", range(3))
def test_a_storm_of_requests_loses_none_that_was_accepted(own, threads, gate, seed):
    server = own()
    storm = Storm(server)
    with GRPC.connect(server) as keeper, grpc_library.insecure_channel(server.grpc) as channel:
        kept = queue.Queue()
        hold = gate.hold()
        keeper.async_infer("held", held_inputs(GRPC, hold, 5), lambda result, error: kept.put((result, error)))
        hold.wait_until_running()
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        callers = [threads.submit(storm.http_caller, [seed, number]) for number in range(8)]
        callers += [threads.submit(storm.grpc_caller, stub, [seed, number]) for number in range(8, 16)]
        eventually(lambda: storm.outcomes["answered"] > 200, "the storm to be under way")
        storm.stopping.set()
        server.terminate()
        for caller in callers:
            caller.result(PATIENCE)

        assert kept.empty(), "the request that keeps the server up ended before the storm did"
        run = metric(server, "nv_inference_request_success", model="add_sub", version=1)
        hold.release()
        result, error = kept.get(timeout=PATIENCE)
        assert error is None and result.as_numpy("OUTPUT0").item() == 5
    print(dict(storm.outcomes), dict(storm.details))
    assert set(storm.outcomes) <= Storm.NOT_ACCEPTED | {"answered"}
    assert storm.outcomes["answered"] == run
    # Each caller was turned away in the end, and hardly more often: a connection can be caught idle only once.
    turned_away = sum(storm.outcomes[outcome] for outcome in Storm.NOT_ACCEPTED)
    assert 16 <= turned_away <= 3 * 16
    assert server.process.wait(PATIENCE) == 0
