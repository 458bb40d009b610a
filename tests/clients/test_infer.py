"""Inference as both client libraries offer it: the same question, the same answer."""

import queue

import numpy as np
import pytest
from protocols import add_sub_inputs
from repository import DATATYPES, LABELS, classifier_weights
from tritonclient.utils import InferenceServerException, triton_to_np_dtype

VALUES = {
    "BOOL": [True, False, True],
    "FP16": [0.0, -1.5, 65504.0],
    "BF16": [0.0, -1.5, 2.0**100],
    "FP32": [0.0, -1.5, 3.4e38],
    "FP64": [0.0, 0.1, -1.7e308],
    "BYTES": [b"text", b"", b"\xff\x80 not UTF-8", "größer".encode()],
}


def values(datatype):
    """An array that shows the limits of the datatype."""
    if datatype == "BYTES":
        return np.array(VALUES[datatype], dtype=object)
    kind = triton_to_np_dtype(datatype)
    if datatype in VALUES:
        return np.array(VALUES[datatype], dtype=kind)
    return np.array([np.iinfo(kind).min, 0, 1, np.iinfo(kind).max], dtype=kind)


def identity(client, protocol, array, datatype):
    model = f"identity_{datatype.lower()}"
    return client.infer(model, [protocol.input("INPUT", array, datatype)]).as_numpy("OUTPUT")


@pytest.mark.parametrize("datatype", DATATYPES)
def test_every_datatype_comes_back_as_it_was_sent(client, protocol, datatype):
    sent = values(datatype)
    received = identity(client, protocol, sent, datatype)
    assert received.dtype == sent.dtype
    np.testing.assert_array_equal(received, sent)


@pytest.mark.parametrize("datatype", DATATYPES)
def test_a_tensor_without_elements_keeps_its_shape_and_datatype(client, protocol, datatype):
    sent = values(datatype)[:0]
    tensor = protocol.input("INPUT", sent, datatype)
    result = client.infer(f"identity_{datatype.lower()}", [tensor])
    output = result.get_output("OUTPUT")
    output = output if isinstance(output, dict) else {"datatype": output.datatype, "shape": output.shape}
    assert (output["datatype"], list(output["shape"])) == (datatype, [0])


@pytest.mark.parametrize("datatype", ["FP16", "FP32", "FP64"])
def test_what_is_no_number_and_infinity_survive(client, protocol, datatype):
    sent = np.array([np.nan, np.inf, -np.inf, -0.0], triton_to_np_dtype(datatype))
    received = identity(client, protocol, sent, datatype)
    assert received.tobytes() == sent.tobytes()


def test_sixteen_megabytes_travel_both_ways(client, protocol):
    sent = np.random.default_rng(1).random((1024, 4096), dtype=np.float32)
    received = client.infer("matrix", [protocol.input("INPUT", sent)]).as_numpy("OUTPUT")
    np.testing.assert_array_equal(received, sent)


def test_a_million_strings_travel_both_ways(client, protocol):
    sent = np.array([b"%d" % number for number in range(1_000_000)], dtype=object)
    np.testing.assert_array_equal(identity(client, protocol, sent, "BYTES"), sent)


@pytest.mark.parametrize("batch", [1, 3, 8])
def test_a_batch_is_answered_row_by_row(client, protocol, batch):
    inputs, first = add_sub_inputs(protocol, batch)
    result = client.infer("add_sub", inputs)
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), first + 1000)
    np.testing.assert_array_equal(result.as_numpy("OUTPUT1"), first - 1000)


def test_only_the_outputs_asked_for_come_back(client, protocol):
    inputs, first = add_sub_inputs(protocol)
    result = client.infer("add_sub", inputs, outputs=[protocol.output("OUTPUT1")])
    np.testing.assert_array_equal(result.as_numpy("OUTPUT1"), first - 1000)
    assert result.as_numpy("OUTPUT0") is None


