"""Ensembles with members in Python: conditions that depend on what is computed, and streams."""

import ensembles
import numpy as np
import plugins
import pytest
from ensembles import NO_BATCHES, Executed, Stream, infer, network, step
from protocols import GRPC
from repository import tensor
from serving import Server
from tritonclient.utils import InferenceServerException

# Finds what is greater than 0; answers without FOUND if there is nothing.
FINDER = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.find(request) for request in requests]

    def find(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        if (x < -1000).any():
            return pb_utils.InferenceResponse([], pb_utils.TritonError("nothing so small"))
        outputs = [pb_utils.Tensor("COUNT", np.array([(x > 0).sum()], np.int32))]
        if (x > 0).any():
            outputs.append(pb_utils.Tensor("FOUND", x[x > 0]))
        return pb_utils.InferenceResponse(outputs)
"""

# Doubles what it is given; a model whose executions are worth being saved.
COSTLY = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        given = pb_utils.get_input_tensor_by_name(request, "GIVEN")
        given = np.empty(0, np.float32) if given is None else given.as_numpy()
        return pb_utils.InferenceResponse([pb_utils.Tensor("DOUBLED", 2 * given)])
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    x = tensor("input", "X", "FP32", -1)
    count = tensor("output", "COUNT", "INT32", 1)
    plugins.python_model(folder, "finder", text=FINDER, config=NO_BATCHES + x + count + tensor("output", "FOUND", "FP32", -1))
    given = tensor("input", "GIVEN", "FP32", -1, more="optional: true") + tensor("output", "DOUBLED", "FP32", -1)
    plugins.python_model(folder, "costly", text=COSTLY, config=NO_BATCHES + given)
    plugins.python_model(folder, "streamer")
    plugins.python_model(folder, "mirror")
    ensembles.write(
        folder,
        "find",
        NO_BATCHES + x + count + tensor("output", "DOUBLED", "FP32", -1),
        step("finder", {"X": "X"}, {"COUNT": "COUNT", "FOUND": "found"}),
        step("costly", {"GIVEN": "found"}, {"DOUBLED": "DOUBLED"}),
    )
    number = "(int32[1] X) => (int32[1] Y) { Y = Neg(X) }"
    network(folder, "negate", number, NO_BATCHES + tensor("input", "X", "INT32", 1) + tensor("output", "Y", "INT32", 1))
    ensembles.write(
        folder,
        "count",
        NO_BATCHES + tensor("input", "N", "INT32", 1) + tensor("output", "OUT", "INT32", 1),
        step("streamer", {"N": "N"}, {"OUT": "number"}),
        step("negate", {"X": "number"}, {"Y": "OUT"}),
    )
    texts = tensor("input", "INPUT", "BYTES", -1) + tensor("output", "OUTPUT", "BYTES", -1)
    mirror = step("mirror", {"INPUT_STRING": "INPUT"}, {"OUTPUT_STRING": "middle"})
    again = step("mirror", {"INPUT_STRING": "middle"}, {"OUTPUT_STRING": "OUTPUT"})
    ensembles.write(folder, "texts", NO_BATCHES + texts, mirror, again)
    return folder


@pytest.fixture(scope="module")
def server(folder, tmp_path_factory, python_backend):
    options, variables = python_backend.options, python_backend.variables
    with Server(tmp_path_factory.mktemp("server"), folder, *options, variables=variables) as server:
        yield server.wait_until_ready()


def test_what_a_model_finds_is_computed_with(protocol, client):
    with Executed(protocol, client, "finder", "costly") as executed:
        answer = infer(protocol, client, "find", {"X": np.array([-1, 2, 3], np.float32)})
        assert (answer["COUNT"].item(), answer["DOUBLED"].tolist()) == (2, [4, 6])
        assert executed.times() == [1, 1]


def test_where_a_model_finds_nothing_the_next_model_is_not_executed(protocol, client):
    with Executed(protocol, client, "finder", "costly") as executed:
        answer = infer(protocol, client, "find", {"X": np.array([-1, -2], np.float32)})
        assert set(answer) == {"COUNT"} and answer["COUNT"].item() == 0
        assert executed.times() == [1, 0]


def test_an_error_of_a_model_is_the_ensembles(protocol, client):
    with pytest.raises(InferenceServerException) as error:
        infer(protocol, client, "find", {"X": np.array([-2000], np.float32)})
    assert error.value.message() == "in ensemble 'find', nothing so small"
    assert error.value.status() == protocol.status("INTERNAL")


def test_texts_flow_unchanged_through_python(protocol, client):
    sent = np.array([b"", b"\x00\xff", "grün".encode(), b"x" * 100_000], np.object_)
    assert infer(protocol, client, "texts", {"INPUT": sent})["OUTPUT"].tolist() == sent.tolist()


@pytest.mark.parametrize("count", [0, 1, 50])
def test_numbers_of_a_decoupled_model_flow_on(server, count):
    with GRPC.connect(server) as client, Stream(client) as stream:
        stream.send("count", {"N": np.array([count], np.int32)})
        assert [response["OUT"].item() for response in stream.all()] == [-number for number in range(count)]


def test_numbers_before_an_error_stay_valid(server):
    with GRPC.connect(server) as client, Stream(client) as stream:
        stream.send("count", {"N": np.array([-3], np.int32)})
        numbers = []
        with pytest.raises(InferenceServerException) as error:
            while True:
                numbers.append(stream.next().as_numpy("OUT").item())
        assert error.value.message() == "in ensemble 'count', no more numbers"
        # What was on its way when the error came may be lost.
        assert numbers == [0, -1, -2][: len(numbers)]
