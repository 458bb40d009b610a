"""The endpoint of SageMaker: health, invocations, and the models of a multi-model endpoint."""

import json

import numpy as np
import pytest
import repository as models
import requests
import tritonclient.http
from held import held_inputs
from protocols import GRPC, HTTP, add_sub_inputs
from serving import PATIENCE, eventually

BINARY = "application/vnd.sagemaker-triton.binary+json;json-header-size="
ON = ("--allow-sagemaker=true", "--sagemaker-port=0")


class Endpoint:
    """What the platform asks."""

    def __init__(self, server):
        self.server = server
        self._session = requests.Session()
        self._base = f"http://127.0.0.1:{server.port_of('Sagemaker HTTPService')}"

    def ask(self, method, path, body=None, **headers):
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        return self._session.request(method, self._base + path, data=body, headers=headers, timeout=PATIENCE)


def tensors(first):
    values = np.asarray(first).reshape(1, 16).tolist()
    tensor = {"datatype": "INT32", "shape": [1, 16], "data": values}
    return {"inputs": [{"name": name, **tensor} for name in ("INPUT0", "INPUT1")]}


BODY = tensors(range(16))


@pytest.fixture
def endpoint(start, tmp_path):
    def started(*options, **variables):
        folder = tmp_path / "models"
        folder.mkdir(exist_ok=True)
        models.add_sub(folder)
        variables.setdefault("SAGEMAKER_TRITON_DEFAULT_MODEL_NAME", "add_sub")
        return Endpoint(start(folder, *ON, *options, variables=variables))

    return started


def test_the_platform_asks_for_health_and_for_predictions(endpoint):
    platform = endpoint()
    assert platform.ask("GET", "/ping").status_code == 200
    answer = platform.ask("POST", "/invocations", BODY)
    assert answer.status_code == 200 and answer.json()["outputs"][0]["data"] == list(range(0, 32, 2))
    for method, path, status in (
        ("POST", "/ping", 405),
        ("GET", "/invocations", 405),
        ("GET", "/v2/health/live", 400),
        ("GET", "/", 400),
    ):
        assert platform.ask(method, path).status_code == status, path
    assert platform.server.log().count("Started Sagemaker HTTPService at 0.0.0.0:") == 1


def test_binary_tensors_are_marked_by_the_content_type(endpoint):
    platform = endpoint()
    inputs, first = add_sub_inputs(HTTP)
    outputs = [tritonclient.http.InferRequestedOutput("OUTPUT0", binary_data=True)]
    body, length = tritonclient.http.InferenceServerClient.generate_request_body(inputs, outputs=outputs)
    answer = platform.ask("POST", "/invocations", body, Content_Type=f"{BINARY}{length}")
    assert answer.status_code == 200
    kind = answer.headers["Content-Type"]
    assert kind.startswith(BINARY) and "Inference-Header-Content-Length" not in answer.headers
    result = tritonclient.http.InferenceServerClient.parse_response_body(
        answer.content, header_length=int(kind.removeprefix(BINARY))
    )
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), first + 1000)
    wrong = platform.ask("POST", "/invocations", body, Content_Type=f"x {BINARY}{length}")
    text = f"expect MIME type for binary data starts with '{BINARY}', got: x {BINARY}{length}"
    assert (wrong.status_code, wrong.json()) == (400, {"error": text})
    # The header of the other port has no meaning here, and neither has a coding.
    assert platform.ask("POST", "/invocations", BODY, Inference_Header_Content_Length="3").status_code == 200
    assert platform.ask("POST", "/invocations", BODY, Content_Encoding="gzip").status_code == 200


def test_failed_invocations_have_the_status_of_their_error(endpoint):
    platform = endpoint()
    for body, status in (("{", 500), ({"inputs": []}, 400)):
        answer = platform.ask("POST", "/invocations", body)
        assert answer.status_code == status and answer.json()["error"]


