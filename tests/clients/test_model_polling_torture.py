"""Thousands of updates of polled models that are partial, broken, renamed or deleted, while clients ask.

The short form makes 40 updates, the full one (NEREID_TORTURE=full) 2,000.
"""

import random
import re
import shutil
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np
import pytest
import repository as models
from adders import READY, index, wait_for_looks
from callers import Callers
from protocols import GRPC, HTTP
from serving import eventually, size
from tritonclient.utils import InferenceServerException

MODELS = 5
BURSTS = size(8, 200)
BURST = size(5, 10)
PERIOD, SETTLE = 1.0, 0.2
POLL = [
    "--model-control-mode=poll",
    f"--repository-poll-secs={int(PERIOD)}",
    f"--repository-settle-ms={int(SETTLE * 1000)}",
]
PER_SECOND = 200
CALLERS = 4

CONFIG = "max_batch_size: 0\n" + models.tensor("input", "X", "FP32", 1) + models.tensor("output", "Y", "FP32", 2)


def pair(number):
    """The file of a model that answers the number twice. One is in the first half of the file, the other in the second."""
    text = """pair (float[1] X) => (float[2] Y) {
        left = Add(X, first)
        right = Add(X, second)
        Y = Concat <axis = 0> (left, right)
    }"""
    half = np.array([number], np.float32)
    return models.graph(text, first=half, between=np.zeros(4096, np.float32), second=half).SerializeToString()


def unknown_operator(token):
    """A file that is whole, and whose load fails with an error that contains the token."""
    model = models.graph("pair (float[1] X) => (float[2] Y) { Y = Concat <axis = 0> (X, X) }")
    model.graph.node[0].op_type = token
    return model.SerializeToString()


@dataclass
class Model:
    """A model of the repository, and what the server may answer for it."""

    folder: object
    version: int = 1
    # The numbers of all files that were once whole, and of half-written files that lay there too long to be a change that
    # is under way.
    answers: set = field(default_factory=set)
    # It was away for so long that the server may have unloaded it.
    may_be_gone: bool = False

    @property
    def name(self):
        return self.folder.name

    @property
    def file(self):
        return self.folder / str(self.version) / "model.onnx"


class Updates:
    """Random updates. Each makes good first what the one before has broken."""

    def __init__(self, folder, seed):
        self.random = random.Random(seed)
        self.away = folder.parent
        self.number = 0
        self.done = Counter()
        self.history = []
        self.tokens = []
        self.slow = 0
        self.kinds = [
            self.replace,
            self.write_halves,
            self.write_from_nothing,
            self.break_file,
            self.break_config,
            self.delete_file,
            self.delete_version,
            self.rename_file,
            self.rename_model,
            self.add_or_delete_version,
        ]
        self.models = [Model(folder / f"m{index}") for index in range(MODELS)]
        for model in self.models:
            self.write_config(model)
            self.replace(model)

    def update(self):
        model = self.random.choice(self.models)
        kind = self.random.choice(self.kinds)
        began = datetime.now()
        self.repair(model)
        kind(model)
        self.done[kind.__name__] += 1
        self.history.append(f"{began.time()} {model.name} {kind.__name__} until {datetime.now().time()}")

    def repair(self, model):
        self.write_config(model)
        content = model.file.read_bytes() if model.file.exists() else b""
        if content != self.last(model):
            self.replace(model)

    def last(self, model):
        return getattr(model, "content", None)

    def finish(self):
        """Leaves each model with a new whole file as its only version. Returns the numbers."""
        for model in self.models:
            self.repair(model)
            if model.version != 1:
                self.add_or_delete_version(model)
            self.replace(model)
        return {model.name: model.number for model in self.models}

    def write_config(self, model, more=""):
        config = f'name: "{model.name}"\nbackend: "onnxruntime"\n{CONFIG}{more}'
        path = model.folder / "config.pbtxt"
        if path.exists() and path.read_text() == config:
            return
        model.folder.mkdir(exist_ok=True)
        new = model.folder / "config.tmp"
        new.write_text(config)
        new.rename(path)

    def new_content(self, model):
        """A content that counts as whole from now on."""
        self.number += 1
        model.number, model.content = self.number, pair(self.number)
        model.answers.add((self.number, self.number))
        return model.content

    def token(self, prefix):
        self.number += 1
        self.tokens.append(f"{prefix}_{self.number}_")
        return self.tokens[-1]

    def pause(self, most=0.05):
        time.sleep(self.random.random() * most)

    def replace(self, model):
        """A whole file takes the place of the old one."""
        model.file.parent.mkdir(exist_ok=True)
        new = model.file.with_suffix(".tmp")
        new.write_bytes(self.new_content(model))
        new.rename(model.file)

    def write_halves(self, model):
        """The old content becomes the new one in two pieces; between them the file is a valid model that never was."""
        before = model.number
        new = self.new_content(model)
        half = len(new) // 2
        began = time.monotonic()
        with model.file.open("r+b", buffering=0) as file:
            file.write(new[:half])
            self.pause()
            file.write(new[half:])
        self.was_partial(model, began, (model.number, before))

    def write_from_nothing(self, model):
        """As `cp` does: the file is empty, then a part of the new content, then whole."""
        new = self.new_content(model)
        with model.file.open("wb", buffering=0) as file:
            for piece in np.array_split(np.frombuffer(new, np.uint8), 4):
                self.pause(0.02)
                file.write(piece.tobytes())

    def was_partial(self, model, began, answers):
        # A file that nobody writes for the settle time counts as whole. Only a machine that is too busy leaves it so long.
        if time.monotonic() - began >= SETTLE:
            model.answers.add(answers)
            self.slow += 1

    def break_file(self, model):
        model.file.write_bytes(unknown_operator(self.token("Operator")))

    def break_config(self, model):
        self.write_config(model, f"{self.token('field')}: 1\n")

    def delete_file(self, model):
        model.file.unlink()

    def delete_version(self, model):
        shutil.rmtree(model.file.parent)

    def rename_file(self, model):
        other = model.file.with_name("elsewhere")
        model.file.rename(other)
        self.pause(0.02)
        other.rename(model.file)

    def rename_model(self, model):
        began = time.monotonic()
        elsewhere = self.away / f"{model.name}-elsewhere"
        model.folder.rename(elsewhere)
        self.pause(0.02)
        elsewhere.rename(model.folder)
        if time.monotonic() - began >= SETTLE:
            model.may_be_gone = True
            self.slow += 1

    def add_or_delete_version(self, model):
        if model.version == 1:
            model.version = 2
            self.replace(model)
        else:
            # Version 1 is whatever it was when version 2 came.
            shutil.rmtree(model.file.parent)
            model.version = 1
            self.replace(model)


