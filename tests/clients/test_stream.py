"""gRPC streams of the synchronous client: order, ids, errors on the way, and how a stream may end early."""

import queue

import numpy as np
import pytest
from held import held_inputs
from protocols import GRPC, add_sub_inputs, canceled, metric, pending
from serving import PATIENCE, eventually


class Stream:
    """A stream whose answers can be waited for."""

    def __init__(self, client, **options):
        self.client = client
        self.answers = queue.Queue()
        client.start_stream(lambda result, error: self.answers.put((result, error)), **options)

    def send(self, model, inputs, request_id=""):
        self.client.async_stream_infer(model, inputs, request_id=request_id)

    def receive(self):
        return self.answers.get(timeout=PATIENCE)


@pytest.fixture
def stream(grpc):
    yield Stream(grpc)
    grpc.stop_stream(cancel_requests=True)


def test_answers_carry_their_ids_and_come_in_the_order_of_the_requests(server, stream, gate):
    hold = gate.hold()
    stream.send("held", held_inputs(GRPC, hold, x=1.5), "held")
    run = metric(server, "nv_inference_request_success", model="add_sub", version=1)
    inputs, first = add_sub_inputs(GRPC)
    quick = [f"quick {number}" for number in range(50)]
    for request_id in quick:
        stream.send("add_sub", inputs, request_id)
    eventually(
        lambda: metric(server, "nv_inference_request_success", model="add_sub", version=1) == run + 50,
        "the requests behind the held one to be run",
    )
    hold.release()
    results = [stream.receive() for _ in range(51)]
    assert [error for _, error in results] == [None] * 51
    assert [result.get_response().id for result, _ in results] == ["held", *quick]
    assert results[0][0].as_numpy("OUTPUT0").item() == 1.5
    for result, _ in results[1:]:
        np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), first + 1000)


def test_every_answer_says_that_it_is_the_last_of_its_request(stream):
    stream.send("add_sub", add_sub_inputs(GRPC)[0])
    result, _ = stream.receive()
    assert result.get_response().parameters["triton_final_response"].bool_param


def test_an_answer_outside_a_stream_does_not_say_so(grpc):
    response = grpc.infer("add_sub", add_sub_inputs(GRPC)[0]).get_response()
    assert "triton_final_response" not in response.parameters


@pytest.mark.parametrize(
    "model, inputs, text",
    [
        ("none", lambda: add_sub_inputs(GRPC)[0], "Request for unknown model: 'none' is not found"),
        ("add_sub", lambda: add_sub_inputs(GRPC)[0][:1], "expected 2 inputs but got 1 inputs for model 'add_sub'"),
        ("picky", lambda: [GRPC.input("INDEX", np.array([7]))], "idx=7"),
    ],
    ids=["unknown model", "missing input", "failing execution"],
)
def test_an_error_is_one_answer_and_the_stream_goes_on(stream, model, inputs, text):
    stream.send(model, inputs(), "bad")
    stream.send("add_sub", add_sub_inputs(GRPC)[0], "good")
    result, error = stream.receive()
    assert result is None and text in error.message()
    result, error = stream.receive()
    assert error is None and result.get_response().id == "good"


def test_large_tensors_travel_on_a_stream(stream):
    sent = np.random.default_rng(2).random((1024, 1024), dtype=np.float32)
    for _ in range(4):
        stream.send("matrix", [GRPC.input("INPUT", sent)])
    for _ in range(4):
        result, error = stream.receive()
        assert error is None
        np.testing.assert_array_equal(result.as_numpy("OUTPUT"), sent)


def waits_on(stream, server, gate):
    """One request of the stream runs until the hold is released, one waits behind it. False if the stream ends before."""
    hold = gate.hold()
    stream.send("held_impatient", held_inputs(GRPC, hold), "running")
    eventually(lambda: hold.is_running() or not stream.answers.empty(), "one request that runs")
    if stream.answers.empty():
        stream.send("held_impatient", held_inputs(GRPC), "waiting")
        eventually(
            lambda: pending(server, "held_impatient") == 1 or not stream.answers.empty(), "one request that waits"
        )
    return stream.answers.empty()


def test_a_cancelled_stream_takes_its_waiting_requests_out_of_the_queue(server, grpc, gate):
    before = canceled(server, "held_impatient")
    stream = Stream(grpc)
    assert waits_on(stream, server, gate)
    grpc.stop_stream(cancel_requests=True)
    result, error = stream.receive()
    assert result is None and error.status() == "StatusCode.CANCELLED"
    eventually(lambda: canceled(server, "held_impatient") > before, "the waiting request to be counted as canceled")
    assert pending(server, "held_impatient") == 0
    assert grpc.is_server_live()


def test_a_stream_ends_at_its_deadline(server, grpc, gate):
    before = canceled(server, "held_impatient")
    # A busy machine may need more than the first deadline until a request waits.
    for deadline_secs in (2, 30):
        stream = Stream(grpc, stream_timeout=deadline_secs)
        has_waited = waits_on(stream, server, gate)
        result, error = stream.receive()
        assert result is None and error.status() == "StatusCode.DEADLINE_EXCEEDED"
        grpc.stop_stream()
        if has_waited:
            break
    eventually(lambda: canceled(server, "held_impatient") > before, "the waiting request to be counted as canceled")


def test_a_stream_that_is_stopped_in_order_answers_everything_first(grpc):
    stream = Stream(grpc)
    for number in range(20):
        stream.send("add_sub", add_sub_inputs(GRPC)[0], str(number))
    grpc.stop_stream()
    ids = [stream.answers.get_nowait()[0].get_response().id for _ in range(20)]
    assert ids == [str(number) for number in range(20)]


def test_an_error_ends_the_stream_with_its_code_where_that_was_asked_for(grpc):
    stream = Stream(grpc, headers={"triton_grpc_error": "true"})
    stream.send("picky", [GRPC.input("INDEX", np.array([7]))])
    result, error = stream.receive()
    assert result is None and error.status() == "StatusCode.INTERNAL" and "idx=7" in error.message()
    grpc.stop_stream()
