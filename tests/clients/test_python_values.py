"""Values of models in Python: whatever a model gives to `pb_utils`, the call works or raises, and the process lives.

What Triton's backend takes is taken.
"""

import queue

import numpy as np
import plugins
import pytest
import python_backends
import repository as models
from protocols import GRPC, HTTP, metric
from serving import PATIENCE, Server, size
from tritonclient.utils import InferenceServerException

SEEDS = size(60, 5000)

COROUTINES = """
import asyncio
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.waiting = []

    def execute(self, requests):
        # Not `async def`, but what is returned is a coroutine.
        return self.run(requests)

    async def run(self, requests):
        for request in requests:
            self.waiting.append(asyncio.get_running_loop().create_future())
            if len(self.waiting) == 4:
                for waiting in self.waiting:
                    waiting.set_result(None)
            await asyncio.wait_for(self.waiting[-1], 30)
            response = pb_utils.InferenceResponse([pb_utils.Tensor(b"DONE", np.array([len(self.waiting)]))])
            request.get_response_sender().send(response, np.uint8(pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL))
"""
COROUTINES_CONFIG = (
    "model_transaction_policy { decoupled: true }\n"
    + models.tensor("input", "WHAT", "INT64", 1)
    + models.tensor("output", "DONE", "INT64", 1)
)

TEXTS = """
import numpy as np
import triton_python_backend_utils as pb_utils

class Name(str):
    def __str__(self):
        return "another name"

class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request.inputs()[0].as_numpy()[0]) for request in requests]

    def answer(self, kind):
        make = [str, str.encode, np.str_, Name][kind]
        pb_utils.Logger.log_info(make("a line of the model"))
        request = pb_utils.InferenceRequest(
            request_id=make("mine"),
            correlation_id=np.int64(0),
            inputs=[pb_utils.Tensor(make("INPUT_FP32"), np.array([kind], np.float32))],
            requested_output_names=[make("OUTPUT_FP32")],
            model_name=make("mirror"),
            model_version=np.int64(1),
            timeout=np.uint32(60_000_000),
        )
        response = request.exec()
        if response.has_error():
            return response
        if kind == 3:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(make("the error")))
        answer = response.output_tensors()[0].as_numpy()
        return pb_utils.InferenceResponse([pb_utils.Tensor(make("DONE"), answer)])
"""
TEXTS_CONFIG = models.tensor("input", "KIND", "INT64", 1) + models.tensor("output", "DONE", "FP32", 1)


# What Triton's backend takes, by the place of the value: names of values in `taker.py`.
STRS = {"str", "kind of str", "enum of str", "np.str_"}
TEXTS_OR_BYTES = STRS | {"bytes", "bytearray", "np.bytes_"}
INTS = {"bool", "int", "enum of int"}
INDEXES = {"np.int64", "np.bool_", "array of no dimension", "__index__"}
WHOLE_NUMBERS = INTS | INDEXES | {"__int__", "Decimal"}
TAKEN = {
    "request_id": TEXTS_OR_BYTES,
    "correlation_id": STRS | INTS | {"2**32", "2**63"},
    "model_name": TEXTS_OR_BYTES,
    "model_version": WHOLE_NUMBERS | {"-1", "2**32"},
    "flags": WHOLE_NUMBERS,
    "set_flags": WHOLE_NUMBERS,
    "timeout": WHOLE_NUMBERS | {"2**32", "2**63"},
    "inputs": {"list"},
    "requested_output_names": TEXTS_OR_BYTES,
    "parameters": {"None", "dict"},
    "name of a parameter": STRS | {"no UTF-8"},
    "value of a parameter": STRS | INTS | {"no UTF-8", "-1", "2**32", "2**63", "2**64"},
    "name of a tensor": TEXTS_OR_BYTES,
    "array of a tensor": {"array of no dimension", "array"},
    "message of an error": TEXTS_OR_BYTES,
    "error of a response": {"None"},
    "line of the log": TEXTS_OR_BYTES,
    "device": WHOLE_NUMBERS | {"-1", "2**32"},
    "max_batch_size": WHOLE_NUMBERS - {"__index__", "__int__"} | {"2**32", "2**63", "2**64", "float", "np.float64"},
}
# What only the built-in backend takes, and what only Triton's does.
ALSO_TAKEN = {
    "correlation_id": INDEXES - {"np.bool_"} | {"bytes", "bytearray", "np.bytes_"},
    "inputs": {"dict"},
    "value of a parameter": INDEXES,
    "message of an error": {"no UTF-8"},
    "line of the log": {"no UTF-8"},
}
NOT_TAKEN = {"name of a parameter": {"no UTF-8"}, "value of a parameter": {"no UTF-8", "2**63", "2**64"}}


