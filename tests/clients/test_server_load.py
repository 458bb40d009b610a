"""What autoscalers and balancers ask a server: `/v2/load`, the gauges of its work, and the name of a server in answers."""

import json
import queue

import grpc
import pytest
import repository as models
import requests
from held import held_inputs
from protocols import GRPC, HTTP, add_sub_inputs
from serving import PATIENCE, eventually
from tritonclient.grpc import service_pb2, service_pb2_grpc


@pytest.fixture
def folder(tmp_path, gate):
    folder = tmp_path / "models"
    folder.mkdir()
    models.add_sub(folder)
    gate.write(folder, "held", "max_batch_size: 1\ndynamic_batching {}\n")
    return folder


def load(server):
    answer = requests.get(f"http://{server.http}/v2/load", timeout=PATIENCE)
    assert answer.status_code == 200 and answer.headers["content-type"] == "application/json"
    return answer.json()


def gauges(server, name):
    lines = requests.get(server.metrics, timeout=PATIENCE).text.splitlines()
    return {line.split('"')[1]: float(line.split()[-1]) for line in lines if line.startswith(f"{name}{{")}


def test_the_load_is_that_of_now(start, folder, backend_option, gate):
    server = start(folder, backend_option).wait_until_ready()
    idle = {"requests_in_flight": 0, "requests_waiting": 0, "queued_work_seconds": 0.0, "instance_busy_ratio": 0.0}
    assert load(server) == idle | {"live_sequences": 0, "models": []}
    hold, answers = gate.hold(), queue.Queue()
    with GRPC.connect(server) as client:
        for _ in range(5):
            client.async_infer("held", held_inputs(GRPC, hold), lambda result, error: answers.put(error))
        hold.wait_until_running()
        # A request is in flight before it waits.
        eventually(lambda: load(server)["requests_waiting"] == 4, "four requests to wait")
        loaded = load(server)
        assert loaded["requests_in_flight"] == 5 and 0 < loaded["instance_busy_ratio"] <= 1
        (held,) = loaded["models"]
        assert (held["name"], held["version"], held["requests_in_flight"], held["requests_waiting"]) == ("held", "1", 5, 4)
        assert gauges(server, "nereid_requests_in_flight") == {"add_sub": 0, "held": 5}
        busy = gauges(server, "nereid_instance_busy_ratio")
        assert busy["add_sub"] == 0 and 0 < busy["held"] <= 1
        hold.release()
        assert [answers.get(timeout=PATIENCE) for _ in range(5)] == [None] * 5
        loaded = load(server)
        assert (loaded["requests_in_flight"], loaded["requests_waiting"]) == (0, 0)


def test_the_load_is_for_those_who_may_see_statistics(start, folder, backend_option):
    server = start(folder, backend_option, "--http-restricted-api=statistics:key=value").wait_until_ready()
    assert requests.get(f"http://{server.http}/v2/load", timeout=PATIENCE).status_code == 403
    assert requests.get(f"http://{server.http}/v2/load", headers={"key": "value"}, timeout=PATIENCE).status_code == 200


def test_balancers_get_the_load_with_an_answer_if_they_ask(start, folder, backend_option):
    server = start(folder, backend_option).wait_until_ready()
    body, json_length = HTTP.library.InferenceServerClient.generate_request_body(add_sub_inputs(HTTP)[0])
    headers = {"Inference-Header-Content-Length": str(json_length)}

    def report(form):
        asked = headers | ({"endpoint-load-metrics-format": form} if form else {})
        answer = requests.post(f"http://{server.http}/v2/models/add_sub/infer", body, headers=asked, timeout=PATIENCE)
        assert answer.status_code == 200
        return answer.headers.get("endpoint-load-metrics")

    def rates():
        kind, _, text = report("json").partition(" ")
        assert kind == "JSON"
        told = json.loads(text)
        assert told.keys() == {"application_utilization", "rps_fractional", "eps", "named_metrics"}
        return told["rps_fractional"]

    eventually(lambda: rates() > 0, "the rate of requests")
    assert report("text").startswith("TEXT application_utilization=0.")
    assert report("xml") is None and report(None) is None


@pytest.mark.parametrize("name", ["vision-3", None])
def test_answers_name_the_server_that_has_a_name(start, folder, backend_option, name):
    options = [f"--id={name}"] if name else []
    server = start(folder, backend_option, *options).wait_until_ready()
    body, json_length = HTTP.library.InferenceServerClient.generate_request_body(add_sub_inputs(HTTP)[0])
    headers = {"Inference-Header-Content-Length": str(json_length)}
    for path, expected in (("add_sub/infer", 200), ("none/infer", 404)):
        answer = requests.post(f"http://{server.http}/v2/models/{path}", body, headers=headers, timeout=PATIENCE)
        assert (answer.status_code, answer.headers.get("x-nereid-server")) == (expected, name), answer.text
    with grpc.insecure_channel(server.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        _, call = stub.ServerLive.with_call(service_pb2.ServerLiveRequest(), timeout=PATIENCE)
        assert dict(call.initial_metadata()).get("x-nereid-server") == name
        with pytest.raises(grpc.RpcError) as failed:
            stub.ModelMetadata(service_pb2.ModelMetadataRequest(name="none"), timeout=PATIENCE)
        told = dict(failed.value.initial_metadata()) | dict(failed.value.trailing_metadata())
        assert told.get("x-nereid-server") == name
        stream = stub.ModelStreamInfer(iter(()), timeout=PATIENCE)
        assert list(stream) == [] and dict(stream.initial_metadata()).get("x-nereid-server") == name
