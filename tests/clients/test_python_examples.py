"""Models as in the examples of Triton's documentation of models in Python, written anew."""

import queue

import numpy as np
import plugins
import pytest
import python_backends
import repository as models
import requests
from protocols import GRPC, HTTP, metric
from serving import PATIENCE, Server
from test_pictures import BLUE, GREEN, RED
from tritonclient.utils import InferenceServerException

FOUR = [(kind, f"{kind.upper()}{number}", "FP32", 4) for kind in ("input", "output") for number in (0, 1)]
NAME = ("input", "MODEL_NAME", "BYTES", 1)
REPEAT = [("input", "IN", "INT32", -1), ("input", "DELAY", "UINT32", -1), ("input", "WAIT", "UINT32", 1)]
REPEAT += [("output", "OUT", "INT32", 1), ("output", "IDX", "UINT32", 1)]
SQUARE = [("input", "IN", "INT32", 1), ("output", "OUT", "INT32", 1)]
SUM = [("input", "IN", "INT32", 1), ("output", "SUM", "INT32", 1)]
DECOUPLED = "model_transaction_policy { decoupled: true }\n"

# Name: file, tensors, more of the configuration.
SERVED = {
    "add_sub": ("add_sub", FOUR, ""),
    "repeat_int32": ("repeat_int32", REPEAT, DECOUPLED),
    "square_int32": ("square_int32", SQUARE, DECOUPLED),
    "bls_sync": ("bls_sync", [NAME, *FOUR], ""),
    "bls_async": ("bls_async", [NAME, *FOUR], ""),
    "bls_decoupled_sync": ("bls_decoupled", SUM, ""),
    "bls_decoupled_async": ("bls_decoupled_async", SUM, ""),
    "batch_auto_complete": ("auto_complete", [], ""),
    "nobatch_auto_complete": ("auto_complete", [], ""),
    "custom_metrics": ("custom_metrics", [], ""),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory, python_backend):
    folder = tmp_path_factory.mktemp("models")
    for name, (file, tensors, more) in SERVED.items():
        config = more + "".join(models.tensor(*tensor) for tensor in tensors)
        plugins.python_model(folder, name, file, config)
    options, variables = python_backend.options, python_backend.variables
    with Server(tmp_path_factory.mktemp("server"), folder, *options, variables=variables) as server:
        yield server.wait_until_ready()


FIRST, SECOND = np.random.default_rng(1).random((2, 4), np.float32)


def add_sub(protocol, client, model, *more, shape=(4,)):
    inputs = [protocol.input("INPUT0", FIRST.reshape(shape)), protocol.input("INPUT1", SECOND.reshape(shape)), *more]
    result = client.infer(model, inputs)
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), (FIRST + SECOND).reshape(shape))
    np.testing.assert_array_equal(result.as_numpy("OUTPUT1"), (FIRST - SECOND).reshape(shape))


def test_add_sub(protocol, client):
    add_sub(protocol, client, "add_sub")


@pytest.mark.parametrize("model", ["bls_sync", "bls_async"])
def test_a_model_lets_another_one_work(protocol, client, model):
    add_sub(protocol, client, model, protocol.input("MODEL_NAME", np.array(["add_sub"], np.object_)))


@pytest.mark.parametrize("model", ["bls_sync", "bls_async"])
def test_a_model_that_asks_nobody_is_told(protocol, client, model):
    with pytest.raises(InferenceServerException) as failed:
        add_sub(protocol, client, model, protocol.input("MODEL_NAME", np.array(["undefined_model"], np.object_)))
    assert failed.value.status() == protocol.status("INTERNAL")
    message = failed.value.message()
    assert "Model undefined_model - Error when running inference: " in message
    if model == "bls_sync":
        assert message.startswith("Failed to process the request(s) for model 'bls_sync_0', message: TritonModelException: ")
        assert "\n\nAt:\n" in message and "bls_sync/1/model.py(" in message


@pytest.mark.parametrize("model, times", [("bls_decoupled_sync", 1), ("bls_decoupled_async", 2)])
def test_responses_of_a_decoupled_model_are_added(protocol, client, model, times):
    for number in (4, 2, 0, 1):
        result = client.infer(model, [protocol.input("IN", np.array([number], np.int32))])
        assert result.as_numpy("SUM").item() == times * number**2


def test_numbers_are_repeated_with_delays(server):
    values, delays = [4, 2, 0, 1], [1, 2, 3, 4]
    answers = queue.Queue()
    with GRPC.connect(server) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        for number in range(3):
            inputs = [
                GRPC.input("IN", np.array(values, np.int32) + number),
                GRPC.input("DELAY", np.array(delays, np.uint32)),
                GRPC.input("WAIT", np.array([5], np.uint32)),
            ]
            client.async_stream_infer("repeat_int32", inputs, request_id=str(number))
        seen = {str(number): [] for number in range(3)}
        for _ in range(12):
            result, error = answers.get(timeout=PATIENCE)
            assert error is None
            answer = result.as_numpy("IDX").item(), result.as_numpy("OUT").item()
            seen[result.get_response().id].append(answer)
    assert seen == {str(number): [(i, value + number) for i, value in enumerate(values)] for number in range(3)}


