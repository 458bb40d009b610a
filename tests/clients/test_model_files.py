"""Files of served models that are overwritten, truncated or deleted: until a reload succeeds, each answer stays the same."""

import itertools
import os
import pathlib
import random
import shutil

import numpy as np
import onnx
import pytest
import repository as models
from adders import EXPLICIT, adder, answer, index, loads, refusal, wait_for_looks, write_adder
from callers import Callers
from protocols import HTTP
from serving import eventually, size
from tritonclient.utils import InferenceServerException

# In each mode configurations are not completed: a model without one cannot be loaded.
MODES = {
    "none": ["--model-control-mode=none"],
    "explicit": [EXPLICIT, "--load-model=*"],
    "poll": ["--model-control-mode=poll", "--repository-poll-secs=1", "--repository-settle-ms=100"],
}


def overwrite(path):
    """Writes other bytes over the file. Its size and its inode stay."""
    with path.open("r+b") as file:
        file.write(b"\x7f" * path.stat().st_size)


def truncate(path):
    os.truncate(path, 0)


def delete(path):
    path.unlink()


DAMAGES = [overwrite, truncate, delete]
# 4 MiB: requests read single numbers, most of which nothing has read before.
NUMBERS = 1 << 20


def write_external(folder, model_file="model.onnx", data_file="numbers.bin"):
    """VALUE = INDEX, by a table that lies in a file of its own."""
    text = "external (int64[length] INDEX) => (float[length] VALUE) { VALUE = Gather(numbers, INDEX) }"
    model = models.graph(text, numbers=np.arange(NUMBERS, dtype=np.float32))
    config = models.tensor("input", "INDEX", "INT64", -1) + models.tensor("output", "VALUE", "FP32", -1)
    version = models.write(folder, "external", adder(0), "max_batch_size: 0\n" + config) / "1"
    (version / "model.onnx").unlink()
    path = version / model_file
    (path.parent / data_file).parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path, save_as_external_data=True, location=data_file, size_threshold=0)


def write_begun(folder):
    """SUM = 1,000 and what the sequence has had so far."""
    model = models.graph(
        """
        begun (int32[batch, 1] X, int32[batch, 1] START, int32[batch, 1] SUM_IN)
            => (int32[batch, 1] SUM, int32[batch, 1] SUM_OUT)
        {
            nothing = Sub(START, START)
            more = Add(X, nothing)
            SUM = Add(SUM_IN, more)
            SUM_OUT = Identity(SUM)
        }"""
    )
    first = 'initial_state { name: "first" data_type: TYPE_INT32 dims: [1] data_file: "first" }'
    state = f'state [{{ input_name: "SUM_IN" output_name: "SUM_OUT" data_type: TYPE_INT32 dims: [1] {first} }}]'
    config = models.sequence_batching("oldest", state) + models.tensor("input", "X", "INT32", 1)
    folder = models.write(folder, "begun", model, config + models.tensor("output", "SUM", "INT32", 1))
    (folder / "initial_state").mkdir()
    (folder / "initial_state" / "first").write_bytes(np.array([1000], np.int32).tobytes())


def write_warm(folder):
    """Y = X + 5, warmed up with a file."""
    text = "warm (float[batch, 1] X) => (float[batch, 1] Y) { Y = Add(X, number) }"
    model = models.graph(text, number=np.array([5], np.float32))
    given = 'key: "X" value { data_type: TYPE_FP32 dims: [1] input_data_file: "x" }'
    config = f'model_warmup {{ name: "warm" batch_size: 1 inputs {{ {given} }} }}\nmax_batch_size: 4\n'
    config += models.tensor("input", "X", "FP32", 1) + models.tensor("output", "Y", "FP32", 1)
    folder = models.write(folder, "warm", model, config)
    (folder / "warmup").mkdir()
    (folder / "warmup" / "x").write_bytes(np.zeros(1, np.float32).tobytes())


class Questions:
    """Asks all models in turn. Each answer must be as if nobody had touched the files."""

    numbers = itertools.count(1)

    def __init__(self, asked):
        self.asked = asked

    def prepare(self, protocol, client):
        chosen = random.Random(next(self.numbers))

        def plain():
            assert answer(protocol, client, "plain") == 1

        def labelled():
            features = protocol.input("FEATURES", np.ones((1, 4), np.float32))
            output = protocol.output("PROBABILITIES", class_count=3)
            told = client.infer("classifier", [features], outputs=[output]).as_numpy("PROBABILITIES")
            assert {row.decode().split(":")[2] for row in told.flatten()} == set(models.LABELS)

        def begun():
            sequence = next(self.numbers)
            for step, expected in enumerate((1001, 1003)):
                x = protocol.input("X", np.array([[step + 1]], np.int32))
                options = {"sequence_id": sequence, "sequence_start": step == 0, "sequence_end": step == 1}
                assert client.infer("begun", [x], **options).as_numpy("SUM").item() == expected

        def warm():
            x = protocol.input("X", np.ones((1, 1), np.float32))
            assert client.infer("warm", [x]).as_numpy("Y").item() == 6

        def external():
            wanted = np.array([chosen.randrange(NUMBERS) for _ in range(8)], np.int64)
            told = client.infer("external", [protocol.input("INDEX", wanted)]).as_numpy("VALUE")
            assert told.tolist() == wanted.tolist()

        questions = {"plain": plain, "classifier": labelled, "begun": begun, "warm": warm, "external": external}

        def ask():
            for name in self.asked:
                questions[name]()

        return ask


