"""Models in Python: tensors, batches, sequences, errors, and what a model hears and tells."""

import json
import math
import re

import ml_dtypes
import numpy as np
import plugins
import pytest
import repository as models
import requests
from protocols import GRPC, HTTP, metric, pending
from serving import PATIENCE, eventually
from tritonclient.utils import InferenceServerException


@pytest.fixture
def client(protocol, python_server):
    with protocol.connect(python_server) as client:
        yield client


VALUES = {
    "BOOL": np.array([True, False, True]),
    "BF16": np.array([1.5, -2.0], ml_dtypes.bfloat16),
    "FP16": np.array([0.5, -65504.0, np.inf], np.float16),
    "FP32": np.array([0.1, -1e30], np.float32),
    "FP64": np.array([0.1, 1e300]),
    "BYTES": np.array([b"", b"\x00\xff", "grün".encode(), b"x" * 3_000_000], np.object_),
} | {
    name: np.array([np.iinfo(kind).min, np.iinfo(kind).max], kind)
    for kind in ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64")
    for name in [kind.upper()]
}


@pytest.mark.parametrize("datatype", VALUES)
def test_tensors_of_every_datatype_come_back_as_they_went(protocol, client, datatype):
    name = datatype.replace("BYTES", "STRING")
    sent = VALUES[datatype]
    result = client.infer("mirror", [protocol.input(f"INPUT_{name}", sent, datatype)])
    received = result.as_numpy(f"OUTPUT_{name}")
    assert received.dtype == sent.dtype
    np.testing.assert_array_equal(received, sent)


def test_a_tensor_may_outgrow_the_memory_that_the_model_shares_at_first(client, protocol):
    sent = np.random.default_rng(1).random(4 << 20, np.float32)
    received = client.infer("mirror", [protocol.input("INPUT_FP32", sent)]).as_numpy("OUTPUT_FP32")
    np.testing.assert_array_equal(received, sent)


def test_an_empty_tensor_is_one(client, protocol):
    received = client.infer("mirror", [protocol.input("INPUT_FP32", np.empty(0, np.float32))]).as_numpy("OUTPUT_FP32")
    assert received.shape == (0,)


def test_the_configuration_that_the_model_completes_is_the_servers(client, protocol):
    config = protocol.json(client.get_model_config, "waiter")
    config = config.get("config", config)
    assert (config["max_batch_size"], "dynamic_batching" in config) == (8, True)
    assert [tensor["name"] for tensor in config["input"]] == ["X", "UNTIL"]
    assert [(tensor["name"], tensor["data_type"]) for tensor in config["output"]] == [
        ("Y", "TYPE_FP32"),
        ("TOGETHER", "TYPE_INT32"),
    ]


def test_requests_that_wait_are_executed_together(python_server, threads, tmp_path):
    gate = tmp_path / "gate"

    def ask(x):
        with GRPC.connect(python_server) as client:
            result = client.infer("waiter", plugins.waiter_inputs(GRPC, x, gate))
            return result.as_numpy("Y").item(), result.as_numpy("TOGETHER").item()

    with GRPC.connect(python_server) as client:
        before = GRPC.statistics(client, "waiter").get("inference_count", 0)
        first = threads.submit(ask, -1)
        eventually(plugins.begun(gate), "the first to be executed")
        others = [threads.submit(ask, x) for x in range(5)]
        eventually(lambda: pending(python_server, "waiter") == 5, "the others to wait")
        gate.touch()
        assert first.result(PATIENCE) == (-2, 1)
        assert [other.result(PATIENCE) for other in others] == [(2 * x, 5) for x in range(5)]

        statistics = GRPC.statistics(client, "waiter")
        assert statistics["inference_count"] == before + 6
        assert 5 in {row["batch_size"] for row in statistics["batch_stats"]}


def test_the_statistics_are_what_the_backend_reports(client, protocol):
    before = protocol.statistics(client, "mirror")
    client.infer("mirror", [protocol.input("INPUT_FP32", np.zeros(1 << 20, np.float32))])
    after = protocol.statistics(client, "mirror")
    assert after["inference_count"] == before.get("inference_count", 0) + 1
    assert after["execution_count"] == before.get("execution_count", 0) + 1

    def spent(kind):
        earlier = before.get("inference_stats", {}).get(kind, {})
        later = after["inference_stats"][kind]
        assert later["count"] == earlier.get("count", 0) + 1
        return later["ns"] - earlier.get("ns", 0)

    # Four megabytes are copied to the model and back.
    parts = [spent(kind) for kind in ("compute_input", "compute_infer", "compute_output")]
    assert all(part > 10_000 for part in parts), parts
    # The answer is on its way when the backend looks at the clock for the last time.
    assert parts[0] + parts[1] + spent("queue") <= spent("success")


