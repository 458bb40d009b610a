"""What a model's configuration, a client and an administrator say about the response cache."""

import concurrent.futures

import grpc
import numpy as np
import pytest
import repository as models
import requests
from protocols import GRPC, metric
from repository import tensor
from serving import eventually
from tritonclient.grpc import service_pb2, service_pb2_grpc

CACHED = "response_cache { enable: true }\n"
CACHE = "--cache-config=local,size=1000000"


def parameter(name, value):
    return f'parameters {{ key: "{name}" value: {{ string_value: "{value}" }} }}\n'


def write(folder, name, *parameters):
    """A model that gives back a row of numbers."""
    graph = models.graph("same (float[n] X) => (float[n] Y) { Y = Identity(X) }")
    config = "max_batch_size: 0\n" + tensor("input", "X", "FP32", -1) + tensor("output", "Y", "FP32", -1) + CACHED
    models.write(folder, name, graph, config + "".join(parameter(*pair) for pair in parameters))
    return folder


def ask_http(server, model, values, **headers):
    body = {"inputs": [{"name": "X", "datatype": "FP32", "shape": [len(values)], "data": values}]}
    url = f"http://{server.http}/v2/models/{model}/infer"
    response = requests.post(url, json=body, headers=headers, timeout=60)
    assert response.status_code == 200, response.text
    assert response.json()["outputs"][0]["data"] == values
    return response.headers.get("Cache-Status")


def ask_grpc(server, model, values, **headers):
    request = service_pb2.ModelInferRequest(model_name=model)
    request.inputs.add(name="X", datatype="FP32", shape=[len(values)])
    request.raw_input_contents.append(np.array(values, np.float32).tobytes())
    metadata = [(name.replace("_", "-").lower(), value) for name, value in headers.items()]
    with grpc.insecure_channel(server.grpc) as channel:
        call = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer
        response, call = call.with_call(request, metadata=metadata, timeout=60)
    assert np.frombuffer(response.raw_output_contents[0], np.float32).tolist() == values
    return dict(call.initial_metadata()).get("cache-status")


@pytest.fixture
def ask(protocol):
    asks = {"http": ask_http, "grpc": ask_grpc}
    return lambda *arguments, control=None: asks[protocol.name](
        *arguments, **({"Cache-Control": control} if control else {})
    )


def reason(server):
    """Why the only model of the server has not been loaded."""
    index = requests.post(f"http://{server.http}/v2/repository/index", timeout=60).json()
    return index[0]["reason"]


def executions(server, model):
    with GRPC.connect(server) as client:
        return GRPC.statistics(client, model).get("execution_count", 0)


def test_equal_requests_at_the_same_time_are_executed_once(ask, start, tmp_path):
    server = start(write(tmp_path / "models", "m"), CACHE).wait_until_ready()
    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        for round in range(5):
            statuses = list(pool.map(lambda _: ask(server, "m", [round, 1.0]), range(64)))
            assert executions(server, "m") == round + 1
            kinds = {"Nereid; fwd=uri-miss", "Nereid; fwd=uri-miss; collapsed", "Nereid; hit"}
            assert statuses.count("Nereid; fwd=uri-miss") == 1 and set(statuses) <= kinds


def test_a_client_may_want_another_answer_than_the_stored_one(ask, start, tmp_path):
    server = start(write(tmp_path / "models", "m"), CACHE).wait_until_ready()
    steps = [
        (None, "fwd=uri-miss", 1),
        (None, "hit", 1),
        ("no-cache", "fwd=request", 2),
        ("max-age=3600", "hit", 2),
        ("MAX-AGE=0", "fwd=stale", 3),
        ("no-store", "fwd=bypass", 4),
        ("public, x=1", "hit", 4),
    ]
    for control, status, executed in steps:
        assert (ask(server, "m", [7.0], control=control), executions(server, "m")) == (f"Nereid; {status}", executed)
    assert metric(server, "nv_cache_num_entries") == 1


def test_a_model_without_a_cache_tells_nothing_of_one(ask, start, tmp_path):
    server = start(write(tmp_path / "models", "m")).wait_until_ready()
    assert ask(server, "m", [7.0], control="no-cache") is None


