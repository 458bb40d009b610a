"""What `packaging/kserve` has: KServe takes it, and the server does with its arguments what KServe expects.

A cluster is not needed. The schemas are those of KServe's resources without descriptions, and without the parts that no file
here uses (`kserve_schemas.json`). Unknown fields are refused.
"""

import contextlib
import copy
import json
import pathlib
import re
import shutil

import jsonschema
import negative_model
import numpy as np
import pytest
import repository as models
import requests
import yaml
from others import KSERVE, python_with
from protocols import GRPC, HTTP
from proxies import listening
from serving import PATIENCE, ROOT, eventually, free_port, free_ports, http_status

FOLDER = ROOT / "packaging/kserve"
SCHEMAS = json.loads((pathlib.Path(__file__).parent / "kserve_schemas.json").read_text())
RESOURCES = [resource for path in sorted(FOLDER.glob("*.yaml")) for resource in yaml.safe_load_all(path.read_text())]


def of_kind(kind):
    return {resource["metadata"]["name"]: resource["spec"] for resource in RESOURCES if resource["kind"] == kind}


RUNTIMES, SERVICES = of_kind("ClusterServingRuntime"), of_kind("InferenceService")
# How long KServe leaves a pod that is told to stop.
GRACE_SECONDS = 30


def errors(resource):
    return list(jsonschema.Draft202012Validator(SCHEMAS[resource["kind"]]).iter_errors(resource))


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource["metadata"]["name"])
def test_kserve_takes_each_resource(resource):
    assert errors(resource) == []


def at(resource, *path):
    for step in path:
        resource = resource[step]
    return resource


CONTAINER = ("spec", "containers", 0)
MODEL = ("spec", "predictor", "model")
# Of a resource: the place, the key, and what stands there wrongly.
MISTAKES = [
    ("nereid", CONTAINER, "arguments", []),
    ("nereid", CONTAINER, "args", "--model-repository=/mnt/models"),
    ("nereid", (*CONTAINER, "readinessProbe"), "period", 5),
    ("nereid", (*CONTAINER, "readinessProbe", "httpGet"), "port", [8080]),
    ("nereid", (*CONTAINER, "resources", "limits"), "memory", "2 GB"),
    ("nereid", ("spec",), "supportedModelFormat", []),
    ("nereid", ("spec", "supportedModelFormats", 0), "priority", "2"),
    ("nereid", ("spec",), "protocolVersions", "v2"),
    ("resnet", ("spec", "predictor"), "minReplicas", "1"),
    ("resnet", MODEL, "storageURI", "s3://bucket"),
    ("resnet", MODEL, "modelFormat", "onnx"),
    ("shop-direct", (*MODEL, "env", 0), "val", "x"),
]


@pytest.mark.parametrize("name, path, key, value", MISTAKES)
def test_the_schemas_find_mistakes(name, path, key, value):
    [resource] = [copy.deepcopy(resource) for resource in RESOURCES if resource["metadata"]["name"] == name]
    at(resource, *path)[key] = value
    assert errors(resource) != []


def test_each_service_has_a_runtime():
    for name, spec in SERVICES.items():
        model = spec["predictor"]["model"]
        if "runtime" in model:
            chosen = [model["runtime"]]
        else:
            chosen = [
                runtime
                for runtime, spec in RUNTIMES.items()
                for supported in spec["supportedModelFormats"]
                if supported["name"] == model["modelFormat"]["name"] and supported.get("autoSelect")
            ]
        assert len(chosen) == 1, name
        runtime = RUNTIMES[chosen[0]]
        assert model["protocolVersion"] in runtime["protocolVersions"]
        wanted = set(re.findall(r"\$\((\w+)\)", " ".join(runtime["containers"][0]["args"])))
        assert wanted <= {variable["name"] for variable in model.get("env", [])}, name


def container(runtime):
    [container] = RUNTIMES[runtime]["containers"]
    return container


def seconds(runtime, option):
    [value] = [argument.split("=")[1] for argument in container(runtime)["args"] if argument.startswith(f"--{option}=")]
    return int(value)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_stop_ends_before_the_pod_does_and_after_the_probe(runtime):
    delay, probe = seconds(runtime, "shutdown-delay-secs"), container(runtime)["readinessProbe"]
    assert delay > probe["periodSeconds"] * probe["failureThreshold"]
    assert delay + seconds(runtime, "exit-timeout-secs") < GRACE_SECONDS


@pytest.fixture
def start_runtime(start):
    """Starts the server with the arguments of a runtime, as KServe replaces what stands in them, and usually without delay."""

    def start_with(runtime, place, name="resnet", has_delay=False):
        values = {"/mnt/models": str(place), "$(MODEL_REPOSITORY)": str(place), "{{.Name}}": name}
        http_port, grpc_port = free_ports(2)
        values |= {"--http-port=8080": f"--http-port={http_port}", "--grpc-port=9000": f"--grpc-port={grpc_port}"}
        values |= {"/tmp/models": str(place.parent / "cache")}
        values |= {} if has_delay else {"--shutdown-delay-secs=8": "--shutdown-delay-secs=0"}
        [repository, *arguments] = container(runtime)["args"]
        for found, value in values.items():
            repository = repository.replace(found, value)
            arguments = [argument.replace(found, value) for argument in arguments]
        return start(repository.removeprefix("--model-repository="), *arguments).wait_until_ready()

    return start_with


