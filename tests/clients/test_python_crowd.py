"""Models in Python that do many things at once: threads and coroutines that ask, streams, log lines, metrics."""

import queue

import numpy as np
import plugins
import pytest
import python_backends
from protocols import GRPC
from serving import PATIENCE, Server, eventually

MANY = 50


@pytest.fixture(scope="module")
def server(tmp_path_factory, python_backend):
    folder = tmp_path_factory.mktemp("models")
    for name in ("crowd", "waiter", "streamer"):
        plugins.python_model(folder, name)
    options, variables = python_backend.options, python_backend.variables
    with Server(tmp_path_factory.mktemp("server"), folder, *options, variables=variables) as server:
        yield server.wait_until_ready()


def do(server, how):
    with GRPC.connect(server) as client:
        return client.infer("crowd", [GRPC.input("HOW", np.array([how], np.object_))]).as_numpy("SUM").item()


DOUBLED = 2 * sum(range(MANY))
DEEDS = {"threads_that_ask": DOUBLED, "coroutines_that_ask": DOUBLED}
# Threads of Triton's backend that read streams wait for each other for ever, and those that count end the server.
MORE_DEEDS = {"threads_that_read_streams": MANY * sum(range(20)), "threads_that_log_and_count": MANY}


@pytest.mark.parametrize("how", DEEDS)
def test_many_threads_of_a_model_work_at_once(server, threads, how):
    answers = [threads.submit(do, server, how) for _ in range(4)]
    assert [answer.result(PATIENCE) for answer in answers] == [DEEDS[how]] * 4


@pytest.mark.parametrize("python_backend", python_backends.OURS, indirect=True, scope="module")
@pytest.mark.parametrize("how", MORE_DEEDS)
def test_many_threads_of_a_model_use_the_server_at_once(server, threads, how):
    answers = [threads.submit(do, server, how) for _ in range(4)]
    assert [answer.result(PATIENCE) for answer in answers] == [MORE_DEEDS[how]] * 4


@pytest.mark.parametrize("python_backend", python_backends.OURS, indirect=True, scope="module")
def test_a_stream_that_a_model_drops_is_cancelled(server, tmp_path):
    told = tmp_path / "told"
    assert do(server, f"drop_a_stream {told}") == 2
    eventually(told.exists, "the other model to see the cancellation")


def test_a_thousand_responses_come_in_order(server):
    answers = queue.Queue()
    with GRPC.connect(server) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        client.async_stream_infer("streamer", [GRPC.input("N", np.array([1000], np.int32))])
        for number in range(1000):
            result, error = answers.get(timeout=PATIENCE)
            assert error is None and result.as_numpy("OUT").item() == number
