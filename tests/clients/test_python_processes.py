"""The processes that run models in Python: they end with the server, however that ends, and what they do is answered."""

import os
import pathlib
import signal
from collections import Counter

import numpy as np
import plugins
import pytest
import python_backends
from protocols import GRPC, HTTP, pending
from serving import PATIENCE, eventually, http_status
from tritonclient.utils import InferenceServerException


@pytest.fixture
def server(start_python, tmp_path):
    """A server with the waiter."""
    folder = tmp_path / "models"
    folder.mkdir()
    plugins.python_model(folder, "waiter")
    return start_python(folder).wait_until_ready()


def descendants(process):
    """The processes that a process has started, and those that these have started."""
    parents = {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found, new = set(), {process}
    while new:
        new = {child for child, parent in parents.items() if parent in new}
        found |= new
    return found


def living(processes):
    def state(process):
        try:
            return pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return None

    return {process for process in processes if state(process) not in (None, "Z", "X")}


def ask(server, x, until=""):
    protocol = (HTTP, GRPC)[x % 2]
    with protocol.connect(server) as client:
        return client.infer("waiter", plugins.waiter_inputs(protocol, x, until)).as_numpy("Y").item()


def test_whatever_a_model_in_python_has_accepted_is_answered_before_the_server_ends(server, threads, tmp_path):
    gate = tmp_path / "gate"
    answers = [threads.submit(ask, server, 0, gate)]
    eventually(plugins.begun(gate), "the first to be executed")
    answers += [threads.submit(ask, server, x, gate) for x in range(1, 13)]
    eventually(lambda: pending(server, "waiter") == 12, "the others to wait")
    processes = descendants(server.process.pid)
    assert processes
    server.terminate()
    eventually(lambda: http_status(server.http_port, "/v2/health/live") is None, "newcomers to be refused")
    gate.touch()
    assert [answer.result(PATIENCE) for answer in answers] == [2 * x for x in range(13)]
    assert server.process.wait(PATIENCE) == 0
    eventually(lambda: not living(processes), "the model's process to end")


def test_a_server_under_load_ends_in_order(server, threads):
    answered = Counter()

    def call(x):
        with GRPC.connect(server) as client:
            while True:
                try:
                    result = client.infer("waiter", plugins.waiter_inputs(GRPC, x))
                except InferenceServerException as error:
                    # Whoever comes too late was not accepted.
                    assert error.status() == "StatusCode.UNAVAILABLE", error
                    return
                assert result.as_numpy("Y").item() == 2 * x
                answered[x] += 1

    callers = [threads.submit(call, x) for x in range(12)]
    eventually(lambda: answered.total() > 200, "the callers to be under way")
    server.terminate()
    for caller in callers:
        caller.result(PATIENCE)
    assert server.process.wait(PATIENCE) == 0


# The process of Triton's backend waits for its model, and now and then for ever for a lock of the server.
@pytest.mark.parametrize("python_backend", python_backends.OURS, indirect=True)
def test_no_process_outlives_a_server_that_is_killed(server, threads, tmp_path):
    gate = tmp_path / "gate"
    answer = threads.submit(ask, server, 1, gate)
    eventually(plugins.begun(gate), "the first to be executed")
    processes = descendants(server.process.pid)
    assert processes
    server.expected_code = -signal.SIGKILL
    server.kill()
    with pytest.raises(InferenceServerException):
        answer.result(PATIENCE)
    eventually(lambda: not living(processes), "the model's process to end")


# Triton's backend does not start the process again.
@pytest.mark.parametrize("python_backend", python_backends.OURS, indirect=True)
def test_a_process_that_dies_is_replaced(server, threads, tmp_path):
    gate = tmp_path / "gate"
    assert ask(server, 3) == 6
    answers = [threads.submit(ask, server, 0, gate)]
    eventually(plugins.begun(gate), "the first to be executed")
    before = living(descendants(server.process.pid))
    for process in before:
        os.kill(process, signal.SIGKILL)
    with pytest.raises(InferenceServerException, match="Stub process 'waiter_0' is not healthy."):
        answers[0].result(PATIENCE)

    def answered():
        try:
            return ask(server, 4) == 8
        except InferenceServerException as error:
            assert "Stub process 'waiter_0' is not healthy." in error.message()

    eventually(answered, "the new process to answer")
    assert not living(before)
    with HTTP.connect(server) as client:
        assert client.is_server_ready() and client.is_model_ready("waiter")


# Triton's backend waits for the end of a coroutine before it begins the next one.
@pytest.mark.parametrize("python_backend", python_backends.OURS, indirect=True)
def test_coroutines_run_at_the_same_time(start_python, threads, tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    concurrent = 'parameters { key: "MAX_CONCURRENT_EXECUTIONS" value: { string_value: "4" } }'
    plugins.python_model(folder, "gatherer", config=concurrent)
    server = start_python(folder).wait_until_ready()
    gate = tmp_path / "gate"

    def ask(_):
        with GRPC.connect(server) as client:
            result = client.infer("gatherer", [GRPC.input("UNTIL", np.array([str(gate)], np.object_))])
            return result.as_numpy("TOGETHER").item()

    answers = [threads.submit(ask, number) for number in range(6)]
    eventually(gate.with_suffix(".4").exists, "four executions at once")
    eventually(lambda: pending(server, "gatherer") == 2, "the others to wait")
    assert not gate.with_suffix(".5").exists()
    gate.touch()
    assert max(answer.result(PATIENCE) for answer in answers) == 4