def check_model(server, name):
    for protocol in (HTTP, GRPC):
        with protocol.connect(server) as client:
            assert client.is_model_ready(name)
    with HTTP.connect(server) as client:
        negative_model.check_rows(client, name, 2)


@pytest.mark.parametrize("downloaded", ["file", "model"])
def test_one_model_has_the_name_of_its_service(start_runtime, tmp_path, downloaded):
    place = tmp_path / "mnt"
    model = models.write(tmp_path / "models", "any", negative_model.graph())
    if downloaded == "file":
        place.mkdir()
        shutil.copy(model / "1/model.onnx", place / "resnet50.onnx")
    else:
        shutil.copytree(model, place)
    check_model(start_runtime("nereid", place), "resnet")


@pytest.mark.parametrize("runtime", ["nereid-repository", "nereid-direct"])
def test_a_repository_has_its_models(start_runtime, tmp_path, runtime):
    models.write(tmp_path / "models", "first", negative_model.graph())
    models.write(tmp_path / "models", "second", negative_model.graph())
    server = start_runtime(runtime, tmp_path / "models")
    for name in ("first", "second"):
        check_model(server, name)


def test_the_probes_are_answered_and_a_stop_is_announced(start_runtime, tmp_path):
    models.write(tmp_path / "models", "first", negative_model.graph())
    server = start_runtime("nereid-repository", tmp_path / "models", has_delay=True)
    port = server.http_port
    probes = {kind: container("nereid-repository")[f"{kind}Probe"]["httpGet"]["path"] for kind in ("readiness", "liveness")}
    assert {kind: http_status(port, path) for kind, path in probes.items()} == {"readiness": 200, "liveness": 200}
    server.terminate()
    eventually(lambda: http_status(port, probes["readiness"]) == 400, "the announcement")
    check_model(server, "first")
    assert http_status(port, probes["liveness"]) == 200


def row_model():
    """A price: twice the first value less three times the second, and one."""
    weights = {"W": np.array([[2], [-3]], np.float32), "B": np.array([1], np.float32)}
    return models.graph("prices (float[N, 2] X) => (float[N, 1] Y) { product = MatMul(X, W) Y = Add(product, B) }", **weights)


@contextlib.contextmanager
def beside(tmp_path, role, predictor, protocol):
    """The address of the transformer or the explainer of the example, which runs as KServe starts it until the end of the block."""
    [container] = SERVICES["prices"][role]["containers"]
    [interpreter, program] = container["command"]
    assert interpreter == "python"
    port = free_port()
    arguments = [re.sub("^(--predictor_protocol)=.*", rf"\1={protocol}", argument) for argument in container["args"]]
    arguments += ["--model_name=prices", f"--predictor_host={predictor}", f"--http_port={port}", "--enable_grpc=false"]
    with listening([python_with(KSERVE), FOLDER / program, *arguments], tmp_path / f"{role}.log", [port]):
        yield f"http://127.0.0.1:{port}/v1/models/prices"


def ask(address, rows):
    answer = requests.post(address, json={"instances": rows}, timeout=PATIENCE)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.others
@pytest.mark.parametrize("protocol", ["v2", "grpc-v2"])
def test_a_transformer_and_an_explainer_call_the_model(start_runtime, tmp_path, protocol):
    models.write(tmp_path / "models", "any", row_model())
    server = start_runtime("nereid", tmp_path / "models/any", name="prices")
    predictor = server.grpc if protocol == "grpc-v2" else server.http
    with beside(tmp_path, "transformer", predictor, protocol) as transformer:
        # The rows are scaled: mean (3, 40), deviation (2, 20).
        assert ask(f"{transformer}:predict", [[3, 40], [5, 40], [3, 60]]) == {"predictions": [1, 3, -2]}
    with beside(tmp_path, "explainer", predictor, protocol) as explainer:
        assert ask(f"{explainer}:explain", [[1, 1], [0.5, -2]]) == {"explanations": [[2, -3], [1, 6]]}
        # A row of the model and one for each value of the row: one batch.
        [statistics] = ask_statistics(server)
        assert (statistics["inference_count"], statistics["execution_count"]) == (3 + 2 * 3, 3)
        refused = requests.post(f"{explainer}:explain", json={"instances": [[1, 1, 1]]}, timeout=PATIENCE)
        assert refused.status_code >= 400


def ask_statistics(server):
    return requests.get(f"http://{server.http}/v2/models/prices/stats", timeout=PATIENCE).json()["model_stats"]


def test_kserves_agent_loads_and_unloads_models(start, tmp_path):
    """The agent puts a model into the repository, and then tells the server."""
    place = tmp_path / "mnt"
    place.mkdir()
    server = start(place, "--model-control-mode=explicit").wait_until_ready()

    def ask(action):
        path = f"http://127.0.0.1:{server.http_port}/v2/repository/models/late/{action}"
        return requests.post(path, data="{}", headers={"Content-Type": "application/json"}, timeout=PATIENCE).status_code

    models.write(place, "late", negative_model.graph())
    assert ask("load") == 200
    check_model(server, "late")
    assert ask("unload") == 200
    assert http_status(server.http_port, "/v2/models/late/ready") == 400
    # The answer does not wait for the end of the model, and until then the server is not ready.
    server.wait_until_ready()
