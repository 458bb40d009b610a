"""The endpoint of Vertex AI: health, predictions, and redirects to other routes."""

import json

import numpy as np
import pytest
import repository as models
import requests
import tritonclient.http
from protocols import HTTP, add_sub_inputs
from serving import PATIENCE, run_to_end

BINARY = "application/vnd.vertex-ai-triton.binary+json;json-header-size="
ROUTES = {"AIP_PREDICT_ROUTE": "/predict", "AIP_HEALTH_ROUTE": "/health"}
ON = ("--allow-vertex-ai=true", "--vertex-ai-port=0")


class Endpoint:
    """What the platform asks."""

    def __init__(self, server):
        self.server = server
        self._base = f"http://127.0.0.1:{server.port_of('Vertex AI HTTPService')}"
        self._session = requests.Session()

    def ask(self, method, path, body=None, **headers):
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        return self._session.request(method, self._base + path, data=body, headers=headers, timeout=PATIENCE)

    def redirect(self, path, body=None, method="POST"):
        return self.ask(method, "/predict", body, X_Vertex_Ai_Triton_Redirect=path)


BODY = json.dumps(
    {
        "inputs": [
            {"name": name, "datatype": "INT32", "shape": [1, 16], "data": list(range(16))}
            for name in ("INPUT0", "INPUT1")
        ]
    }
)
SUMS = list(range(0, 32, 2))


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    models.add_sub(folder)
    return folder


@pytest.fixture
def platform(start, folder):
    return Endpoint(start(folder, *ON, variables=ROUTES))


def test_the_only_model_answers_predictions(platform):
    assert platform.ask("GET", "/health").status_code == 200
    answer = platform.ask("POST", "/predict", BODY)
    assert answer.status_code == 200 and answer.json()["outputs"][0]["data"] == SUMS
    assert platform.ask("GET", "/predict").status_code == 405
    for path in ("/v2/health/live", "/predict/", "/predictx", "/healthy", "/"):
        answer = platform.ask("GET", path)
        assert (answer.status_code, answer.content) == (400, b""), path


def test_binary_tensors_are_marked_by_the_content_type(platform):
    inputs, first = add_sub_inputs(HTTP)
    outputs = [tritonclient.http.InferRequestedOutput("OUTPUT0", binary_data=True)]
    body, length = tritonclient.http.InferenceServerClient.generate_request_body(inputs, outputs=outputs)
    for headers in ({}, {"X_Vertex_Ai_Triton_Redirect": "v2/models/add_sub/infer"}):
        answer = platform.ask("POST", "/predict", body, Content_Type=f"{BINARY}{length}", **headers)
        assert answer.headers["Content-Type"] == "application/octet-stream"
        length_of_json = int(answer.headers["Inference-Header-Content-Length"])
        result = tritonclient.http.InferenceServerClient.parse_response_body(
            answer.content, header_length=length_of_json
        )
        np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), first + 1000)
    wrong = platform.ask("POST", "/predict", body, Content_Type=f"x{BINARY}{length}")
    text = f"expect MIME type for binary data starts with '{BINARY}', got: x{BINARY}{length}"
    assert (wrong.status_code, wrong.json()) == (400, {"error": text})


def test_redirects_lead_to_routes_that_only_read(platform):
    assert platform.redirect("v2/models/add_sub/infer", BODY).json()["outputs"][0]["data"] == SUMS
    assert platform.redirect("v2").json()["name"] == "triton"
    assert platform.redirect("v2/models/add_sub").json()["name"] == "add_sub"
    assert platform.redirect("v2/models/add_sub/versions/1/config").json()["max_batch_size"] == 8
    assert platform.redirect("v2/models/add_sub/stats").json()["model_stats"][0]["inference_count"] == 1
    assert platform.redirect("v2/models/stats").status_code == 200
    for path in ("v2/health/live", "v2/health/ready", "v2/models/add_sub/ready"):
        assert platform.redirect(path).status_code == 200
    assert [model["name"] for model in platform.redirect("v2/repository/index").json()] == ["add_sub"]
    assert "nv_inference_request_success" in platform.redirect("metrics").text
    assert platform.redirect("v2/models/none").status_code == 404