class Questions:
    """What the callers ask, and what they were answered wrongly."""

    def __init__(self, models, seed):
        self.models, self.random = models, random.Random(seed)
        self.wrong = []
        self.lock = threading.Lock()

    def prepare(self, protocol, client):
        inputs = [protocol.input("X", np.zeros(1, np.float32))]

        def ask():
            model = self.random.choice(self.models)
            try:
                told = tuple(client.infer(model.name, inputs).as_numpy("Y").tolist())
            except InferenceServerException as error:
                if not model.may_be_gone:
                    self.complain(model, protocol, error)
            else:
                if told not in model.answers:
                    self.complain(model, protocol, told)

        return ask

    def complain(self, model, protocol, told):
        with self.lock:
            self.wrong.append(f"{datetime.now().time()} {model.name} {protocol.name}: {told}")


def numbers(protocol, client, names):
    inputs = [protocol.input("X", np.zeros(1, np.float32))]
    return {name: client.infer(name, inputs).as_numpy("Y").tolist() for name in names}


def errors_with(server, token):
    return sum(token in line for line in server.log().splitlines() if line.startswith("E"))


@pytest.mark.parametrize("seed", [1])
def test_updates_that_are_partial_broken_renamed_or_deleted_harm_no_request(start, tmp_path, threads, seed):
    folder = tmp_path / "models"
    folder.mkdir()
    updates = Updates(folder, seed)
    server = start(folder, *POLL)
    questions = Questions(updates.models, seed)
    began = time.monotonic()
    with Callers(server, threads, questions.prepare, CALLERS, PER_SECOND / CALLERS) as callers:
        for _ in range(BURSTS):
            for _ in range(BURST):
                updates.update()
                updates.pause(0.1)
            # Long enough for some updates to be loaded, too short for others.
            updates.pause(3 * SETTLE)
        expected = updates.finish()
        ended = time.monotonic()

        with HTTP.connect(server) as http, GRPC.connect(server) as grpc:
            settled = {name: [number, number] for name, number in expected.items()}
            for protocol, client in ((HTTP, http), (GRPC, grpc)):
                eventually(lambda p=protocol, c=client: numbers(p, c, expected) == settled, f"the last updates {settled}")
            callers.wait_for_answers()
    asked = sum(callers.answers.values())
    log = server.log()
    loaded, failed = (len(re.findall(text, log)) for text in ("successfully loaded 'm", "failed to load 'm"))
    print(
        f"{dict(updates.done)}: {sum(updates.done.values())} updates, {asked} requests,"
        f" {asked / (ended - began):.0f} in a second, {loaded} loads, {failed} failed,"
        f" {updates.slow} updates too slow to be judged"
    )
    (tmp_path / "updates.txt").write_text("\n".join(sorted(updates.history + questions.wrong)))
    assert not questions.wrong, (len(questions.wrong), questions.wrong[:10])
    told = {token: errors_with(server, token) for token in updates.tokens}
    assert {token: count for token, count in told.items() if count > 1} == {}

    # No record of a version that is gone keeps the server from being ready.
    with HTTP.connect(server) as client:
        eventually(lambda: index(HTTP, client) == {name: READY for name in expected}, "the records of versions to go")
        eventually(client.is_server_ready, "readiness")

    # A broken update that stays is told, and told once.
    last = [updates.token("field") for _ in updates.models]
    for model, token in zip(updates.models, last, strict=True):
        updates.write_config(model, f"{token}: 1\n")
    eventually(lambda: all(errors_with(server, token) for token in last), "the broken updates to be told")
    wait_for_looks(server, folder)
    assert [errors_with(server, token) for token in last] == [1] * MODELS
