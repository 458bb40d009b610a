"""A client that goes away with thousands of requests in a queue takes nothing from the others."""

import threading

import numpy as np
import pytest
import repository as models
from protocols import GRPC, HTTP, add_sub_inputs, metric
from serving import PATIENCE, eventually, size

QUEUED = size(4_000, 16_000)
OTHERS = 2
# Answers that each of the others gets before and after the client goes away, at least.
ANSWERS = 50


@pytest.fixture
def server(start, tmp_path):
    """Besides `add_sub`, a model whose queue waits for more requests than ever come."""
    folder = tmp_path / "models"
    folder.mkdir()
    models.add_sub(folder)
    graph = models.graph("patient (float[batch, 1] X) => (float[batch, 1] Y) { Y = Identity(X) }")
    config = (
        "max_batch_size: 1000000\n"
        "dynamic_batching { preferred_batch_size: [1000000] max_queue_delay_microseconds: 3600000000 }\n"
    )
    config += models.tensor("input", "X", "FP32", 1) + models.tensor("output", "Y", "FP32", 1)
    models.write(folder, "patient", graph, config)
    return start(folder).wait_until_ready()


class Other:
    """A client of another model that asks again as soon as it is answered."""

    def __init__(self, server):
        self.server, self.answered, self.failure = server, 0, None
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        try:
            inputs, first = add_sub_inputs(HTTP)
            with HTTP.connect(self.server) as client:
                while not self.stopping.is_set():
                    answer = client.infer("add_sub", inputs)
                    assert (answer.as_numpy("OUTPUT0") == first + 1000).all()
                    self.answered += 1
        except Exception as failure:  # Whatever it is, the test fails with it.
            self.failure = failure

    def wait_for(self, answers):
        eventually(lambda: self.failure or self.answered >= answers, f"{answers} answers")
        assert self.failure is None, self.failure


def waiting(server):
    return metric(server, "nv_inference_pending_request_count", model="patient", version=1)


def canceled(server):
    return metric(server, "nv_inference_request_failure", model="patient", reason="CANCELED", version=1)


def test_others_are_answered_while_a_stream_with_a_long_queue_is_dropped(server):
    with GRPC.connect(server) as client:
        client.start_stream(lambda result, error: None)
        inputs = [GRPC.input("X", np.zeros((1, 1), np.float32))]
        for _ in range(QUEUED):
            client.async_stream_infer("patient", inputs)
        eventually(lambda: waiting(server) == QUEUED, f"{QUEUED} requests in the queue")
        others = [Other(server) for _ in range(OTHERS)]
        try:
            for other in others:
                other.wait_for(ANSWERS)
            client.stop_stream(cancel_requests=True)
            eventually(lambda: canceled(server) == QUEUED, "all of them to be canceled")
            assert waiting(server) == 0
            for other in others:
                other.wait_for(other.answered + ANSWERS)
        finally:
            # A client that closes with an open stream waits for its answers.
            client.stop_stream(cancel_requests=True)
            for other in others:
                other.stopping.set()
                other.thread.join(PATIENCE)
    assert [other.failure for other in others] == [None] * OTHERS