def test_an_answer_names_its_request_model_and_version(client, protocol):
    inputs, _ = add_sub_inputs(protocol)
    response = client.infer("add_sub", inputs, request_id="request 7").get_response()
    if protocol.name == "grpc":
        response = {"id": response.id, "model_name": response.model_name, "model_version": response.model_version}
    assert (response["id"], response["model_name"], response["model_version"]) == ("request 7", "add_sub", "1")


def test_a_request_without_id_is_answered_without_id(client, protocol):
    inputs, _ = add_sub_inputs(protocol)
    response = client.infer("add_sub", inputs).get_response()
    assert response.get("id", "") == "" if protocol.name == "http" else response.id == ""


def test_parameters_priority_and_timeout_are_taken_by_a_model_that_ignores_them(client, protocol):
    inputs, first = add_sub_inputs(protocol)
    parameters = {"text": "x", "count": 3, "yes": True, "share": 0.5}
    result = client.infer("add_sub", inputs, priority=1, timeout=1_000_000, parameters=parameters)
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), first + 1000)


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_requests_and_responses_may_be_compressed(client, protocol, algorithm):
    sent = np.zeros((256, 256), np.float32)
    if protocol.name == "http":
        options = {"request_compression_algorithm": algorithm, "response_compression_algorithm": algorithm}
    else:
        options = {"compression_algorithm": algorithm}
    received = client.infer("matrix", [protocol.input("INPUT", sent)], **options).as_numpy("OUTPUT")
    np.testing.assert_array_equal(received, sent)


def test_a_classification_gives_the_best_classes_with_their_labels(client, protocol):
    features = np.array([[1, -2, 0.5, 3], [-1, 2, 0, 0.25]], np.float32)
    best = protocol.output("PROBABILITIES", class_count=2)
    rows = client.infer("classifier", [protocol.input("FEATURES", features)], outputs=[best]).as_numpy("PROBABILITIES")

    weights = classifier_weights()
    scores = np.maximum(features @ weights["w1"] + weights["b1"], 0) @ weights["w2"] + weights["b2"]
    shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    assert rows.shape == (2, 2)
    for row, share in zip(rows, shares, strict=True):
        for text, index in zip(row, np.argsort(-share)[:2], strict=True):
            value, number, label = text.decode().split(":")
            assert (int(number), label) == (index, LABELS[index])
            assert float(value) == pytest.approx(share[index], abs=2e-6)


def test_without_a_version_the_latest_answers(client, protocol):
    x = protocol.input("X", np.array([[0.5]], np.float32))
    answers = {version: client.infer("versions", [x], version).as_numpy("Y").item() for version in ("", "1", "2", "3")}
    assert answers == {"": 3.5, "1": 1.5, "2": 2.5, "3": 3.5}


def test_a_model_without_configuration_is_completed_from_its_graph(client, protocol):
    x = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    result = client.infer("completed", [protocol.input("X", x)])
    np.testing.assert_array_equal(result.as_numpy("Y"), -x)


def test_asynchronous_requests_are_all_answered(server, protocol):
    count = 20
    with protocol.connect(server, **({"concurrency": 4} if protocol.name == "http" else {})) as client:
        inputs, first = add_sub_inputs(protocol)
        if protocol.name == "http":
            calls = [client.async_infer("add_sub", inputs, request_id=str(index)) for index in range(count)]
            results = [call.get_result() for call in calls]
            ids = [result.get_response()["id"] for result in results]
        else:
            answers = queue.Queue()
            for index in range(count):
                client.async_infer(
                    "add_sub", inputs, lambda result, error: answers.put((result, error)), request_id=str(index)
                )
            results, errors = zip(*(answers.get(timeout=60) for _ in range(count)), strict=True)
            assert set(errors) == {None}
            ids = [result.get_response().id for result in results]
    assert sorted(ids, key=int) == [str(index) for index in range(count)]
    for result in results:
        np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), first + 1000)