WRITERS = {
    "plain": lambda folder: write_adder(folder, "plain", 1),
    "classifier": models.classifier,
    "begun": write_begun,
    "warm": write_warm,
    "external": write_external,
}
# The files that a test damages. The configuration comes first: without it the model cannot be loaded again, whatever the
# other files are by then. Other labels, states or external data alone would be another model, which a server that polls loads.
FILES = {
    "external": ["config.pbtxt", "1/numbers.bin", "1/model.onnx"],
    "plain": ["config.pbtxt", "1/model.onnx"],
    "classifier": ["config.pbtxt", "labels.txt", "1/model.onnx"],
    "begun": ["config.pbtxt", "initial_state/first", "1/model.onnx"],
    "warm": ["config.pbtxt", "warmup/x", "1/model.onnx"],
}


def damage_all(server, folder, threads, mode, damage):
    """Damages the files of models one after the other while clients ask for them."""
    rounds = size(1, 20)
    with HTTP.connect(server) as client, Callers(server, threads, Questions(FILES).prepare, 4, 50) as callers:
        before = index(HTTP, client)
        callers.wait_for_answers()
        for name, paths in FILES.items():
            for path in paths:
                damage(folder / name / path)
                for _ in range(rounds):
                    callers.wait_for_answers()
        if mode == "explicit":
            for name in FILES:
                # Whatever is damaged is found when the model is loaded again; the old copy goes on.
                refusal(client.load_model, name)
        if mode == "poll":
            wait_for_looks(server, folder)
        callers.wait_for_answers()
        assert index(HTTP, client) == before and client.is_server_ready()
        print(mode, damage.__name__, sum(callers.answers.values()) * len(FILES), "requests")


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("mode", MODES)
def test_damaged_files_change_no_answer(start, tmp_path, threads, mode, damage):
    folder = tmp_path / "models"
    folder.mkdir()
    for name in FILES:
        WRITERS[name](folder)
    server = start(folder, *MODES[mode], "--disable-auto-complete-config")
    damage_all(server, folder, threads, mode, damage)
    if mode == "none":
        assert {loads(server, name) for name in FILES} == {1}


# Where external data may lie, below the directory of the version.
PLACES = {
    "a file beside the model": ("model.onnx", "numbers.bin"),
    "a directory of the model": ("model.onnx/model.onnx", "numbers.bin"),
    "a file in a directory": ("model.onnx", "data/numbers.bin"),
}


@pytest.mark.parametrize("where", PLACES)
def test_no_file_of_a_repository_is_mapped(start, tmp_path, where):
    """A mapped file that is truncated ends the server with SIGBUS."""
    folder = tmp_path / "models"
    folder.mkdir()
    write_external(folder, *PLACES[where])
    server = start(folder)
    with HTTP.connect(server) as client:
        Questions(["external"]).prepare(HTTP, client)()
        mapped = pathlib.Path(f"/proc/{server.process.pid}/maps").read_text()
        assert str(folder) not in mapped
        for path in folder.rglob("*"):
            if path.is_file():
                truncate(path)
        Questions(["external"]).prepare(HTTP, client)()


def test_a_server_without_control_ignores_all_changes(start, tmp_path, threads, protocol):
    """Another server, which polls the same repository, tells when all changes can be seen."""
    folder = tmp_path / "models"
    folder.mkdir()
    for number, name in enumerate("abcde", 1):
        write_adder(folder, name, number)
    write_adder(folder, "e", 50, 2)
    server = start(folder)
    following = start(folder, *MODES["poll"])

    def prepare(own, client):
        def ask():
            assert [answer(own, client, name) for name in "abcde"] == [1, 2, 3, 4, 50]
            assert answer(own, client, "e", "2") == 50

        return ask

    with (
        protocol.connect(server) as client,
        protocol.connect(following) as other,
        Callers(server, threads, prepare, 2, 20) as callers,
    ):
        before = index(protocol, client)
        configs = [protocol.json(client.get_model_config, name) for name in "abcde"]
        write_adder(folder, "a", 100)
        write_adder(folder, "b", 200, 2)
        shutil.rmtree(folder / "c")
        config = folder / "d" / "config.pbtxt"
        config.write_text(config.read_text() + 'parameters { key: "own" value: { string_value: "x" } }\n')
        shutil.rmtree(folder / "e" / "2")
        write_adder(folder, "e", 60)
        (folder / "e" / "config.pbtxt").unlink()
        write_adder(folder, "f", 6)

        def followed():
            try:
                return [answer(protocol, other, name) for name in "abdef"] == [100, 200, 4, 60, 6]
            except InferenceServerException:
                return False

        eventually(followed, "the other server to follow the changes")
        eventually(lambda: not other.is_model_ready("c"), "the other server to unload the deleted model")
        callers.wait_for_answers()
        assert index(protocol, client) == before
        assert [protocol.json(client.get_model_config, name) for name in "abcde"] == configs
        text = "Request for unknown model: 'f' is not found"
        assert refusal(answer, protocol, client, "f") == (protocol.status("NOT_FOUND"), text)
        assert refusal(answer, protocol, client, "b", "2")[0] == protocol.status("NOT_FOUND")
        assert client.is_server_ready()
    assert [loads(server, name, version) for name, version in zip("abcdef", (1, 1, 1, 1, 2, 1), strict=True)] == [1] * 5 + [0]
