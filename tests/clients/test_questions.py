"""What can be asked of a server besides inference, by both client libraries."""

import base64

import pytest
from protocols import add_sub_inputs
from repository import DATATYPES
from tritonclient.utils import InferenceServerException


def test_the_server_is_live_and_ready(client):
    assert client.is_server_live() and client.is_server_ready()


def test_a_model_is_ready_or_not_but_never_an_error(client):
    assert client.is_model_ready("add_sub")
    assert client.is_model_ready("versions", "2")
    assert not client.is_model_ready("none")
    assert not client.is_model_ready("versions", "9")


def test_the_server_tells_its_name_and_extensions(client, protocol):
    metadata = protocol.json(client.get_server_metadata)
    assert metadata["name"] == "triton"
    assert metadata["version"]
    promised = {"classification", "model_repository", "schedule_policy", "model_configuration", "binary_tensor_data"}
    assert promised | {"parameters", "statistics"} <= set(metadata["extensions"])


def test_metadata_shows_the_batch_dimension_and_all_versions(client, protocol):
    metadata = protocol.json(client.get_model_metadata, "add_sub")
    assert (metadata["name"], metadata["versions"]) == ("add_sub", ["1"])
    assert metadata["inputs"] == [{"name": f"INPUT{index}", "datatype": "INT32", "shape": [-1, 16]} for index in (0, 1)]
    assert [output["name"] for output in metadata["outputs"]] == ["OUTPUT0", "OUTPUT1"]
    assert protocol.json(client.get_model_metadata, "versions")["versions"] == ["1", "2", "3"]


@pytest.mark.parametrize("datatype", DATATYPES)
def test_metadata_names_every_datatype(client, protocol, datatype):
    metadata = protocol.json(client.get_model_metadata, f"identity_{datatype.lower()}")
    assert metadata["inputs"] == [{"name": "INPUT", "datatype": datatype, "shape": [-1]}]


def configuration(client, protocol, model):
    answer = protocol.json(client.get_model_config, model)
    return answer if protocol.name == "http" else answer["config"]


def test_a_configuration_is_shown_as_it_was_written(client, protocol):
    config = configuration(client, protocol, "held_bounded")
    assert (config["name"], config["backend"], config["max_batch_size"]) == ("held_bounded", "identity", 1)
    assert config["dynamic_batching"]["default_queue_policy"]["max_queue_size"] == 2
    assert config["instance_group"][0]["count"] == 1


def test_a_configuration_is_shown_completed(client, protocol):
    config = configuration(client, protocol, "completed")
    assert (config["backend"], config["max_batch_size"]) == ("onnxruntime", 4)
    assert (config["input"][0]["name"], config["input"][0]["data_type"]) == ("X", "TYPE_FP32")
    assert (config["output"][0]["name"], config["output"][0]["dims"]) == ("Y", [3])
    assert "dynamic_batching" in config


@pytest.mark.parametrize("question", ["get_model_metadata", "get_model_config"])
def test_an_unknown_model_is_named(client, protocol, question):
    with pytest.raises(InferenceServerException) as refusal:
        getattr(client, question)("none")
    assert refusal.value.message() == "Request for unknown model: 'none' is not found"
    assert refusal.value.status() == protocol.status("NOT_FOUND")


def test_the_index_lists_every_version_as_ready(client, protocol):
    index = protocol.json(client.get_model_repository_index)
    index = index if protocol.name == "http" else index["models"]
    assert {entry["state"] for entry in index} == {"READY"}
    names = [(entry["name"], entry["version"]) for entry in index]
    assert names == sorted(names)
    assert [version for name, version in names if name == "versions"] == ["1", "2", "3"]
    assert ("add_sub", "1") in names


@pytest.mark.parametrize("question", ["load_model", "unload_model"])
def test_models_cannot_be_loaded_one_by_one_unless_the_server_was_started_so(client, protocol, question):
    with pytest.raises(InferenceServerException) as refusal:
        getattr(client, question)("add_sub")
    allowed = "Model control mode 'explicit' allows it (--model-control-mode=explicit)"
    assert refusal.value.message() == f"explicit model load / unload is not allowed if polling is enabled. {allowed}"
    assert refusal.value.status() == protocol.status("UNAVAILABLE")
    assert client.is_model_ready("add_sub")


def test_an_answered_request_is_in_the_statistics(client, protocol):
    """The model is called by this test only, so numbers are exact; they are there when the answer is."""
    before = protocol.statistics(client, "counted")
    for batch in (1, 3, 3):
        client.infer("counted", add_sub_inputs(protocol, batch)[0])
    after = protocol.statistics(client, "counted")

    def grown(*path):
        def number(value):
            for key in path:
                value = value.get(key, 0)
            return value

        return number(after) - number(before)

    assert (grown("inference_count"), grown("execution_count")) == (7, 3)
    assert after["last_inference"] >= before.get("last_inference", 0) > -1
    for phase in ("success", "queue", "compute_input", "compute_infer", "compute_output"):
        assert grown("inference_stats", phase, "count") == 3, phase
        assert grown("inference_stats", phase, "ns") > 0, phase
    assert grown("inference_stats", "fail", "count") == 0

    def batches(statistics):
        return {entry["batch_size"]: entry["compute_infer"]["count"] for entry in statistics.get("batch_stats", [])}

    assert batches(after)[1] - batches(before).get(1, 0) == 1
    assert batches(after)[3] - batches(before).get(3, 0) == 2


def test_statistics_without_a_name_are_of_all_models(client, protocol):
    everything = protocol.json(client.get_inference_statistics)["model_stats"]
    names = [(statistics["name"], statistics["version"]) for statistics in everything]
    assert names == sorted(names) and ("versions", "2") in names and ("add_sub", "1") in names


def test_statistics_of_an_unknown_model_are_refused(client, protocol):
    with pytest.raises(InferenceServerException) as refusal:
        client.get_inference_statistics("none")
    assert refusal.value.message() == "requested model 'none' is not available"
    assert refusal.value.status() == protocol.status("INVALID_ARGUMENT")


@pytest.mark.parametrize("kind", ["system", "cuda"])
def test_no_shared_memory_is_registered_and_none_can_be(client, protocol, kind):
    status = protocol.json(getattr(client, f"get_{kind}_shared_memory_status"))
    assert not (status if protocol.name == "http" else status.get("regions"))
    region = ("region", "/key", 64) if kind == "system" else ("region", base64.b64encode(bytes(64)), 0, 64)
    with pytest.raises(InferenceServerException) as refusal:
        getattr(client, f"register_{kind}_shared_memory")(*region)
    assert refusal.value.message().startswith("Client shared memory is disabled.")
    assert refusal.value.status() == protocol.status("UNIMPLEMENTED")


def test_a_tensor_in_shared_memory_that_nobody_registered_is_refused(client, protocol):
    tensor = protocol.library.InferInput("INPUT", [16], "INT32")
    tensor.set_shared_memory("region", 64)
    with pytest.raises(InferenceServerException) as refusal:
        client.infer("identity_int32", [tensor])
    assert refusal.value.message() == "Unable to find shared memory region: 'region'"
    assert refusal.value.status() == protocol.status("NOT_FOUND")
