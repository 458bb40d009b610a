"""Loads that take long: what is served and what waits meanwhile."""

import adders
import plugins
import pytest
import repository as models
from adders import EXPLICIT, answer, index, loads, refusal, repository_of, write_adder
from held import held_inputs
from protocols import GRPC
from serving import PATIENCE, eventually


@pytest.fixture
def folder(tmp_path):
    """A repository of a quick model, which adds 1."""
    return repository_of(tmp_path, "a")


@pytest.fixture
def slow(folder, gate):
    """Adds a model whose load is held. Returns the hold."""

    def slow(name="slow"):
        hold = gate.hold()
        gate.write(folder, name, "max_batch_size: 1\n", hold)
        return hold

    return slow


@pytest.fixture
def explicit(start, folder, backend_option):
    return lambda *options: start(folder, EXPLICIT, "--load-model=a", backend_option, *options)


def load(protocol, server, name):
    """Loads a model with a client of its own, whose connection nobody else uses."""
    with protocol.connect(server, **patience(protocol)) as client:
        client.load_model(name)


def patience(protocol):
    return {"network_timeout": PATIENCE} if protocol.name == "http" else {}


def test_a_model_that_is_being_loaded_delays_no_other_model(protocol, explicit, slow, threads, folder):
    server, hold = explicit(), slow()
    with protocol.connect(server) as client:
        loading = threads.submit(load, protocol, server, "slow")
        hold.wait_until_running()
        assert index(protocol, client)["slow"] == [("1", "LOADING", None)]
        assert not client.is_server_ready() and not client.is_model_ready("slow")
        unknown = "Request for unknown model: 'slow' "
        expected = protocol.status("NOT_FOUND"), unknown + "has no available versions"
        assert refusal(client.infer, "slow", held_inputs(protocol)) == expected
        expected = protocol.status("UNAVAILABLE"), unknown + "version 1 is not at ready state"
        assert refusal(client.infer, "slow", held_inputs(protocol), model_version="1") == expected

        assert answer(protocol, client, "a") == 1
        write_adder(folder, "a", 2)
        client.load_model("a")
        assert answer(protocol, client, "a") == 2
        assert not loading.done()
        hold.release()
        loading.result(PATIENCE)
        assert index(protocol, client)["slow"] == [("1", "READY", None)] and client.is_server_ready()


def test_the_old_copy_serves_while_the_new_one_is_being_loaded(protocol, explicit, gate, slow, threads, folder):
    gate.write(folder, "slow", "max_batch_size: 1\n")
    server = explicit("--load-model=slow")
    with protocol.connect(server) as client:
        (folder / "slow" / "config.pbtxt").unlink()
        (folder / "slow" / "1").rmdir()
        hold = slow()
        loading = threads.submit(load, protocol, server, "slow")
        hold.wait_until_running()
        assert index(protocol, client)["slow"] == [("1", "READY", None)]
        assert client.is_server_ready() and client.is_model_ready("slow")
        assert client.infer("slow", held_inputs(protocol, x=3)).as_numpy("OUTPUT0").item() == 3
        assert not loading.done()
        hold.release()
        loading.result(PATIENCE)


def test_an_unload_waits_for_the_load_before_it(protocol, explicit, slow, threads):
    server, hold = explicit(), slow()
    loading = threads.submit(load, protocol, server, "slow")
    hold.wait_until_running()
    with protocol.connect(server) as client, protocol.connect(server, **patience(protocol)) as other:
        unloading = threads.submit(other.unload_model, "slow")
        # The answer of another command shows that the server works.
        client.load_model("a")
        assert not unloading.done() and not loading.done()
        hold.release()
        loading.result(PATIENCE)
        unloading.result(PATIENCE)
        eventually(lambda: adders.is_unloaded(protocol, client, "slow"), "the model to be unloaded")


def test_loads_of_one_model_at_the_same_time_build_one_copy(protocol, explicit, slow, threads):
    server, hold = explicit(), slow()
    loading = [threads.submit(load, protocol, server, "slow") for _ in range(8)]
    hold.wait_until_running()
    hold.release()
    for one in loading:
        one.result(PATIENCE)
    assert loads(server, "slow") == 1


def release_one_by_one(holds, count):
    """Releases held loads as they run. Not more than `count` of them ever run at the same time."""
    left = dict(holds)

    def running():
        found = [name for name, hold in left.items() if hold.is_running()]
        assert len(found) <= count, found
        return found

    while left:
        eventually(lambda: len(running()) == min(count, len(left)), "the loads to run")
        left.pop(running()[0]).release()


@pytest.mark.parametrize("count", [1, 4])
def test_no_more_models_are_loaded_at_the_same_time_than_there_are_threads(protocol, explicit, slow, threads, count):
    server = explicit(f"--model-load-thread-count={count}")
    holds = {name: slow(name) for name in (f"slow_{number}" for number in range(count + 3))}
    loading = [threads.submit(load, protocol, server, name) for name in holds]
    release_one_by_one(holds, count)
    for one in loading:
        one.result(PATIENCE)


@pytest.mark.parametrize("count", [1, 4])
def test_no_more_models_are_loaded_at_the_same_time_when_the_server_starts(start, folder, slow, backend_option, threads, count):
    holds = {name: slow(name) for name in (f"slow_{number}" for number in range(count + 3))}
    # The server ends with the thread that has started it, so the other thread releases the loads.
    releasing = threads.submit(release_one_by_one, holds, count)
    server = start(folder, backend_option, f"--model-load-thread-count={count}")
    releasing.result(PATIENCE)
    server.wait_until_ready()


# A model in Python that fails as often as its file says; it leaves a file for each attempt.
FAILING = """
import pathlib
class TritonPythonModel:
    def initialize(self, args):
        attempts = pathlib.Path(args["model_repository"]).parent.parent / "attempts"
        attempts.mkdir(exist_ok=True)
        (attempts / str(len(list(attempts.iterdir())))).touch()
        if len(list(attempts.iterdir())) < 3:
            raise RuntimeError("not yet")
    def execute(self, requests):
        return [None for _ in requests]
"""


def test_a_load_is_tried_as_often_as_the_command_line_says(start_python, folder):
    """Twice for each command: the first command fails, and the first attempt of the second one succeeds."""
    config = models.tensor("input", "X", "FP32", 1) + models.tensor("output", "Y", "FP32", 1)
    plugins.python_model(folder, "failing", config=f"max_batch_size: 0\n{config}", text=FAILING)
    server = start_python(folder, EXPLICIT, "--model-load-retry-count=1")
    attempts = folder.parent / "attempts"
    with GRPC.connect(server) as client:
        assert "not yet" in refusal(client.load_model, "failing")[1]
        assert len(list(attempts.iterdir())) == 2 and not client.is_model_ready("failing")
        client.load_model("failing")
        assert len(list(attempts.iterdir())) == 3 and client.is_model_ready("failing")