def test_square_sends_as_many_responses_as_its_number_says(server):
    answers = queue.Queue()
    with GRPC.connect(server) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        for number in (4, 2, 0, 1):
            client.async_stream_infer("square_int32", [GRPC.input("IN", np.array([number], np.int32))])
        numbers = [answers.get(timeout=PATIENCE)[0].as_numpy("OUT").item() for _ in range(7)]
    assert sorted(numbers) == [1, 2, 2, 4, 4, 4, 4]


@pytest.mark.parametrize("model, batch", [("nobatch_auto_complete", 0), ("batch_auto_complete", 4)])
def test_a_model_needs_no_configuration(protocol, client, model, batch):
    config = protocol.json(client.get_model_config, model)
    config = config.get("config", config)
    assert config.get("max_batch_size", 0) == batch and ("dynamic_batching" in config) == (batch > 0)
    for kind in ("input", "output"):
        tensors = [(tensor["name"], tensor["data_type"], tensor["dims"]) for tensor in config[kind]]
        assert tensors == [(f"{kind.upper()}{number}", "TYPE_FP32", [4]) for number in (0, 1)]
    add_sub(protocol, client, model, shape=(1, 4) if batch else (4,))


def test_a_model_reads_its_own_metrics(server, protocol, client):
    inputs = [protocol.input("INPUT0", FIRST)]
    taken = [client.infer("custom_metrics", inputs).as_numpy("TAKEN").item() for _ in range(2)]
    assert 0 < taken[0] < taken[1]
    assert metric(server, "requests_process_latency_ns", model="custom_metrics", version=1) == taken[1]
    text = requests.get(server.metrics, timeout=PATIENCE).text
    assert "# HELP requests_process_latency_ns Cumulative time spent processing requests\n" in text
    assert "# TYPE requests_process_latency_ns counter\n" in text


@pytest.fixture(scope="module", params=python_backends.OURS)
def picture_server(request, tmp_path_factory):
    """`preprocess` with Pillow, which the Python of Triton's backend does not have here, and an ensemble that averages."""
    folder = tmp_path_factory.mktemp("models")
    tensors = models.tensor("input", "INPUT_0", "BYTES", 1) + models.tensor("output", "OUTPUT_0", "FP32", 3, 8, 8)
    plugins.python_model(folder, "preprocess", config=f"max_batch_size: 8\ndynamic_batching {{}}\n{tensors}")
    average = "average (float[batch, 3, 8, 8] X) => (float[batch, 3] Y) { Y = ReduceMean<axes=[2, 3], keepdims=0>(X) }"
    ends = models.tensor("input", "X", "FP32", 3, 8, 8) + models.tensor("output", "Y", "FP32", 3)
    models.write(folder, "channels", models.graph(average), f"max_batch_size: 8\n{ends}")
    (folder / "colour" / "1").mkdir(parents=True)
    (folder / "colour" / "config.pbtxt").write_text(
        'platform: "ensemble"\nmax_batch_size: 8\n'
        + models.tensor("input", "INPUT", "BYTES", 1)
        + models.tensor("output", "OUTPUT", "FP32", 3)
        + """ensemble_scheduling { step [
            { model_name: "preprocess" model_version: -1
              input_map { key: "INPUT_0" value: "INPUT" } output_map { key: "OUTPUT_0" value: "pixels" } },
            { model_name: "channels" model_version: -1
              input_map { key: "X" value: "pixels" } output_map { key: "Y" value: "OUTPUT" } } ] }"""
    )
    with Server(
        tmp_path_factory.mktemp("server"), folder, *request.param.options, variables=request.param.variables
    ) as server:
        yield server.wait_until_ready()


def test_pictures_are_decoded_in_python(protocol, picture_server):
    with protocol.connect(picture_server) as client:
        files = np.array([[RED], [GREEN], [BLUE]], np.object_)
        shares = client.infer("colour", [protocol.input("INPUT", files)]).as_numpy("OUTPUT")
        np.testing.assert_allclose(shares * 255, [[250, 20, 10], [20, 200, 100], [0, 50, 60]], atol=0.01)


def test_what_is_no_picture_is_the_clients_fault(picture_server):
    with HTTP.connect(picture_server) as client, pytest.raises(InferenceServerException) as failed:
        client.infer("colour", [HTTP.input("INPUT", np.array([[b"no picture"]], np.object_))])
    assert failed.value.status() == "400"
    assert "in ensemble 'colour', cannot identify image file" in failed.value.message()