@pytest.fixture(scope="module")
def taken(tmp_path_factory, python_backend):
    """What a backend takes, and what it is expected to take, by the place of the value."""
    folder = tmp_path_factory.mktemp("models")
    for name in ("taker", "mirror"):
        plugins.python_model(folder, name)
    options, variables = python_backend.options, python_backend.variables
    expected = dict(TAKEN)
    if python_backend is python_backends.BUILT_IN:
        expected = {place: names - NOT_TAKEN.get(place, set()) | ALSO_TAKEN.get(place, set()) for place, names in TAKEN.items()}
    with Server(tmp_path_factory.mktemp("server"), folder, *options, variables=variables) as server:
        server.wait_until_ready()
        with HTTP.connect(server) as client:
            asked = {place: client.infer("taker", [HTTP.input("PLACE", np.array([place], np.object_))]) for place in TAKEN}
    found = {place: {name.decode() for name in answer.as_numpy("TAKEN")} for place, answer in asked.items()}
    return found, expected


@pytest.mark.parametrize("place", TAKEN)
def test_both_backends_take_the_same_values(taken, place):
    found, expected = taken
    assert found[place] == expected[place]


@pytest.fixture(scope="module", params=python_backends.OURS)
def server(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for name in ("anything", "mirror"):
        plugins.python_model(folder, name)
    plugins.python_model(folder, "coroutines", text=COROUTINES, config=COROUTINES_CONFIG)
    plugins.python_model(folder, "texts", text=TEXTS, config=TEXTS_CONFIG)
    options, variables = request.param.options, request.param.variables
    with Server(tmp_path_factory.mktemp("server"), folder, *options, variables=variables) as server:
        yield server.wait_until_ready()


def draw(client, seed):
    return client.infer("anything", [GRPC.input("SEED", np.array([seed]))])


def test_whatever_a_model_gives_its_process_lives(server):
    """Each seed is a request in which the model makes random calls."""
    with GRPC.connect(server) as client:
        process = draw(client, -1).as_numpy("WHO").item()
        counts, answered = np.zeros(2, int), 0
        for seed in range(SEEDS):
            try:
                counted = draw(client, seed).as_numpy("COUNTS")
            except InferenceServerException:
                counted = None
            if counted is not None:
                counts, answered = counts + counted, answered + 1
            assert draw(client, -1).as_numpy("WHO").item() == process, f"the process has ended with seed {seed}"
        # Both ways are tried often.
        assert answered > SEEDS // 10 and min(counts) > SEEDS
    assert metric(server, "nereid_python_worker_restarts_total", model="anything", version=1) == 0


@pytest.mark.parametrize("kind", range(3))
def test_texts_of_every_kind_are_texts(server, kind):
    with HTTP.connect(server) as client:
        answer = client.infer("texts", [HTTP.input("KIND", np.array([kind]))])
        assert answer.as_numpy("DONE").item() == kind


def test_of_a_kind_of_str_its_text_counts(server):
    with HTTP.connect(server) as client, pytest.raises(InferenceServerException) as failed:
        client.infer("texts", [HTTP.input("KIND", np.array([3]))])
    assert failed.value.message() == "the error"
    # The model's process sends its lines beside the answers.
    server.wait_for_log("a line of the model")
    assert "another name" not in server.log()


def test_a_decoupled_model_that_returns_a_coroutine_goes_on_beside_others(server):
    """Each execution waits until there are four."""
    received = queue.Queue()
    with GRPC.connect(server) as client:
        client.start_stream(lambda result, error: received.put((result, error)))
        for _ in range(4):
            client.async_stream_infer("coroutines", [GRPC.input("WHAT", np.array([1]))])
        answers = [received.get(timeout=PATIENCE) for _ in range(4)]
    assert [(result and result.as_numpy("DONE").item(), error) for result, error in answers] == [(4, None)] * 4
