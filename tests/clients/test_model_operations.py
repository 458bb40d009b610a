"""Random operations of many clients on the same models: each answer is one that a reference model allows, and the server
keeps no resources.

The short form does 1,200 operations, the full one (NEREID_TORTURE=full) 10,000.
"""

import bisect
import math
import os
import queue
import random
import re
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass

import adders
import numpy as np
import pytest
from adders import EXPLICIT, answer, index, write_adder
from protocols import GRPC, HTTP
from serving import PATIENCE, eventually, size
from tritonclient.utils import InferenceServerException

MODELS = 4
CLIENTS = 8
OPERATIONS = size(1_200, 10_000)

# A configuration that selects version 1; the file of the configuration selects version 2.
FIRST_VERSION = adders.JSON_CONFIG.replace("{", '{"version_policy": {"specific": {"versions": [1]}}, ', 1)


@dataclass(frozen=True)
class Event:
    """Something that happened to a model at a moment between `start` and `end`."""

    kind: str
    start: float
    end: float
    # What the model adds if it is loaded by this event, or with the file that this event has written.
    number: float | None = None


class Reference:
    """What a model may answer, given all that was done to it.

    The order of events that overlap is unknown, so all orders are allowed. If they do not overlap, one answer is left.

    | event | afterwards the model answers |
    |---|---|
    | write | as before; a file with another number waits for a load |
    | load | the number of the file, unless a configuration was given and the file is the same since then |
    | config | the number of version 1 |
    | count | the number of the file, with other instances |
    | files | the number of the given file |
    | unload | nothing |
    """

    def __init__(self, events):
        self.events = defaultdict(list)
        for event in sorted(events, key=lambda event: event.start):
            self.events[event.kind].append(event)
        # Number, first and last moment at which a copy that adds it may serve.
        self.copies = defaultdict(list)
        for event in self.events["files"]:
            self._may_serve(event.number, event, self._first_end(event, "unload", "files", "config", "load", "count"))
        for event in self.events["config"]:
            over = min(self._first_end(event, "unload", "files", "count"), self._loaded_after_a_write(event))
            self._may_serve(event.number, event, over)
        for event in self.events["load"] + self.events["count"]:
            numbers = [] if self._keeps_configuration(event) else self._numbers_of_file(event.start, event.end)
            for number in numbers:
                over = self._first_end(event, "unload", "files", "config")
                self._may_serve(number, event, min(over, self._loaded_without(number, event)))
        # First and last moment at which the model may be unloaded.
        self.gaps = [
            (event.start, self._first_end(event, "load", "config", "count", "files")) for event in self.events["unload"]
        ]

    def allows(self, number, start, end):
        """Whether a request in this time may have had this answer; None stands for a refusal."""
        windows = self.gaps if number is None else self.copies[number]
        return any(first <= end and last >= start for first, last in windows)

    def _may_serve(self, number, event, over):
        self.copies[number].append((event.start, over))

    def _first_end(self, event, *kinds):
        """When the first of the events has ended that certainly followed this one."""
        return min((self._following(kind, event.end) for kind in kinds), default=math.inf)

    def _following(self, kind, moment):
        events = self.events[kind]
        first = bisect.bisect_left(events, moment, key=lambda event: event.start)
        return min((event.end for event in events[first : first + CLIENTS]), default=math.inf)

    def _loaded_after_a_write(self, event):
        """When the first load has ended that certainly found another file than this event."""
        written = self._following("write", event.end)
        return self._following("load", written)

    def _loaded_without(self, number, event):
        """When the first later load has ended that certainly did not find this number."""
        gone = self._last_moment_of(number)
        return min(self._following(kind, max(event.end, gone)) for kind in ("load", "count"))

    def _last_moment_of(self, number):
        write = next(write for write in self.events["write"] if write.number == number)
        return self._following("write", write.end)

    def _keeps_configuration(self, event):
        """Whether a load certainly found the files as they were when a configuration of version 1 was given."""
        if event.kind == "count":
            return False
        before = [config for config in self.events["config"] if config.end <= event.start]
        return bool(before) and not any(
            other.end >= before[-1].start and other.start <= event.end
            for kind in ("unload", "files", "write", "count")
            for other in self.events[kind]
        )

    def _numbers_of_file(self, start, end):
        """The numbers that the file may have had in this time."""
        writes = [write for write in self.events["write"] if write.start <= end]
        return [write.number for write in writes if self._following("write", write.end) >= start]