@pytest.mark.parametrize(
    "path",
    [
        "v2/repository/models/add_sub/load",
        "v2/repository/models/add_sub/unload",
        "v2/systemsharedmemory/region/r/register",
        "v2/systemsharedmemory/region/r/unregister",
        "v2/cudasharedmemory/region/r/register",
        "v2/cudasharedmemory/unregister",
    ],
)
def test_redirects_that_would_change_the_server_are_forbidden(platform, path):
    refused = platform.redirect(path)
    assert (refused.status_code, refused.content) == (403, b"")


def test_other_redirects_lead_nowhere(platform):
    for path in ("nope", "/v2", "v2/logging", "v2/trace/setting", "v2/models/add_sub/generate", ""):
        refused = platform.redirect(path)
        assert (refused.status_code, refused.content) == (400, b""), path
    refused = platform.redirect("v2", method="GET")
    assert (refused.status_code, refused.content) == (405, b"")


def test_restrictions_and_keys_hold_here_too(start, folder, tmp_path):
    keys = tmp_path / "keys.json"
    keys.write_text('{"keys": [], "anonymous": {"apis": ["health", "inference"], "models": ["add_sub"]}}')
    restricted = "--http-restricted-api=inference:key=secret"
    server = start(folder, *ON, restricted, f"--api-key-file={keys}", variables=ROUTES)
    platform = Endpoint(server)
    assert platform.ask("POST", "/predict", BODY).status_code == 403
    assert platform.ask("POST", "/predict", BODY, key="secret").status_code == 200
    assert platform.redirect("v2/models/add_sub/infer", BODY).status_code == 403
    assert platform.redirect("v2").status_code == 401
    assert platform.ask("GET", "/health").status_code == 200


def test_the_variables_of_the_platform_replace_options(start, folder):
    """The repository and the port too; HTTP and gRPC are off unless options say otherwise."""
    variables = ROUTES | {"AIP_MODE": "PREDICTION", "AIP_HTTP_PORT": "0", "AIP_STORAGE_URI": str(folder)}
    server = start(folder, "--allow-http=true", "--allow-grpc=true", variables=variables)
    assert Endpoint(server).ask("POST", "/predict", BODY).status_code == 200


def test_routes_match_literally(start, folder):
    variables = {"AIP_PREDICT_ROUTE": "/v1/models/.*:predict", "AIP_HEALTH_ROUTE": "/.+"}
    platform = Endpoint(start(folder, *ON, variables=variables))
    assert platform.ask("GET", "/x").status_code == 400
    assert platform.ask("POST", "/v1/models/a:predict", BODY).status_code == 400
    assert platform.ask("POST", "/v1/models/.*:predict", BODY).status_code == 200


def test_a_start_without_routes_or_without_a_model_for_predictions_is_refused(folder, monkeypatch):
    base = [f"--model-repository={folder}", "--http-port=0", "--grpc-port=0", "--metrics-port=0", *ON]
    failed = "error: failed to start Vertex AI service: Invalid argument - "

    def refusal(*options, **variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        ended = run_to_end(*base, *options)
        assert ended.returncode == 1
        return ended.stderr.strip().splitlines()[-1]

    assert refusal() == f"{failed}API_PREDICT_ROUTE is not defined for Vertex AI endpoint"
    text = f"{failed}AIP_HEALTH_ROUTE is not defined for Vertex AI endpoint"
    assert refusal(AIP_PREDICT_ROUTE="/p") == text
    text = f"{failed}Expect the default model 'none' is loaded"
    assert refusal("--vertex-ai-default-model=none", AIP_HEALTH_ROUTE="/h") == text
    models.add_sub(folder, "another")
    text = f"{failed}Expect the model repository contains only a single model if default model is not specified"
    assert refusal() == text


def test_the_default_model_is_chosen_by_an_option(start, folder):
    models.add_sub(folder, "another")
    platform = Endpoint(start(folder, *ON, "--vertex-ai-default-model=another", variables=ROUTES))
    assert platform.ask("POST", "/predict", BODY).json()["model_name"] == "another"
