"""What lies in a repository and is no model or no version; version policies, version strings, and files of a model."""

import adders
import grpc as grpc_library
import numpy as np
import pytest
import repository as models
import requests
from adders import EXPLICIT, READY, answer, index, refusal, write_adder
from protocols import GRPC, HTTP
from serving import PATIENCE
from tritonclient.grpc import service_pb2, service_pb2_grpc


@pytest.fixture
def folder(tmp_path):
    """A repository of the model `a`, which adds 1."""
    return adders.repository_of(tmp_path, "a")


@pytest.fixture
def explicit(start, folder):
    return start(folder, EXPLICIT)


@pytest.fixture
def client(protocol, explicit):
    with protocol.connect(explicit) as client:
        yield client


def ready_versions(protocol, client, name):
    return {version for version, state, _ in index(protocol, client)[name] if state == "READY"}


POLICIES = {
    "": {"10"},
    "version_policy { latest { num_versions: 2 } }\n": {"2", "10"},
    adders.ALL: {"1", "2", "10"},
    "version_policy { specific { versions: [1, 7] } }\n": {"1"},
}


@pytest.mark.parametrize("policy", POLICIES, ids=["default", "latest", "all", "specific"])
def test_a_policy_selects_versions_by_their_number(protocol, explicit, client, folder, policy):
    for version in (1, 2, 10):
        write_adder(folder, "many", version, version, policy)
    client.load_model("many")
    assert ready_versions(protocol, client, "many") == POLICIES[policy]
    assert answer(protocol, client, "many") == max(map(int, POLICIES[policy]))
    absent = "version 7 is specified for model 'many', but the version directory is not present"
    assert (absent in explicit.log()) == ("7" in policy)


def test_a_policy_of_no_version_is_an_error(protocol, client, folder):
    write_adder(folder, "none", 1, 1, "version_policy { latest { num_versions: 0 } }\n")
    code, text = refusal(client.load_model, "none")
    assert code == protocol.status("INVALID_ARGUMENT")
    assert "at least one version must be available under the version policy of model 'none'" in text


# What an index must not show, and what is told of it.
NO_VERSIONS = {
    "01": "ignore version directory '01' which contains leading zeros in its directory name",
    "abc": "ignore version directory 'abc' which fails to convert to integral number",
    "2abc": "ignore version directory '2abc' which fails to convert to integral number",
    "+5": "ignore version directory '+5' which fails to convert to integral number",
    "-1": "ignore version directory '-1' which fails to convert to integral number",
    "99999999999999999999": "ignore version directory '99999999999999999999' which fails to convert to integral number",
    "warmup": None,
    "configs": None,
    "initial_state": None,
}


@pytest.mark.parametrize("name", NO_VERSIONS)
def test_directories_that_are_no_versions_are_left_out(protocol, explicit, client, folder, name):
    write_adder(folder, "a", 1, config=adders.ALL)
    (folder / "a" / name).mkdir()
    client.load_model("a")
    assert index(protocol, client)["a"] == READY and client.is_server_live()
    lines = [line for line in explicit.log().splitlines() if line.startswith("W") and f"'{name}'" in line]
    assert [NO_VERSIONS[name] in line for line in lines] == ([True] if NO_VERSIONS[name] else [])


def test_what_is_no_model_directory_is_left_out(start, folder, protocol):
    """Triton takes a hidden directory for a model, and a link without a target hides the repository."""
    (folder / ".git").mkdir()
    (folder / "lost+found").mkdir()
    (folder / "README.md").write_text("models")
    (folder / "dangling").symlink_to(folder / "nowhere")
    (folder / "linked").symlink_to(write_adder(folder.parent, "elsewhere", 7))
    config = folder / "linked" / "config.pbtxt"
    config.write_text(config.read_text().replace('name: "elsewhere"', ""))
    server = start(folder)
    with protocol.connect(server) as client:
        assert index(protocol, client) == {"a": READY, "linked": READY}
        assert answer(protocol, client, "linked") == 7
    warnings = [line for line in server.log().splitlines() if line.startswith("W")]
    for name in (".git", "dangling"):
        assert sum(str(folder / name) in line for line in warnings) == 1


@pytest.mark.parametrize("version", ["-1", "abc", "1x", "1.0"])
def test_a_version_that_is_no_number_has_no_path(server, version):
    url = f"http://{server.http}/v2/models/versions/versions/{version}"
    response = requests.get(url, timeout=PATIENCE)
    assert (response.status_code, response.json()) == (404, {"error": "Not Found"})


NOT_INTEGRAL = "version should be an integral value > 0"
BIG = "9" * 20


def test_a_version_that_is_too_big_is_told_over_http(server):
    response = requests.get(f"http://{server.http}/v2/models/versions/versions/{BIG}", timeout=PATIENCE)
    text = f"failed to get model version from specified version string '{BIG}' (details: stol), {NOT_INTEGRAL}"
    assert (response.status_code, response.json()) == (400, {"error": text})