class History:
    """All that was done to the models, and all that they answered."""

    def __init__(self):
        self.lock = threading.Lock()
        self.events = defaultdict(list)
        self.asked = defaultdict(list)
        self.last_number = 100
        self.done = Counter()

    def new_number(self):
        with self.lock:
            self.last_number += 1
            return self.last_number

    def happened(self, kind, name, start, number=None):
        event = Event(kind, start, time.monotonic(), number)
        with self.lock:
            self.events[name].append(event)

    def was_told(self, name, start, number):
        with self.lock:
            self.asked[name].append((number, start, time.monotonic()))

    def wrong_answers(self):
        wrong = []
        for name, asked in self.asked.items():
            reference = Reference(self.events[name])
            wrong += [(name, *told) for told in asked if not reference.allows(*told)]
        return wrong


class StreamAnswers:
    """Asks over a stream of gRPC. Counts the responses to each request."""

    def __init__(self, client):
        self.client, self.responses, self.sent = client, queue.Queue(), 0
        client.start_stream(lambda result, error: self.responses.put((result, error)))

    def __call__(self, name):
        self.sent += 1
        inputs = [GRPC.input("X", np.zeros(1, np.float32))]
        self.client.async_stream_infer(name, inputs, request_id=str(self.sent))
        result, error = self.responses.get(timeout=PATIENCE)
        if error:
            raise error
        assert result.get_response().id == str(self.sent)
        return result.as_numpy("Y").item()

    def stop(self):
        self.client.stop_stream()
        assert self.responses.empty(), "a second response to a request"


class Operations:
    """Random operations of one client on the models `m0`, `m1` and so on.

    In the repository version 1 of a model adds its index, and version 2 a number that never comes again.
    """

    REFUSALS = re.compile(
        r"((404|StatusCode.NOT_FOUND): Request for unknown model: 'm\d' (is not found|has no available versions)"
        r"|(503|StatusCode.UNAVAILABLE): Request for unknown model: 'm\d' version [12] is not at ready state)(: .*)?"
    )
    FAILED_LOAD = re.compile(
        r"(400|StatusCode.INVALID_ARGUMENT): load failed for model 'm\d': version 1 is at UNAVAILABLE state: .*;\n"
        r"|(500|StatusCode.INTERNAL): failed to load 'm\d', failed to poll from model repository: .*nonsense.*"
    )
    FAILING = (
        {"config": adders.JSON_CONFIG, "files": {"file:1/model.onnx": b"this is no model"}},
        {"config": '{"nonsense": 1}'},
    )

    def __init__(self, server, folder, history, seed):
        self.random = random.Random(seed)
        self.server, self.folder, self.history, self.seed = server, folder, history, seed
        self.protocol = (HTTP, GRPC)[seed % 2]
        self.weights = {
            self.infer: 14,
            self.write: 3,
            self.load: 4,
            self.load_config: 2,
            self.load_count: 3,
            self.load_files: 2,
            self.load_badly: 1,
            self.unload: 2,
            self.look: 1,
        }

    def run(self, count):
        options = {"network_timeout": PATIENCE} if self.protocol is HTTP else {}
        with self.protocol.connect(self.server, **options) as client:
            stream = StreamAnswers(client) if self.seed % 4 == 3 else None
            self.ask = stream or (lambda name: answer(self.protocol, client, name))
            for operation in self.random.choices(list(self.weights), self.weights.values(), k=count):
                index = self.random.randrange(MODELS)
                operation(client, index, f"m{index}")
                with self.history.lock:
                    self.history.done[operation.__name__] += 1
            if stream:
                stream.stop()

    def infer(self, client, index, name):
        start = time.monotonic()
        try:
            told = self.ask(name)
        except InferenceServerException as error:
            status = error.status() or "StatusCode.NOT_FOUND"
            assert self.REFUSALS.fullmatch(f"{status}: {error.message()}"), error
            told = None
        self.history.was_told(name, start, told)

    def write(self, client, index, name):
        number = self.history.new_number()
        new = self.folder / name / "2" / f"{number}.tmp"
        new.write_bytes(adders.adder(number).SerializeToString())
        start = time.monotonic()
        new.rename(new.with_name("model.onnx"))
        self.history.happened("write", name, start, number)

    def load(self, client, index, name):
        start = time.monotonic()
        client.load_model(name)
        self.history.happened("load", name, start)

    def load_config(self, client, index, name):
        start = time.monotonic()
        client.load_model(name, config=FIRST_VERSION)
        self.history.happened("config", name, start, index)

    def load_count(self, client, index, name):
        """Often in place: it may be the only difference from what is loaded."""
        groups = f'{{"instance_group": [{{"count": {self.random.randint(1, 4)}, "kind": "KIND_CPU"}}], '
        start = time.monotonic()
        client.load_model(name, config=adders.JSON_CONFIG.replace("{", groups, 1))
        self.history.happened("count", name, start)

    def load_files(self, client, index, name):
        number = self.history.new_number()
        content = adders.adder(number).SerializeToString()
        start = time.monotonic()
        client.load_model(name, config=adders.JSON_CONFIG, files={"file:1/model.onnx": content})
        self.history.happened("files", name, start, number)

    def load_badly(self, client, index, name):
        with pytest.raises(InferenceServerException) as error:
            client.load_model(name, **self.random.choice(self.FAILING))
        assert self.FAILED_LOAD.fullmatch(f"{error.value.status()}: {error.value.message()}"), error.value

    def unload(self, client, index, name):
        start = time.monotonic()
        client.unload_model(name)
        self.history.happened("unload", name, start)

    def look(self, client, index_, name):
        for lines in index(self.protocol, client).values():
            assert {state for _, state, _ in lines} <= {None, "LOADING", "READY", "UNLOADING", "UNAVAILABLE"}


