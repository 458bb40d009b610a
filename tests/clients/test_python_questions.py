"""Requests that models in Python make: everything that a request of a client has, they have."""

import json

import numpy as np
import plugins
import pytest
import python_backends
from protocols import GRPC
from serving import Server

SERVED = ["asker", "hearer", "streamer", "adder_direct", "adder_oldest", "unruly", "mirror"]


@pytest.fixture(scope="module")
def server(tmp_path_factory, python_backend):
    folder = tmp_path_factory.mktemp("models")
    for name in SERVED:
        plugins.python_model(folder, name, *plugins.SERVED.get(name, (name, "")))
    options, variables = python_backend.options, python_backend.variables
    with Server(tmp_path_factory.mktemp("server"), folder, *options, variables=variables) as server:
        yield server.wait_until_ready()


@pytest.fixture
def ask(server):
    with GRPC.connect(server) as client:

        def ask(model, inputs, *outputs, **more):
            wanted = json.dumps({"model": model, "inputs": inputs, "outputs": outputs} | more)
            result = client.infer("asker", [GRPC.input("ASK", np.array([wanted], np.object_))])
            return json.loads(result.as_numpy("ANSWER").item())

        yield ask


X = {"X": ["float32", [7]]}
DOUBLE = {"X": ["float64", [7]]}


def test_a_model_says_what_a_client_can_say(ask):
    more = {"request_id": "mine", "timeout": 60_000_000, "parameters": {"text": "value", "number": -7, "truth": True}}
    [answer] = ask("hearer", X, "HEARD", model_version=1, **more)
    assert set(answer) == {"HEARD"}
    heard = json.loads(answer["HEARD"][0])
    assert (heard["id"], heard["outputs"], heard["timeout"]) == ("mine", ["HEARD"], 60_000_000)
    assert heard["parameters"] == more["parameters"]


def test_a_model_asks_for_the_outputs_that_it_needs(ask):
    assert ask("hearer", X, "Y") == [{"Y": ["7.0"]}]
    assert set(ask("hearer", X, "Y", "HEARD")[0]) == {"Y", "HEARD"}


@pytest.mark.parametrize("model, who", [("adder_direct", 7), ("adder_oldest", "seven")])
def test_a_model_has_sequences(ask, model, who):
    def step(x, flags):
        [answer] = ask(model, {"X": ["int32", [[x]]]}, "SUM", "HEARD", correlation_id=who, flags=flags)
        heard = json.loads(answer["HEARD"][0])
        assert (heard["corrid"], heard["id"]) == (who, who)
        return int(answer["SUM"][0]), heard["start"], heard["end"]

    assert [step(1, 1), step(2, 0), step(3, 2)] == [(1, 1, 0), (3, 0, 0), (6, 0, 1)]


KINDS = {"BOOL": "bool", "UINT64": "uint64", "INT8": "int8", "FP16": "float16", "FP64": "float64"}
VALUES = {"bool": [True, False], "uint64": [0, 2**64 - 1], "int8": [-128, 127], "float16": [0.5, -2], "float64": [0.1, 1e300]}


@pytest.mark.parametrize("datatype", KINDS)
def test_tensors_go_and_come_back(ask, datatype):
    kind = KINDS[datatype]
    [answer] = ask("mirror", {f"INPUT_{datatype}": [kind, VALUES[kind]]}, f"OUTPUT_{datatype}")
    assert answer == {f"OUTPUT_{datatype}": [str(value) for value in np.array(VALUES[kind], kind)]}


def test_strings_go_and_come_back(ask):
    texts = ["", "grün", "x" * 1_000_000]
    assert ask("mirror", {"INPUT_STRING": ["object", texts]}, "OUTPUT_STRING") == [{"OUTPUT_STRING": texts}]


@pytest.mark.parametrize("code, number", [("INTERNAL", 1), ("NOT_FOUND", 2), ("INVALID_ARG", 3), ("UNAVAILABLE", 4)])
def test_an_error_of_the_other_model_has_its_text(ask, code, number):
    [answer] = ask("unruly", {"WHAT": ["object", [[code]]]}, "DONE")
    assert answer["error"].endswith(f"told to say {code}")


def test_what_the_server_refuses_is_an_error_of_the_response(ask, python_backend):
    unknown = "Request for unknown model: 'hearer' version 9 is not found"
    refusals = {
        "inference input 'X' data-type is 'FP64', but model 'hearer' expects 'FP32'": ("hearer", DOUBLE, ["Y"], {}),
        "unexpected inference output 'Z' for model 'hearer'": ("hearer", X, ["Z"], {}),
        "inference request to model 'adder_direct' must specify": ("adder_direct", {"X": ["int32", [[1]]]}, ["SUM"], {}),
        python_backends.refusal_of_unknown(python_backend, "hearer", unknown): ("hearer", X, ["Y"], {"model_version": 9}),
    }
    for words, (model, inputs, outputs, more) in refusals.items():
        [answer] = ask(model, inputs, *outputs, **more)
        assert answer["error"].startswith(f"Model {model} - Error when running inference: ")
        assert words in answer["error"]


# Triton's backend of the version that the tests have cannot do so.
@pytest.mark.parametrize("python_backend", python_backends.OURS, indirect=True, scope="module")
def test_a_model_cancels_what_it_asked(ask, tmp_path):
    told = tmp_path / "told"
    first, last = ask("streamer", {"N": ["int32", [0]], "TELL": ["object", [str(told)]]}, "OUT", cancel=True)
    assert first == {"OUT": ["0"]} and last["error"]
    assert told.read_text().startswith("cancelled")