@pytest.mark.parametrize("version", ["-1", "abc", BIG])
def test_a_version_that_is_no_number_is_told_over_grpc(server, version):
    texts = [
        f"invalid model version specified '{version}' , {NOT_INTEGRAL}",
        f"failed to get model version from specified version string '{version}' (details: stol), {NOT_INTEGRAL}",
    ]
    with grpc_library.insecure_channel(server.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        with pytest.raises(grpc_library.RpcError) as error:
            stub.ModelMetadata(service_pb2.ModelMetadataRequest(name="versions", version=version))
    told = error.value.code().name, error.value.details()
    assert told == ("INVALID_ARGUMENT", texts[version != "-1"])


def test_a_label_file_that_is_not_there_fails_the_load(protocol, client, folder):
    models.classifier(folder)
    path = folder / "classifier" / "labels.txt"
    path.unlink()
    code, text = refusal(client.load_model, "classifier")
    assert code == protocol.status("INVALID_ARGUMENT")
    reason = f"Internal: failed to open text file for read {path}: No such file or directory"
    assert text.startswith(f"load failed for model 'classifier': version 1 is at UNAVAILABLE state: {reason}"), text


ESCAPES = {
    "label_filename": (
        'output { name: "Y" data_type: TYPE_FP32 dims: [1] label_filename: "../x" }\n',
        "label file path '../x' for output 'Y' in model 'b' is outside model directory",
    ),
    "warmup": (
        'model_warmup { name: "w" batch_size: 1 inputs { key: "X" value {'
        ' data_type: TYPE_FP32 dims: [1] input_data_file: "../../x" } } }\n',
        "warmup file path '../../x' for input 'X' in model 'b' is outside model directory",
    ),
    "default_model_filename": (
        'default_model_filename: "../../a/1/model.onnx"\n',
        "default_model_filename '../../a/1/model.onnx' of model 'b' leads out of the version directory",
    ),
}


@pytest.mark.parametrize("what", ESCAPES)
def test_files_outside_the_directory_of_a_model_are_refused(protocol, client, folder, what):
    config, expected = ESCAPES[what]
    (folder / "x").write_bytes(np.zeros(1, np.float32).tobytes())
    write_adder(folder, "b", 2)
    text = (folder / "b" / "config.pbtxt").read_text()
    if what == "label_filename":
        text = text[: text.index("output")]
    (folder / "b" / "config.pbtxt").write_text(text + config)
    _, told = refusal(client.load_model, "b")
    assert expected in told


def test_labels_that_come_with_the_configuration_are_in_the_answers(protocol, client, folder):
    models.classifier(folder)
    config = folder / "classifier" / "config.pbtxt"
    whole = config.read_text()
    config.write_text(whole.replace('label_filename: "labels.txt"', ""))
    client.load_model("classifier")

    def labels():
        features = [protocol.input("FEATURES", np.ones((1, 4), np.float32))]
        output = protocol.output("PROBABILITIES", class_count=3)
        told = client.infer("classifier", features, outputs=[output]).as_numpy("PROBABILITIES").flatten()
        return {row.decode().partition(":")[2].partition(":")[2] for row in told}

    assert labels() == {""}
    config.write_text(whole)
    client.load_model("classifier")
    assert labels() == set(models.LABELS)


@pytest.mark.parametrize("path", ["%2e%2e", "a%2fb", "..%2fa"])
def test_encoded_names_that_are_no_names_are_refused(explicit, path):
    url = f"http://{explicit.http}/v2/repository/models/{path}/load"
    connection = requests.Session()
    request = requests.Request("POST", url, json={}).prepare()
    request.url = url
    response = connection.send(request, timeout=PATIENCE)
    assert response.status_code == 400
    name = requests.utils.unquote(path)
    text = f"invalid model name '{name}', model name must not contain path traversal characters"
    assert response.json() == {"error": text}


@pytest.mark.parametrize(
    "method, body, status",
    [("GET", None, 405), ("POST", '{"ready": "yes"}', 400), ("POST", "nonsense", 500), ("POST", None, 200), ("POST", "", 200)],
)
def test_an_index_is_asked_for_with_a_post(explicit, method, body, status):
    url = f"http://{explicit.http}/v2/repository/index"
    response = requests.request(method, url, data=body, timeout=PATIENCE)
    assert response.status_code == status, response.text
    if status == 405:
        assert response.json() == {"error": "Method Not Allowed"}


def test_a_file_that_is_not_in_base64_is_named(explicit):
    url = f"http://{explicit.http}/v2/repository/models/a/load"
    parameters = {"config": adders.JSON_CONFIG, "file:1/model.onnx": "not in base64!"}
    response = requests.post(url, json={"parameters": parameters}, timeout=PATIENCE)
    assert response.status_code >= 400 and "file:1/model.onnx" in response.json()["error"]
    with HTTP.connect(explicit) as client:
        assert index(HTTP, client)["a"] == [(None, None, None)]


def test_an_explicit_load_of_a_hidden_name_is_allowed(explicit, folder):
    write_adder(folder, ".hidden", 9)
    with GRPC.connect(explicit) as client:
        client.load_model(".hidden")
        assert answer(GRPC, client, ".hidden") == 9