def test_parameters_may_be_infinite_or_no_number(python_server):
    body = """{"inputs": [{"name": "X", "datatype": "FP32", "shape": [1], "data": [0]}], "outputs": [{"name": "HEARD"}],
               "parameters": {"none": NaN, "least": -Infinity, "most": Infinity, "half": 0.5}}"""
    answer = requests.post(f"http://{python_server.http}/v2/models/hearer/infer", data=body, timeout=PATIENCE)
    [output] = answer.json()["outputs"]
    heard = json.loads(output["data"][0])["parameters"]
    assert math.isnan(heard.pop("none"))
    assert heard == {"least": -math.inf, "most": math.inf, "half": 0.5}


def test_a_model_hears_everything_about_a_request_and_itself(python_server, client, protocol):
    result = client.infer(
        "hearer",
        [protocol.input("X", np.zeros(1, np.float32))],
        outputs=[protocol.output("HEARD")],
        request_id="the id",
        timeout=60_000_000,
        parameters={"text": "value", "number": -7, "truth": True},
    )
    assert result.get_output("Y") is None
    assert (result.get_response() if protocol is HTTP else {"id": result.get_response().id})["id"] == "the id"
    heard = json.loads(result.as_numpy("HEARD").item())
    assert (heard["id"], heard["outputs"], heard["timeout"]) == ("the id", ["HEARD"], 60_000_000)
    assert heard["parameters"] == {"text": "value", "number": -7, "truth": True}
    args = heard["args"]
    config = args.pop("model_config")
    folder = args.pop("model_repository")
    assert args == {
        "model_name": "hearer",
        "model_version": "1",
        "model_instance_kind": "CPU",
        "model_instance_device_id": "0",
        "model_instance_name": "hearer_0",
    }
    assert folder.endswith("/models/hearer") and heard["directory"] == f"{folder}/1"
    assert config["parameters"]["FROM"]["string_value"] == "the configuration"
    assert [(group["name"], group["kind"], group["count"]) for group in config["instance_group"]] == [("hearer", "KIND_CPU", 1)]


def test_all_outputs_are_sent_where_none_is_named(client, protocol):
    result = client.infer("hearer", [protocol.input("X", np.array([7], np.float32))])
    assert result.as_numpy("Y").item() == 7
    assert json.loads(result.as_numpy("HEARD").item())["outputs"] == ["HEARD", "Y"]


def do(client, protocol, what):
    return client.infer("unruly", [protocol.input("WHAT", np.array([[what]], np.object_))])


HEAD = "Failed to process the request(s) for model 'unruly_0', message: "
BROKEN_RULES = {
    "raise": "ValueError: not today\n\nAt:\n",
    "no list": "Expected a list in the execute return, found type '<class 'str'>'.",
    "too few": (
        "Number of InferenceResponse objects do not match the number of InferenceRequest objects. "
        "InferenceRequest(s) size is:1, and InferenceResponse(s) size is:0\n"
    ),
}


@pytest.mark.parametrize("what", BROKEN_RULES)
def test_a_failing_execution_is_told_with_the_models_words_and_the_model_goes_on(client, protocol, what):
    with pytest.raises(InferenceServerException) as failed:
        do(client, protocol, what)
    assert failed.value.status() == protocol.status("INTERNAL")
    assert HEAD + BROKEN_RULES[what] in failed.value.message()
    assert do(client, protocol, "behave").as_numpy("DONE").item() == b"behave"


CODES = {
    "INTERNAL": ("500", "INTERNAL"),
    "NOT_FOUND": ("404", "NOT_FOUND"),
    "INVALID_ARG": ("400", "INVALID_ARGUMENT"),
    "UNAVAILABLE": ("503", "UNAVAILABLE"),
    "UNSUPPORTED": ("501", "UNIMPLEMENTED"),
    "ALREADY_EXISTS": ("400", "ALREADY_EXISTS"),
    "CANCELLED": ("400", "CANCELLED"),
}


@pytest.mark.parametrize("code", CODES)
def test_an_error_of_the_model_has_its_code_and_text(client, protocol, code):
    with pytest.raises(InferenceServerException) as failed:
        do(client, protocol, code)
    http, grpc = CODES[code]
    assert failed.value.status() == (http if protocol is HTTP else f"StatusCode.{grpc}")
    assert failed.value.message() == f"told to say {code}"


