"""Models that clients load and unload: startup, states, errors, and modes in which clients may not."""

import re
import shutil

import adders
import grpc as grpc_library
import pytest
import repository as models
import requests
from adders import EXPLICIT, answer, index, loads, refusal, repository_of, write_adder
from protocols import GRPC, HTTP
from serving import PATIENCE, command, eventually, run_to_end
from tritonclient.grpc import service_pb2, service_pb2_grpc

NOT_ALLOWED = (
    "explicit model load / unload is not allowed if polling is enabled. "
    "Model control mode 'explicit' allows it (--model-control-mode=explicit)"
)
NOT_POLLED = "failed to load '{0}', failed to poll from model repository"


@pytest.fixture
def folder(tmp_path):
    """A repository of three models that add 1, 2 and 3."""
    return repository_of(tmp_path, "a", "b", "c")


@pytest.fixture
def explicit(start, folder):
    return start(folder, EXPLICIT)


@pytest.fixture
def client(protocol, explicit):
    with protocol.connect(explicit) as client:
        yield client


def test_an_explicit_server_starts_with_no_model(protocol, client):
    assert client.is_server_live() and client.is_server_ready()
    assert index(protocol, client) == {name: [(None, None, None)] for name in "abc"}
    text = "Request for unknown model: 'a' is not found"
    assert refusal(answer, protocol, client, "a") == (protocol.status("NOT_FOUND"), text)


@pytest.mark.parametrize(
    "options, loaded", [(["--load-model=a", "--load-model=c"], "ac"), (["--load-model=*"], "abc")], ids=["names", "all"]
)
def test_an_explicit_server_starts_with_the_models_that_it_was_given(start, folder, protocol, options, loaded):
    with protocol.connect(start(folder, EXPLICIT, *options)) as client:
        expected = {name: [("1", "READY", None) if name in loaded else (None, None, None)] for name in "abc"}
        assert index(protocol, client) == expected


def test_an_unknown_startup_model_ends_the_server(folder):
    ended = run_to_end(*command(folder, EXPLICIT, "--load-model=a", "--load-model=nope")[1:])
    assert ended.returncode == 1
    assert "error: creating server: Internal - failed to load all models" in ended.stderr
    assert NOT_POLLED.format("nope") in ended.stderr


def test_an_unknown_startup_model_may_be_left_out(start, folder, protocol):
    server = start(folder, EXPLICIT, "--load-model=a", "--load-model=nope", "--exit-on-error=false")
    with protocol.connect(server) as client:
        assert client.is_server_live() and answer(protocol, client, "a") == 1
        assert "nope" not in index(protocol, client)


def test_all_models_and_a_name_are_refused(folder):
    ended = run_to_end(*command(folder, EXPLICIT, "--load-model=*", "--load-model=a")[1:])
    assert ended.returncode == 1
    text = "Wildcard model name '*' must be the ONLY startup model if specified at all."
    assert f"error: creating server: Invalid argument - {text}" in ended.stderr


def test_startup_models_need_the_explicit_mode(folder):
    ended = run_to_end(*command(folder, "--load-model=a")[1:])
    assert ended.returncode == 1
    text = "Error: Use of '--load-model' requires setting '--model-control-mode=explicit' as well."
    assert text in ended.stderr


def test_an_unknown_control_mode_is_refused(folder):
    ended = run_to_end(*command(folder, "--model-control-mode=sometimes")[1:])
    assert ended.returncode == 1
    assert "invalid argument for --model-control-mode" in ended.stderr


def test_a_control_mode_may_be_written_in_capitals(start, folder):
    with HTTP.connect(start(folder, "--model-control-mode=EXPLICIT")) as client:
        client.load_model("a")


def test_a_model_is_loaded_and_unloaded(protocol, client):
    client.load_model("a")
    assert index(protocol, client)["a"] == [("1", "READY", None)]
    assert client.is_model_ready("a") and client.is_server_ready()
    assert answer(protocol, client, "a") == answer(protocol, client, "a", "1") == 1

    client.unload_model("a")
    eventually(lambda: adders.is_unloaded(protocol, client, "a"), "the model to be unloaded")
    assert index(protocol, client)["a"] == [("1", "UNAVAILABLE", "unloaded")]
    assert client.is_server_ready() and not client.is_model_ready("a")

    client.load_model("a")
    assert index(protocol, client)["a"] == [("1", "READY", None)]
    assert answer(protocol, client, "a") == 1


