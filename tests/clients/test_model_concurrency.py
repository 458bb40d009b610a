"""Many clients that load, unload and ask at the same time: every answer is right, and the server keeps no resources."""

import json
import os
import random
import re
import socket
import threading
from collections import Counter

import adders
import numpy as np
import pytest
from adders import EXPLICIT, answer, index, write_adder
from protocols import GRPC, HTTP
from serving import PATIENCE, eventually
from tritonclient.utils import InferenceServerException



@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    return folder


class Callers:
    """Threads that ask a model until they are told to stop. Each answer must be one that the model may give by then."""

    def __init__(self, server, threads):
        self.stopping = threading.Event()
        self.answers = Counter()
        self.callers = [threads.submit(self._ask, server, (HTTP, GRPC)[number % 2], number) for number in range(6)]

    def _ask(self, server, protocol, number):
        latest = 0
        with protocol.connect(server) as client:
            while not self.stopping.is_set():
                told = answer(protocol, client, "a")
                # Nobody meets an older copy again.
                assert told >= latest, (told, latest)
                latest = told
                self.answers[number] += 1

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.stopping.set()
        for caller in self.callers:
            caller.result(PATIENCE)

    def wait_for_answers(self):
        """Waits until each caller has had another answer."""
        before = dict(self.answers)
        for number, caller in enumerate(self.callers):
            more = before.get(number, 0) + 1
            eventually(lambda: caller.done() or self.answers[number] > more, "an answer")  # noqa: B023
            assert not caller.done(), caller.exception()




@pytest.mark.parametrize("by", ["files", "versions"])
def test_no_request_fails_while_a_model_is_reloaded(start, folder, threads, by):
    """The model is replaced, or its versions are; each caller sees the numbers grow."""
    write_adder(folder, "a", 1)
    server = start(folder, EXPLICIT, "--load-model=a")
    with HTTP.connect(server) as client, Callers(server, threads) as callers:
        for number in range(2, 22):
            callers.wait_for_answers()
            write_adder(folder, "a", number, version=1 if by == "files" else number)
            client.load_model("a")
            assert answer(HTTP, client, "a") == number
    print(dict(callers.answers))


class SlowRequest:
    """A request for the model `a` whose header the server has read and whose body is still to come."""

    def __init__(self, server):
        tensor = {"name": "X", "datatype": "FP32", "shape": [1], "data": [0]}
        self.body = json.dumps({"inputs": [tensor]}).encode()
        self.connection = socket.create_connection(("127.0.0.1", server.http_port), timeout=PATIENCE)
        head = f"Host: localhost\r\nExpect: 100-continue\r\nConnection: close\r\nContent-Length: {len(self.body)}"
        self.connection.sendall(f"POST /v2/models/a/infer HTTP/1.1\r\n{head}\r\n\r\n".encode())
        told = self.connection.recv(1024)
        assert told.startswith(b"HTTP/1.1 100 "), told

    def finish(self):
        """Sends the body. Returns the status and what was answered: a number, or the text of an error."""
        with self.connection, self.connection.makefile("rb") as answer:
            self.connection.sendall(self.body)
            head, _, body = answer.read().partition(b"\r\n\r\n")
        told = json.loads(body)
        return int(head.split()[1]), told.get("error") or told["outputs"][0]["data"][0]


@pytest.fixture
def slow(start, folder):
    """A server with a model that adds 1, a client, and a request whose body is still to come."""
    write_adder(folder, "a", 1)
    server = start(folder, EXPLICIT, "--load-model=a")
    with HTTP.connect(server) as client:
        yield client, SlowRequest(server)


def test_a_request_that_is_sent_during_reloads_is_answered(slow, folder):
    client, request = slow
    for number in (2, 3, 4):
        write_adder(folder, "a", number)
        client.load_model("a")
    status, told = request.finish()
    assert status == 200 and told in {1, 2, 3, 4}, told


def test_a_request_that_is_sent_while_the_default_version_changes_is_answered(slow, folder):
    client, request = slow
    write_adder(folder, "a", 2, version=2)
    client.load_model("a")
    status, told = request.finish()
    assert status == 200 and told in {1, 2}, told


def test_a_request_that_is_sent_while_the_model_is_unloaded_and_loaded_is_answered(slow):
    client, request = slow
    client.unload_model("a")
    client.load_model("a")
    assert request.finish() == (200, 1)


def test_a_request_that_is_sent_while_the_model_is_unloaded_is_answered_or_has_the_text_of_such_models(slow):
    client, request = slow
    client.unload_model("a")
    # The old copy may still take a request for a moment after the unload.
    refused = (404, "Request for unknown model: 'a' has no available versions")
    assert request.finish() in [refused, (200, 1)]