@pytest.mark.parametrize("strategy, first, second", [("direct", 7, 8), ("oldest", "seven", "eight")])
def test_sequences_have_their_controls_and_their_ids(client, protocol, strategy, first, second):
    def step(who, x, start=False, end=False):
        inputs = [protocol.input("X", np.array([[x]], np.int32))]
        named = {"sequence_id": who, "sequence_start": start, "sequence_end": end}
        result = client.infer(f"adder_{strategy}", inputs, **named)
        heard = json.loads(result.as_numpy("HEARD").item())
        assert (heard["corrid"], heard["id"], heard["ready"]) == (who, who, 1)
        assert (heard["start"], heard["end"], heard["flags"]) == (start, end, start + 2 * end)
        return result.as_numpy("SUM").item(), heard["open"]

    assert step(first, 1, start=True) == (1, 1)
    assert step(second, 10, start=True)[0] == 10
    assert step(first, 2)[0] == 3
    assert step(second, 20, end=True)[0] == 30
    assert step(first, 3, end=True)[0] == 6


def test_metrics_of_a_model_stand_beside_the_servers(python_server, client, protocol):
    def read(name, **labels):
        return metric(python_server, name, model="reporter", of="ours", **labels)

    before = {name: read(name) for name in ("asked", "lengths_count", "lengths_sum")}
    for text in ("", "four", "seventeen letters"):
        client.infer("reporter", [protocol.input("SAY", np.array([text], np.object_))])
    assert read("asked") - before["asked"] == 3
    assert read("latest_length") == 17
    assert (read("lengths_count") - before["lengths_count"], read("lengths_sum") - before["lengths_sum"]) == (3, 21)
    assert read("lengths_bucket", le="1") < read("lengths_bucket", le="10") < read("lengths_bucket", le="+Inf")
    text = requests.get(python_server.metrics, timeout=PATIENCE).text
    assert "# HELP asked what is asked\n# TYPE asked counter\n" in text
    assert "# TYPE lengths histogram\n" in text


def test_what_a_model_logs_stands_in_the_servers_log_with_its_place(python_server, client, protocol):
    text = f"said over {protocol.name}"
    client.infer("reporter", [protocol.input("SAY", np.array([text], np.object_))])
    for letter, level in (("I", "info"), ("W", "warning"), ("E", "error")):
        line = re.compile(rf'^{letter}\d{{4}} .* model\.py:\d+\] "{level}: {text}"$', re.MULTILINE)
        # The model's process sends its lines beside the answers.
        eventually(lambda line=line: line.search(python_server.log()), f"the line of {level}")
    assert f"verbose: {text}" not in python_server.log()


BAD_MODELS = {
    "raises": (
        "class TritonPythonModel:\n    def initialize(self, args):\n        raise KeyError('nothing here')\n",
        "KeyError: 'nothing here'",
    ),
    "nameless": ("class Other:\n    pass\n", "has no attribute 'TritonPythonModel'"),
    "misspelt": ("import nothing_of_that_name\n", "ModuleNotFoundError: No module named 'nothing_of_that_name'"),
    "contradicts": (
        "class TritonPythonModel:\n"
        "    @staticmethod\n"
        "    def auto_complete_config(config):\n"
        "        config.add_input({'name': 'X', 'data_type': 'TYPE_FP64', 'dims': [1]})\n"
        "        return config\n",
        "unable to load model 'contradicts', configuration expects datatype TYPE_FP32 for input 'X', model provides TYPE_FP64",
    ),
    "careless": (
        "class TritonPythonModel:\n    @staticmethod\n    def auto_complete_config(config):\n        pass\n",
        "auto_complete_config function in model 'careless' must return a valid pb.ModelConfig object.",
    ),
}


def test_a_model_that_cannot_be_loaded_says_why_in_pythons_words(start_python, tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    tensors = models.tensor("input", "X", "FP32", 1) + models.tensor("output", "Y", "FP32", 1)
    for name, (text, _) in BAD_MODELS.items():
        plugins.python_model(folder, name, text=text, config="" if name == "careless" else tensors)
    plugins.python_model(folder, "waiter")
    server = start_python(folder, "--exit-on-error=false", "--strict-readiness=false")
    with HTTP.connect(server) as client:
        index = eventually(lambda: client.get_model_repository_index(), "the index")
        reasons = {model["name"]: (model["state"], model.get("reason", "")) for model in index}
        assert reasons.pop("waiter")[0] == "READY"
        for name, (_, words) in BAD_MODELS.items():
            state, reason = reasons[name]
            assert state == "UNAVAILABLE" and words in reason
        assert client.infer("waiter", plugins.waiter_inputs(HTTP, 4)).as_numpy("Y").item() == 8
