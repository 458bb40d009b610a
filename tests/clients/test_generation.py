"""A model whose requests take many steps: each has its own answers in order, over gRPC streams and server-sent events."""

import json
import queue

import numpy as np
import pytest
import requests
from protocols import GRPC, metric
from serving import PATIENCE, eventually

CAPACITY = 8
# Rounds of a step that takes about a millisecond: 100,000 steps take longer than a test waits.
A_STEP = 50


def inputs(start, rounds=1):
    return [GRPC.input(name, np.array([[value]], np.int64)) for name, value in (("FROM", start), ("ROUNDS", rounds))]


class Stream:
    """A gRPC stream of a client of its own, with one request."""

    def __init__(self, server, start, rounds=1, model="countdown"):
        self.client, self.answers = GRPC.connect(server), queue.Queue()
        self.client.start_stream(lambda result, error: self.answers.put((result, error)))
        self.client.async_stream_infer(model, inputs(start, rounds), enable_empty_final_response=True)

    def next(self):
        """The next value, None if there is none, and whether it is the last."""
        result, error = self.answers.get(timeout=PATIENCE)
        if error is not None:
            raise error
        value, response = result.as_numpy("OUT"), result.get_response()
        return value if value is None else value.item(), response.parameters["triton_final_response"].bool_param

    def all(self):
        answers = [self.next()]
        while not answers[-1][1]:
            answers.append(self.next())
        assert answers.pop() == (None, True), "the final response has no value"
        return [value for value, _ in answers]

    def cancel(self):
        self.client.stop_stream(cancel_requests=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.cancel()
        self.client.close()


def events(server, start, rounds=1):
    """A response of generate_stream whose events can be read."""
    url = f"http://{server.http}/v2/models/countdown/generate_stream"
    response = requests.post(url, json={"FROM": start, "ROUNDS": rounds}, stream=True, timeout=PATIENCE)
    assert response.status_code == 200, response.text
    assert response.headers["Content-Type"].startswith("text/event-stream")
    return response


def values(response):
    lines = (line for line in response.iter_lines() if line)
    return (json.loads(line.removeprefix(b"data: "))["OUT"] for line in lines)


def down(start):
    return list(range(start, 0, -1))


def test_a_stream_has_an_answer_for_each_step_and_an_empty_one_at_the_end(server):
    with Stream(server, 5) as stream:
        assert [stream.next() for _ in range(6)] == [*((value, False) for value in down(5)), (None, True)]


def test_server_sent_events_are_the_same_answers(server):
    with events(server, 5) as response:
        assert list(values(response)) == down(5)


def test_requests_of_many_lengths_run_together_and_keep_their_own_order(server, threads):
    starts = [1 + 37 * number % 120 for number in range(32)]
    steps = metric(server, "nv_inference_exec_count", model="countdown", version=1)

    def one(number):
        if number % 2:
            with events(server, starts[number]) as response:
                return list(values(response))
        with Stream(server, starts[number]) as stream:
            return stream.all()

    assert list(threads.map(one, range(32))) == [down(start) for start in starts]
    steps = metric(server, "nv_inference_exec_count", model="countdown", version=1) - steps
    assert steps < sum(starts), "no step was shared"


def test_a_request_joins_while_another_is_half_way(server):
    with Stream(server, 100_000, A_STEP) as long:
        assert long.next() == (100_000, False)
        with Stream(server, 3) as short:
            assert short.all() == down(3)
        assert not long.next()[1], "the long one was not waited for"


def leave(source, server):
    """Somebody who reads one answer of a request that would take minutes, and goes."""
    if source == "grpc":
        with Stream(server, 1_000_000, A_STEP) as stream:
            assert stream.next() == (1_000_000, False)
    else:
        with events(server, 1_000_000, A_STEP) as response:
            assert next(values(response)) == 1_000_000


@pytest.mark.parametrize("source", ["grpc", "http"])
def test_who_goes_frees_the_slot(server, threads, source):
    def canceled():
        return metric(server, "nv_inference_request_failure", model="countdown", reason="CANCELED", version=1)

    before = canceled()
    # Twice as many as there are slots: the second half gets one only when the first half has gone.
    list(threads.map(lambda _: leave(source, server), range(2 * CAPACITY)))
    # Somebody of an earlier test may be counted only now.
    eventually(lambda: canceled() >= before + 2 * CAPACITY, "all of them to be counted as canceled")
    with Stream(server, 4) as stream:
        assert stream.all() == down(4)


def test_a_model_with_one_answer_gives_the_last_step(server, protocol):
    given = [protocol.input(name, np.array([[value]], np.int64)) for name, value in (("FROM", 40), ("ROUNDS", 1))]
    with protocol.connect(server) as client:
        assert client.infer("countdown_last", given).as_numpy("OUT").item() == 1