class Operations:
    """Random operations on models `m0` to `m3`. `mN` adds N, or 10 + N with given files."""

    MODELS = 4
    REFUSALS = re.compile(
        r"(404|StatusCode.NOT_FOUND): Request for unknown model: 'm\d' (is not found|has no available versions)"
        r"|(503|StatusCode.UNAVAILABLE): Request for unknown model: 'm\d' version 1 is not at ready state"
        r"|(404|StatusCode.NOT_FOUND): Request for unknown model: 'm\d' version 1 is not found"
    )
    FAILED_LOAD = re.compile(
        r"(400|StatusCode.INVALID_ARGUMENT): load failed for model 'm\d': version 1 is at UNAVAILABLE state: .*;\n"
    )

    def __init__(self, server, seed):
        self.random = random.Random(seed)
        self.server, self.protocol = server, (HTTP, GRPC)[seed % 2]
        self.done = Counter()
        self.files = [
            {"file:1/model.onnx": adders.adder(10 + number).SerializeToString()} for number in range(self.MODELS)
        ]
        self.weights = {
            self.infer: 10,
            self.load: 4,
            self.load_config: 1,
            self.load_files: 2,
            self.load_garbage: 1,
            self.unload: 3,
            self.look: 1,
        }

    def run(self, count):
        options = {"network_timeout": PATIENCE} if self.protocol is HTTP else {}
        with self.protocol.connect(self.server, **options) as client:
            for operation in self.random.choices(list(self.weights), self.weights.values(), k=count):
                number = self.random.randrange(self.MODELS)
                operation(client, number, f"m{number}")
                self.done[operation.__name__] += 1
        return self.done

    def infer(self, client, number, name):
        try:
            told = answer(self.protocol, client, name, self.random.choice(["", "1"]))
        except InferenceServerException as error:
            assert self.REFUSALS.fullmatch(f"{error.status()}: {error.message()}"), error
            self.done["refused"] += 1
        else:
            assert told in (number, 10 + number)

    def load(self, client, number, name):
        client.load_model(name)

    def load_config(self, client, number, name):
        client.load_model(name, config=adders.JSON_CONFIG)

    def load_files(self, client, number, name):
        client.load_model(name, config=adders.JSON_CONFIG, files=self.files[number])

    def load_garbage(self, client, number, name):
        with pytest.raises(InferenceServerException) as error:
            client.load_model(name, config=adders.JSON_CONFIG, files={"file:1/model.onnx": b"this is no model"})
        assert self.FAILED_LOAD.fullmatch(f"{error.value.status()}: {error.value.message()}"), error.value

    def unload(self, client, number, name):
        client.unload_model(name)

    def look(self, client, number, name):
        for lines in index(self.protocol, client).values():
            assert {state for _, state, _ in lines} <= {None, "LOADING", "READY", "UNLOADING", "UNAVAILABLE"}


def resources(server):
    """How many threads and descriptors the server has."""
    process = f"/proc/{server.process.pid}"
    return np.array([len(os.listdir(f"{process}/task")), len(os.listdir(f"{process}/fd"))])


def unload_all(server):
    with HTTP.connect(server) as client:
        for number in range(Operations.MODELS):
            client.unload_model(f"m{number}")

        def at_rest():
            return {line[1:] for lines in index(HTTP, client).values() for line in lines} <= {("UNAVAILABLE", "unloaded")}

        eventually(at_rest, "all models to be unloaded")


def test_random_operations_keep_no_threads_descriptors_or_files(start, folder, tmp_path, threads):
    """A thread or a descriptor lost for each load would be hundreds."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    for number in range(Operations.MODELS):
        write_adder(folder, f"m{number}", number)
    server = start(folder, EXPLICIT, "--load-model=*", variables={"TMPDIR": str(temporary)})
    Operations(server, 100).run(20)
    unload_all(server)
    before = resources(server)

    running = [threads.submit(Operations(server, seed).run, 200) for seed in range(8)]
    done = sum((thread.result(PATIENCE) for thread in running), Counter())
    print(dict(done))
    assert done["refused"] < done["infer"]

    unload_all(server)
    # Idle threads of a pool end later.
    eventually(lambda: (resources(server) <= before + [24, 8]).all(), f"{before} threads and descriptors or few more")
    eventually(lambda: not list(temporary.glob("nereid-model-*")), "the given files to be removed")
    with GRPC.connect(server) as client:
        for number in range(Operations.MODELS):
            client.load_model(f"m{number}")
            assert answer(GRPC, client, f"m{number}") == number
        assert client.is_server_ready()