def test_answers_age_and_are_refreshed(ask, start, tmp_path):
    folder = write(tmp_path / "models", "m", ("CACHE_TTL_SECONDS", "0.5"), ("CACHE_STALE_SECONDS", "3600"))
    write(folder, "strict", ("CACHE_TTL_SECONDS", "0.5"))
    server = start(folder, CACHE).wait_until_ready()
    for model, aged in (("m", "Nereid; hit; detail=stale"), ("strict", "Nereid; fwd=stale")):
        assert ask(server, model, [1.0]) == "Nereid; fwd=uri-miss"
        statuses = set()

        def has_aged():
            statuses.add(ask(server, model, [1.0]))  # noqa: B023
            return aged in statuses  # noqa: B023

        eventually(has_aged, f"the status '{aged}'")
        assert statuses <= {"Nereid; hit; ttl=0", aged}
        eventually(lambda: ask(server, model, [1.0]) == "Nereid; hit; ttl=0", "a new answer")  # noqa: B023
        assert executions(server, model) >= 2


def test_a_quota_limits_a_model_and_no_other(ask, start, tmp_path):
    folder = write(tmp_path / "models", "small", ("CACHE_QUOTA_BYTES", "4096"))
    write(folder, "large")
    server = start(folder, CACHE).wait_until_ready()
    for model in ("small", "large"):
        for number in range(50):
            ask(server, model, [float(number)])
    small = metric(server, "nv_cache_num_entries") - 50
    assert 1 < small < 20 and metric(server, "nv_cache_num_evictions") == 50 - small
    for number in range(50):
        assert ask(server, "large", [float(number)]) == "Nereid; hit"


def test_an_administrator_can_empty_the_cache_of_a_model(ask, start, tmp_path):
    folder = write(tmp_path / "models", "m")
    write(folder, "other")
    write(folder, "plain", ("CACHE_MAX_ANSWER_BYTES", "1"))
    server = start(folder, CACHE, "--http-restricted-api=model-repository:admin=yes").wait_until_ready()
    for number in range(3):
        ask(server, "m", [float(number)])
    ask(server, "other", [0.0])
    url = f"http://{server.http}/v2/models/%s/empty_cache"
    assert requests.post(url % "m", timeout=60).status_code == 403
    admin = {"admin": "yes"}
    emptied = requests.post(url % "m", headers=admin, timeout=60)
    assert (emptied.status_code, emptied.json()) == (200, {"removed": 3})
    assert ask(server, "m", [0.0]) == "Nereid; fwd=uri-miss"
    assert ask(server, "other", [0.0]) == "Nereid; hit"
    ask(server, "plain", [0.0])
    assert requests.post(url % "plain/versions/1", headers=admin, timeout=60).json() == {"removed": 0}
    unknown = requests.post(url % "none", headers=admin, timeout=60)
    assert (unknown.status_code, unknown.json()["error"]) == (400, "requested model 'none' is not available")
    assert "removed 3 answers of model 'm' from the response cache" in server.log()


@pytest.mark.parametrize(
    "name, value, text",
    [
        ("CACHE_TTL_SECONDS", "-1", "has the value '-1', which is no positive number of seconds"),
        ("CACHE_TTL_SECONDS", "soon", "has the value 'soon', which is no positive number of seconds"),
        ("CACHE_STALE_SECONDS", "5", "has no effect without 'CACHE_TTL_SECONDS'"),
        ("CACHE_QUOTA_BYTES", "0", "has the value '0', which is no number from 1"),
        ("CACHE_MAX_ANSWER_BYTES", "1k", "has the value '1k', which is no number from 1"),
        ("CACHE_DECOUPLED", "yes", "has the value 'yes', which is neither 'true' nor 'false'"),
    ],
)
def test_a_wrong_parameter_is_named(start, tmp_path, name, value, text):
    server = start(write(tmp_path / "models", "m", (name, value)), CACHE, "--exit-on-error=false")
    assert f"'parameters.{name}' of model 'm' {text}" in reason(server)


def test_a_quota_larger_than_the_cache_is_refused(start, tmp_path):
    folder = write(tmp_path / "models", "m", ("CACHE_QUOTA_BYTES", "1000001"))
    text = "the quota of model 'm' is 1000001 bytes of the response cache, which has only 1000000"
    assert text in reason(start(folder, CACHE, "--exit-on-error=false"))