def test_without_a_variable_the_model_of_invocations_is_unknown(start, tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    models.add_sub(folder)
    platform = Endpoint(start(folder, *ON))
    answer = platform.ask("POST", "/invocations", BODY)
    assert answer.status_code == 404
    assert "'unspecified_SAGEMAKER_TRITON_DEFAULT_MODEL_NAME' is not found" in answer.json()["error"]


def test_a_ping_asks_for_readiness_unless_the_variable_says_live(start, tmp_path):
    folder = tmp_path / "models"
    (folder / "broken" / "1").mkdir(parents=True)
    (folder / "broken" / "1" / "model.onnx").write_text("this is no model")
    for mode, status in ((None, 400), ("ready", 400), ("live", 200)):
        variables = {"SAGEMAKER_TRITON_PING_MODE": mode} if mode else {}
        server = start(folder, *ON, "--exit-on-error=false", variables=variables)
        assert Endpoint(server).ask("GET", "/ping").status_code == status, mode


def test_restrictions_hold_here_too(endpoint):
    platform = endpoint("--http-restricted-api=inference,model-repository:key=secret")
    refused = platform.ask("POST", "/invocations", BODY)
    assert (refused.status_code, refused.json()) == (
        403,
        {"error": "This API is restricted, expecting header 'key'"},
    )
    assert platform.ask("POST", "/invocations", BODY, key="secret").status_code == 200
    assert platform.ask("GET", "/models").status_code == 403
    assert platform.ask("DELETE", "/models/x").status_code == 403
    assert platform.ask("GET", "/ping").status_code == 200


@pytest.fixture
def platform(start, tmp_path, backend_option):
    """A multi-model endpoint; its files are below a folder of the test instead of /opt/ml/models."""
    (tmp_path / "repository").mkdir()
    (tmp_path / "uploads").mkdir()
    server = start(
        tmp_path / "repository",
        *ON,
        backend_option,
        "--model-control-mode=explicit",
        variables={"NEREID_SAGEMAKER_MODEL_ROOT": str(tmp_path / "uploads")},
    )
    return Endpoint(server)


@pytest.fixture
def uploads(tmp_path, platform):
    return tmp_path / "uploads"


def upload(uploads, hash_, name="model"):
    """Files as the platform unpacks them; gives their URL."""
    folder = uploads / hash_
    folder.mkdir()
    if name == "model":
        models.add_sub(folder, "model")
    else:
        (folder / "model").mkdir()
        models.add_sub(folder / "model", name)
    return str(folder / "model")


def load(platform, hash_, url, **headers):
    return platform.ask("POST", "/models", {"model_name": hash_, "url": url}, **headers)


@pytest.mark.parametrize("name", ["model", "net"])
def test_models_are_loaded_invoked_listed_and_unloaded(platform, uploads, name):
    url = upload(uploads, "abc", name)
    assert platform.ask("POST", "/models/abc/invoke", BODY).status_code == 404
    assert platform.ask("GET", "/models").json() == {"models": []}
    loaded = load(platform, "abc", url)
    assert (loaded.status_code, loaded.content) == (200, b"")
    answer = platform.ask("POST", "/models/abc/invoke", BODY)
    assert answer.status_code == 200 and answer.json()["outputs"][0]["data"] == list(range(0, 32, 2))
    assert answer.json()["model_name"] == "abc"
    # The URL that is shown is the repository, as Triton shows it.
    repository = url if name == "net" else url.removesuffix("/model")
    shown = {"modelName": "abc", "modelUrl": repository}
    assert platform.ask("GET", "/models").json() == {"models": [shown]}
    assert platform.ask("GET", "/models/abc").json() == shown
    assert load(platform, "abc", url).status_code == 409
    unloaded = platform.ask("DELETE", "/models/abc")
    assert (unloaded.status_code, unloaded.content) == (200, b"")
    for method, path in (("GET", "/models/abc"), ("DELETE", "/models/abc"), ("POST", "/models/abc/invoke")):
        gone = platform.ask(method, path, BODY if method == "POST" else None)
        assert (gone.status_code, gone.content) == (404, b"")
    assert load(platform, "abc", url).status_code == 200


def test_several_models_live_side_by_side(platform, uploads):
    for hash_ in ("one", "two"):
        assert load(platform, hash_, upload(uploads, hash_)).status_code == 200
    assert [model["modelName"] for model in platform.ask("GET", "/models").json()["models"]] == ["one", "two"]
    assert platform.ask("DELETE", "/models/one").status_code == 200
    assert platform.ask("POST", "/models/two/invoke", BODY).status_code == 200


def test_the_platform_may_name_the_model(platform, uploads):
    url = upload(uploads, "abc")
    assert load(platform, "abc", url, X_Amzn_SageMaker_Target_Model="resnet.tar.gz").status_code == 200
    answer = platform.ask("POST", "/models/abc/invoke", BODY, X_Amzn_SageMaker_Target_Model="resnet.tar.gz")
    assert answer.json()["model_name"] == "resnet.tar.gz"
    assert platform.ask("POST", "/models/abc/invoke", BODY).json()["model_name"] == "resnet.tar.gz"
    assert platform.ask("POST", "/models/abc/invoke", BODY, X_Amzn_SageMaker_Target_Model="x").status_code == 400


def test_only_files_of_the_platform_are_loaded(platform, uploads):
    for url in ("/etc", "/opt/ml/models", f"{uploads}/abc/other", f"{uploads}/../uploads2/abc/model"):
        refused = load(platform, "abc", url)
        text = f"Invalid \"url\" '{url}': expected a path of the form {uploads}/<hash>/model[/<subdir>]"
        assert (refused.status_code, refused.json()) == (400, {"error": text})
    for url in ("/proc/self", "/dev/shm", f"{uploads}/../../../../../../../../sys/x"):
        refused = load(platform, "abc", url)
        assert (refused.status_code, refused.content) == (400, b"")
    for body in ({}, {"model_name": "abc"}, {"url": "/x"}, "{", []):
        assert platform.ask("POST", "/models", body).status_code == 400
    for method, path, status in (("PUT", "/models", 400), ("DELETE", "/models", 404), ("PUT", "/models/abc", 400)):
        refused = platform.ask(method, path)
        assert (refused.status_code, refused.content) == (status, b"")
    assert platform.ask("GET", "/models").json() == {"models": []}


def test_every_failed_invoke_has_status_400(platform, uploads):
    assert load(platform, "abc", upload(uploads, "abc")).status_code == 200
    for body in ("{", {"inputs": []}, "[]"):
        answer = platform.ask("POST", "/models/abc/invoke", body)
        assert answer.status_code == 400 and answer.json()["error"]


def test_a_model_that_cannot_be_loaded_leaves_no_trace(platform, uploads):
    url = upload(uploads, "abc")
    (uploads / "abc" / "model" / "1" / "model.onnx").rename(uploads / "aside")
    (uploads / "abc" / "model" / "1" / "model.onnx").write_text("this is no model")
    for _ in range(2):
        refused = load(platform, "abc", url)
        assert refused.status_code == 400 and "abc" in refused.json()["error"]
    (uploads / "aside").rename(uploads / "abc" / "model" / "1" / "model.onnx")
    assert load(platform, "abc", url).status_code == 200


def test_of_several_directories_the_ensemble_is_loaded_with_its_members(platform, uploads):
    folder = uploads / "abc" / "model"
    folder.mkdir(parents=True)
    models.add_sub(folder, "member")
    (folder / "whole" / "1").mkdir(parents=True)
    (folder / "whole" / "config.pbtxt").write_text(
        """
        platform: "ensemble" max_batch_size: 8
        input [ { name: "INPUT0" data_type: TYPE_INT32 dims: [ 16 ] },
                { name: "INPUT1" data_type: TYPE_INT32 dims: [ 16 ] } ]
        output [ { name: "OUTPUT0" data_type: TYPE_INT32 dims: [ 16 ] } ]
        ensemble_scheduling { step [ { model_name: "member" model_version: -1
            input_map { key: "INPUT0" value: "INPUT0" } input_map { key: "INPUT1" value: "INPUT1" }
            output_map { key: "OUTPUT0" value: "OUTPUT0" } } ] }
        """
    )
    loaded = load(platform, "abc", str(folder))
    assert loaded.status_code == 200, loaded.text
    answer = platform.ask("POST", "/models/abc/invoke", BODY)
    assert answer.json()["outputs"][0]["data"] == list(range(0, 32, 2))
    assert platform.ask("DELETE", "/models/abc").status_code == 200
    with HTTP.connect(platform.server) as client:
        assert not client.is_model_ready("member")


def test_an_unload_waits_for_requests_in_flight(platform, uploads, gate, threads):
    folder = uploads / "abc"
    folder.mkdir()
    gate.write(folder, "model", "max_batch_size: 1\n")
    assert load(platform, "abc", str(folder / "model")).status_code == 200
    hold = gate.hold()
    with GRPC.connect(platform.server) as client:
        running = threads.submit(client.infer, "abc", held_inputs(GRPC, hold))
        hold.wait_until_running()
        unloading = threads.submit(Endpoint(platform.server).ask, "DELETE", "/models/abc")
        eventually(lambda: platform.ask("GET", "/models").json() == {"models": [{}]}, "the unload to begin")
        assert not unloading.done()
        hold.release()
        assert running.result(PATIENCE) and unloading.result(PATIENCE).status_code == 200
    assert platform.ask("GET", "/models").json() == {"models": []}