def resources(server):
    """How many threads and descriptors the server has."""
    process = f"/proc/{server.process.pid}"
    return np.array([len(os.listdir(f"{process}/task")), len(os.listdir(f"{process}/fd"))])


def unload_all(server):
    with HTTP.connect(server) as client:
        for index_ in range(MODELS):
            client.unload_model(f"m{index_}")

        def at_rest():
            return {line[1:] for lines in index(HTTP, client).values() for line in lines} <= {("UNAVAILABLE", "unloaded")}

        eventually(at_rest, "all models to be unloaded")


@pytest.fixture
def served(start, tmp_path):
    """A server that has loaded all models, its repository, its directory of temporary files, and the history."""
    folder, temporary, history = tmp_path / "models", tmp_path / "temporary", History()
    for made in (folder, temporary):
        made.mkdir()
    for number in range(MODELS):
        write_adder(folder, f"m{number}", number)
        write_adder(folder, f"m{number}", number, 2)
        Operations(None, folder, history, 0).write(None, number, f"m{number}")
    begun = time.monotonic()
    server = start(folder, EXPLICIT, "--load-model=*", variables={"TMPDIR": str(temporary)})
    for number in range(MODELS):
        history.happened("load", f"m{number}", begun)
    return server, folder, temporary, history


def test_operations_of_one_client_have_one_possible_answer(served):
    """One after the other: the reference model then allows only one answer."""
    server, folder, _, history = served
    Operations(server, folder, history, 50).run(size(150, 2_000))
    print(dict(history.done))
    assert history.wrong_answers() == []


def test_each_answer_comes_from_a_copy_that_was_ready_and_no_resources_are_kept(served, threads):
    """A thread or a descriptor lost for each load would be hundreds."""
    server, folder, temporary, history = served
    Operations(server, folder, history, 100).run(30)
    unload_all(server)
    for index_ in range(MODELS):
        history.happened("unload", f"m{index_}", time.monotonic())
    before = resources(server)

    begun = time.monotonic()
    running = [
        threads.submit(Operations(server, folder, history, seed).run, OPERATIONS // CLIENTS) for seed in range(CLIENTS)
    ]
    for thread in running:
        thread.result(size(1, 10) * PATIENCE)
    seconds = time.monotonic() - begun
    refused = sum(number is None for asked in history.asked.values() for number, *_ in asked)
    in_place = server.log().count("updating the instances of")
    print(f"{dict(history.done)} in {seconds:.1f} s, {refused} requests refused, {in_place} updates in place")
    wrong = history.wrong_answers()
    assert not wrong, (len(wrong), wrong[:5])
    assert refused < history.done["infer"] / 2

    unload_all(server)
    # Idle threads of a pool end after some seconds; the short form does not wait for them.
    begun, idle = time.monotonic(), [size(24, 0), 0]
    try:
        eventually(lambda: (resources(server) <= before + idle).all(), f"{before} threads and descriptors")
    finally:
        print(f"before {before}, now {resources(server)} threads and descriptors, after {time.monotonic() - begun:.1f} s")
    eventually(lambda: not list(temporary.iterdir()), "the given files to be removed")
    with GRPC.connect(server) as client:
        for index_ in range(MODELS):
            client.load_model(f"m{index_}")
            last = max(event.number for event in history.events[f"m{index_}"] if event.kind == "write")
            assert answer(GRPC, client, f"m{index_}") == last
        assert client.is_server_ready()