NOTE = (
    " NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended to each"
    " input shape. If you want to specify the full shape including the batch dim in your input dims config, try"
    " setting max_batch_size to zero. See the model configuration docs for more info on max_batch_size."
)


def ints(*shape):
    return np.zeros(shape, np.int32)


# What is sent, the error's code, and its text.
REFUSED = {
    "an unknown model": ({"model": "none"}, "NOT_FOUND", "Request for unknown model: 'none' is not found"),
    "an unknown version": (
        {"version": "9"},
        "NOT_FOUND",
        "Request for unknown model: 'add_sub' version 9 is not found",
    ),
    "a missing input": (
        {"inputs": {"INPUT0": ints(1, 16)}},
        "INVALID_ARGUMENT",
        "[request id: r1] expected 2 inputs but got 1 inputs for model 'add_sub'. Got input(s) ['INPUT0'], but missing"
        " required input(s) ['INPUT1']. Please provide all required input(s).",
    ),
    "an unknown output": (
        {"outputs": ["NOPE"]},
        "INVALID_ARGUMENT",
        "unexpected inference output 'NOPE' for model 'add_sub'. Available output(s): ['OUTPUT0','OUTPUT1']",
    ),
    "a wrong datatype": (
        {"inputs": {"INPUT0": np.zeros((1, 16), np.float32), "INPUT1": ints(1, 16)}},
        "INVALID_ARGUMENT",
        "[request id: r1] inference input 'INPUT0' data-type is 'FP32', but model 'add_sub' expects 'INT32'",
    ),
    "a wrong shape": (
        {"inputs": {"INPUT0": ints(1, 15), "INPUT1": ints(1, 16)}},
        "INVALID_ARGUMENT",
        "[request id: r1] unexpected shape for input 'INPUT0' for model 'add_sub'. Expected [-1,16], got [1,15]."
        + NOTE,
    ),
    "a batch that is too large": (
        {"inputs": {"INPUT0": ints(9, 16), "INPUT1": ints(9, 16)}},
        "INVALID_ARGUMENT",
        "[request id: r1] inference request batch-size must be <= 8 for 'add_sub'",
    ),
    "batches of different sizes": (
        {"inputs": {"INPUT0": ints(1, 16), "INPUT1": ints(2, 16)}},
        "INVALID_ARGUMENT",
        "[request id: r1] input 'INPUT0' batch size does not match other inputs for 'add_sub'",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_request_that_does_not_fit_is_refused_by_name(client, protocol, what):
    sent, code, text = REFUSED[what]
    inputs = sent.get("inputs", {"INPUT0": ints(1, 16), "INPUT1": ints(1, 16)})
    with pytest.raises(InferenceServerException) as refusal:
        client.infer(
            sent.get("model", "add_sub"),
            [protocol.input(name, array) for name, array in inputs.items()],
            sent.get("version", ""),
            outputs=[protocol.output(name) for name in sent.get("outputs", [])] or None,
            request_id="r1",
        )
    assert (refusal.value.message(), refusal.value.status()) == (text, protocol.status(code))


def test_a_request_without_id_is_refused_as_such(client, protocol):
    with pytest.raises(InferenceServerException, match="<id_unknown>. expected 2 inputs but got 1 inputs"):
        client.infer("add_sub", [protocol.input("INPUT0", ints(1, 16))])


def test_a_failing_execution_is_answered_and_the_model_stays_usable(client, protocol):
    with pytest.raises(InferenceServerException) as failure:
        client.infer("picky", [protocol.input("INDEX", np.array([7]))])
    assert "idx=7" in failure.value.message()
    assert failure.value.status() == protocol.status("INTERNAL")
    values = client.infer("picky", [protocol.input("INDEX", np.array([2, 0]))]).as_numpy("VALUE")
    np.testing.assert_array_equal(values, [30, 10])