def test_requests_for_a_model_that_is_unloaded_have_their_texts(protocol, client):
    client.load_model("a")
    client.unload_model("a")
    unknown = "Request for unknown model: 'a' "
    missing, not_ready = protocol.status("NOT_FOUND"), protocol.status("UNAVAILABLE")
    assert refusal(answer, protocol, client, "a") == (missing, unknown + "has no available versions")
    assert refusal(answer, protocol, client, "a", "1") == (not_ready, unknown + "version 1 is not at ready state")
    assert refusal(answer, protocol, client, "a", "7") == (missing, unknown + "version 7 is not found")


def test_unloading_what_is_not_loaded_succeeds(protocol, client):
    client.unload_model("nope")
    client.unload_model("b")
    client.unload_model("b", unload_dependents=True)
    assert index(protocol, client)["b"] == [(None, None, None)]


def test_loading_again_without_a_change_does_nothing(protocol, explicit, client):
    client.load_model("a")
    answer(protocol, client, "a")
    for _ in range(3):
        client.load_model("a")
    assert loads(explicit, "a") == 1
    assert protocol.statistics(client, "a")["inference_count"] == 1


def test_only_a_version_whose_files_have_changed_is_loaded_again(protocol, explicit, client, folder):
    for version in (1, 2):
        write_adder(folder, "many", version, version, adders.ALL)
    client.load_model("many")
    (folder / "many" / "2" / "model.onnx").touch()
    client.load_model("many")
    assert (loads(explicit, "many", 1), loads(explicit, "many", 2)) == (1, 2)


def test_the_index_may_be_limited_to_ready_models(protocol, explicit, client):
    client.load_model("b")
    if protocol is HTTP:
        url = f"http://{explicit.http}/v2/repository/index"
        lines = requests.post(url, json={"ready": True}, timeout=PATIENCE).json()
        assert lines == [{"name": "b", "version": "1", "state": "READY"}]
    else:
        with grpc_library.insecure_channel(explicit.grpc) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            (line,) = stub.RepositoryIndex(service_pb2.RepositoryIndexRequest(ready=True)).models
        assert (line.name, line.version, line.state, line.reason) == ("b", "1", "READY", "")


def test_a_model_that_no_repository_has_cannot_be_loaded(protocol, client):
    code, text = refusal(client.load_model, "nope")
    assert code == protocol.status("INTERNAL") and text.startswith(NOT_POLLED.format("nope")), text
    assert index(protocol, client) == {name: [(None, None, None)] for name in "abc"}
    assert client.is_server_ready()


def test_a_model_that_no_repository_has_is_logged(explicit, client):
    refusal(client.load_model, "nope")
    assert "failed to poll model 'nope': model not found in any model repository." in explicit.log()


def test_loads_are_logged(explicit, client):
    client.load_model("a")
    assert '"loading: a:1"' in explicit.log() and "successfully loaded 'a'" in explicit.log()


def test_unloads_are_logged(protocol, explicit, client):
    client.load_model("a")
    client.unload_model("a")
    eventually(lambda: adders.is_unloaded(protocol, client, "a"), "the model to be unloaded")
    # The index shows it before the line is written.
    explicit.wait_for_log("successfully unloaded 'a' version 1")


def test_a_model_that_is_added_later_can_be_loaded(protocol, client, folder):
    write_adder(folder, "later", 9)
    client.load_model("later")
    assert answer(protocol, client, "later") == 9


@pytest.mark.parametrize(
    "config, reason",
    [
        ("max_batch_size: many", r"config\.pbtxt.*max_batch_size"),
        ('name: "other"\nbackend: "onnxruntime"', "unexpected directory name 'a' for model 'other', directory name must"),
        ("nonsense: 1", r"config\.pbtxt.*nonsense"),
    ],
    ids=["number", "name", "field"],
)
def test_a_broken_configuration_is_told_with_its_reason(protocol, explicit, client, folder, config, reason):
    (folder / "a" / "config.pbtxt").write_text(config)
    code, text = refusal(client.load_model, "a")
    assert code == protocol.status("INTERNAL")
    assert re.match(re.escape(NOT_POLLED.format("a")) + f": .*{reason}", text), text
    ((version, state, told),) = index(protocol, client)["a"]
    assert (version, state) == (None, "UNAVAILABLE") and re.search(reason, told), told
    assert re.search(f'E.*"Poll failed for model directory \'a\': .*{reason}', explicit.log())


