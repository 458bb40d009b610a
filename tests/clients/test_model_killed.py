"""Servers that are killed while they load models: the next server starts and serves as if nothing had been.

The short form kills 8 servers in each mode, the full one (NEREID_TORTURE=full) 100.
"""

import contextlib
import random
import threading
import time

import adders
import processes
import pytest
from adders import EXPLICIT, READY, adder, answer, index
from protocols import GRPC, HTTP
from serving import PATIENCE, command, environment, eventually, size

KILLS = size(8, 100)
MODELS = 3
POLL = ["--model-control-mode=poll", "--repository-poll-secs=1", "--repository-settle-ms=10"]
# A file that takes a while to be received and written.
BALLAST = b"x" * (4 << 20)


@pytest.fixture
def folder(tmp_path):
    """A repository of models that add 1, 2 and 3."""
    return adders.repository_of(tmp_path, *(f"m{number}" for number in range(MODELS)))


@pytest.fixture
def temporary(tmp_path):
    """The directory of temporary files of all servers of a test."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    return temporary


def load_given_files(server, protocol, name):
    with protocol.connect(server) as client:
        files = {"file:1/model.onnx": adder(100).SerializeToString(), "file:1/ballast": BALLAST}
        client.load_model(name, config=adders.JSON_CONFIG, files=files)


def reload(server, protocol, name):
    with protocol.connect(server) as client:
        client.load_model(name)


@contextlib.contextmanager
def changing(threads, folder, chosen):
    """Replaces files of models until the end of the block, as a user of a polled repository does."""
    done = threading.Event()

    def change():
        while not done.wait(0.01):
            number = chosen.randrange(MODELS)
            path = folder / f"m{number}" / "1"
            (path / "new.tmp").write_bytes(adder(number + 1).SerializeToString())
            (path / "new.tmp").rename(path / "model.onnx")

    running = threads.submit(change)
    try:
        yield
    finally:
        done.set()
        running.result(PATIENCE)


def wait_for_some_moment(chosen, most_secs):
    """The moments at which servers end differ. The tests are right at each."""
    time.sleep(chosen.random() * most_secs)


def killed_while(server, threads, operations, chosen, most_secs):
    """Runs operations at the same time and kills the server meanwhile. Operations then fail, or have ended before."""
    running = [threads.submit(operation) for operation in operations]
    wait_for_some_moment(chosen, most_secs)
    server.kill()
    server.expected_code = server.process.returncode
    for operation in running:
        # The connection ends in many ways.
        operation.exception()


def serves_as_ever(server):
    for protocol in (HTTP, GRPC):
        with protocol.connect(server) as client:
            for number in range(MODELS):
                assert answer(protocol, client, f"m{number}") == number + 1
            assert index(protocol, client) == {f"m{number}": READY for number in range(MODELS)}
            assert client.is_server_ready()


@pytest.mark.parametrize("mode", ["explicit", "poll"])
def test_a_server_that_was_killed_during_loads_hinders_no_other(start, folder, temporary, threads, mode):
    chosen = random.Random(1)
    explicit = mode == "explicit"
    options = [EXPLICIT, "--load-model=*"] if explicit else POLL
    for number in range(KILLS):
        server = start(folder, *options, variables={"TMPDIR": str(temporary)})
        serves_as_ever(server)
        protocol = (HTTP, GRPC)[number % 2]
        if explicit:
            operations = [lambda name=f"m{i}": load_given_files(server, protocol, name) for i in range(MODELS)]  # noqa: B023
            operations.append(lambda: reload(server, protocol, "m0"))  # noqa: B023
            killed_while(server, threads, operations, chosen, 0.2)
        else:
            with changing(threads, folder, chosen):
                killed_while(server, threads, [], chosen, 1.2)
    serves_as_ever(start(folder, *options, variables={"TMPDIR": str(temporary)}))


@pytest.mark.parametrize("mode", ["explicit", "poll"])
def test_a_server_that_is_told_to_end_during_loads_ends_in_order_and_leaves_nothing(start, folder, temporary, threads, mode):
    chosen = random.Random(3)
    explicit = mode == "explicit"
    options = [EXPLICIT, "--load-model=*"] if explicit else POLL
    for number in range(size(4, 100)):
        server = start(folder, *options, variables={"TMPDIR": str(temporary)})
        protocol, operations = (HTTP, GRPC)[number % 2], []
        if explicit:
            operations = [threads.submit(load_given_files, server, protocol, f"m{i}") for i in range(MODELS)]
            operations.append(threads.submit(reload, server, protocol, "m0"))
        with contextlib.nullcontext() if explicit else changing(threads, folder, chosen):
            wait_for_some_moment(chosen, 0.2 if explicit else 1.2)
            server.terminate()
            assert server.process.wait(PATIENCE) == 0, server.log_end()
        for operation in operations:
            # A load has ended before, or is refused, or finds no server.
            operation.exception()
        assert "panicked" not in server.log() and list(temporary.iterdir()) == [], number


def test_a_server_that_is_killed_while_it_starts_hinders_no_other(start, folder, temporary):
    environ = environment() | {"TMPDIR": str(temporary)}
    chosen = random.Random(2)
    for _ in range(KILLS):
        with processes.running(command(folder), env=environ, stdout=processes.DEVNULL, stderr=processes.DEVNULL) as starting:
            wait_for_some_moment(chosen, 0.1)
            starting.kill()
    serves_as_ever(start(folder, variables={"TMPDIR": str(temporary)}))


def test_given_files_of_a_server_that_was_killed_are_removed_by_the_next(start, folder, temporary):
    variables = {"TMPDIR": str(temporary)}
    server = start(folder, EXPLICIT, variables=variables)
    load_given_files(server, GRPC, "m0")
    assert len(list(temporary.iterdir())) == 1
    server.kill()
    server.expected_code = server.process.returncode
    next_server = start(folder, EXPLICIT, variables=variables)
    load_given_files(next_server, GRPC, "m1")
    eventually(lambda: len(list(temporary.iterdir())) == 1, "the files of the killed server to be removed")