def test_a_load_that_fails_names_its_versions(protocol, explicit, client, folder):
    models.broken(folder)
    reason = "Invalid argument: unexpected inference output 'NOPE', allowed outputs are: Y"
    text = f"load failed for model 'broken': version 1 is at UNAVAILABLE state: {reason};\n"
    assert refusal(client.load_model, "broken") == (protocol.status("INVALID_ARGUMENT"), text)
    assert index(protocol, client)["broken"] == [("1", "UNAVAILABLE", reason)]
    assert f"\"failed to load 'broken' version 1: {reason}\"" in explicit.log()
    unknown, because = "Request for unknown model: 'broken' ", f": version 1 is UNAVAILABLE: {reason}"
    text = f"{unknown}has no available versions{because}"
    assert refusal(answer, protocol, client, "broken") == (protocol.status("NOT_FOUND"), text)
    assert refusal(client.get_model_metadata, "broken") == (protocol.status("NOT_FOUND"), text)
    text = f"{unknown}version 1 is not at ready state{because}"
    assert refusal(answer, protocol, client, "broken", "1") == (protocol.status("UNAVAILABLE"), text)
    assert not client.is_server_ready() and not client.is_model_ready("broken")


def test_a_failed_model_that_is_repaired_can_be_loaded(protocol, client, folder):
    models.broken(folder, "a")
    refusal(client.load_model, "a")
    write_adder(folder, "a", 5)
    client.load_model("a")
    assert answer(protocol, client, "a") == 5 and client.is_server_ready()


def test_a_failed_model_that_is_deleted_does_not_keep_the_server_from_being_ready(protocol, client, folder):
    models.broken(folder)
    refusal(client.load_model, "broken")
    shutil.rmtree(folder / "broken")
    assert "broken" not in index(protocol, client)
    assert client.is_server_ready()


def test_a_failed_model_that_is_deleted_is_forgotten_without_a_question(client, folder):
    models.broken(folder)
    refusal(client.load_model, "broken")
    shutil.rmtree(folder / "broken")
    client.unload_model("broken")
    assert client.is_server_ready()


def test_versions_of_which_one_fails_are_not_served(protocol, client, folder):
    write_adder(folder, "half", 1, 1, adders.ALL)
    write_adder(folder, "half", 2, 2, adders.ALL)
    (folder / "half" / "2" / "model.onnx").write_bytes(b"this is no model")
    code, text = refusal(client.load_model, "half")
    assert code == protocol.status("INVALID_ARGUMENT")
    expected = r"load failed for model 'half': version 2 is at UNAVAILABLE state: \w+: .*onnx runtime error.*;\n"
    assert re.fullmatch(expected, text), text
    (first, (version, state, reason)) = index(protocol, client)["half"]
    assert first == ("1", "UNAVAILABLE", "unloaded")
    assert (version, state) == ("2", "UNAVAILABLE") and "onnx runtime error" in reason


def test_a_policy_that_selects_no_version_is_an_error(protocol, client, folder):
    write_adder(folder, "none", 1, 1, "version_policy { specific { versions: [7] } }")
    text = "at least one version must be available under the version policy of model 'none'"
    expected = protocol.status("INVALID_ARGUMENT"), f"load failed for model 'none': {text}\n"
    assert refusal(client.load_model, "none") == expected


@pytest.mark.parametrize("name", ["..", "a/b", ""])
def test_names_that_are_no_names_are_refused(explicit, name):
    text = f"invalid model name '{name}', model name must not contain path traversal characters"
    with GRPC.connect(explicit) as client:
        text = text if name else "Model name cannot be empty. Please enter a valid name to deploy."
        assert refusal(client.load_model, name) == (GRPC.status("INVALID_ARGUMENT"), text)
    if name == "..":
        with HTTP.connect(explicit) as client:
            assert refusal(client.load_model, name) == (HTTP.status("INVALID_ARGUMENT"), text)


# A call of gRPC, its members, and its code and text.
PARAMETER = service_pb2.ModelRepositoryParameter
REPOSITORY = "'repository_name' specification is not supported"
BAD_MESSAGES = {
    "a repository": ("ModelLoad", {"repository_name": "r"}, ("UNIMPLEMENTED", REPOSITORY)),
    "a repository to unload from": ("ModelUnload", {"repository_name": "r"}, ("UNIMPLEMENTED", REPOSITORY)),
    "a repository to list": ("Index", {"repository_name": "r"}, ("UNIMPLEMENTED", REPOSITORY)),
    "config": (
        "ModelLoad",
        {"parameters": {"config": PARAMETER(int64_param=1)}},
        ("INVALID_ARGUMENT", "invalid value type for load parameter 'config', expected string_param."),
    ),
    "file": (
        "ModelLoad",
        {"parameters": {"file:1/x": PARAMETER(string_param="")}},
        ("INVALID_ARGUMENT", "invalid value type for load parameter 'file:1/x', expected bytes_param."),
    ),
    "nonsense": (
        "ModelLoad",
        {"parameters": {"nonsense": PARAMETER(string_param="")}},
        ("INVALID_ARGUMENT", "unrecognized load parameter 'nonsense'."),
    ),
    "unload_dependents": (
        "ModelUnload",
        {"parameters": {"unload_dependents": PARAMETER(string_param="")}},
        ("INVALID_ARGUMENT", "invalid value type for 'unload_dependents' parameter, expected bool_param."),
    ),
}


@pytest.mark.parametrize("what", BAD_MESSAGES)
def test_bad_messages_of_grpc_are_refused(explicit, what):
    call, members, expected = BAD_MESSAGES[what]
    message = getattr(service_pb2, f"Repository{call}Request")(**members)
    with grpc_library.insecure_channel(explicit.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        with pytest.raises(grpc_library.RpcError) as error:
            getattr(stub, f"Repository{call}")(message)
    assert (error.value.code().name, error.value.details()) == expected


# A path, the parameters of the body, and the status and the text.
BAD_BODIES = {
    "a repository": ("r/models/a/load", {}, 501, REPOSITORY),
    "config": ("models/a/load", {"config": {}}, 500, "attempt to access JSON non-string as string"),
    "file": ("models/a/load", {"file:1/x": 1}, 500, "attempt to access JSON non-string as string"),
    "nonsense": ("models/a/load", {"nonsense": ""}, 500, "unexpected error on creating Triton parameter"),
}


@pytest.mark.parametrize("what", BAD_BODIES)
def test_bad_bodies_of_http_are_refused(explicit, what):
    path, parameters, status, text = BAD_BODIES[what]
    url = f"http://{explicit.http}/v2/repository/{path}"
    response = requests.post(url, json={"parameters": parameters}, timeout=PATIENCE)
    assert (response.status_code, response.json()) == (status, {"error": text})


def test_a_wrong_type_in_an_unload_request_unloads_nothing(explicit):
    with HTTP.connect(explicit) as client:
        client.load_model("a")
        url = f"http://{explicit.http}/v2/repository/models/a/unload"
        response = requests.post(url, json={"parameters": {"unload_dependents": "yes"}}, timeout=PATIENCE)
        assert response.status_code == 400
        assert response.json()["error"].startswith("Unable to parse 'unload_dependents': ")
        assert index(HTTP, client)["a"] == [("1", "READY", None)]


@pytest.mark.parametrize("mode", ["none", "poll"])
def test_clients_may_not_control_models_in_the_other_modes(start, folder, protocol, mode):
    with protocol.connect(start(folder, f"--model-control-mode={mode}")) as client:
        expected = protocol.status("UNAVAILABLE"), NOT_ALLOWED
        for call in (client.load_model, client.unload_model):
            assert refusal(call, "a") == expected
            assert refusal(call, "nope") == expected
        assert refusal(client.load_model, "a", config=adders.JSON_CONFIG) == expected
        assert index(protocol, client) == {name: [("1", "READY", None)] for name in "abc"}
