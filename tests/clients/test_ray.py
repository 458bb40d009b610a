"""Replicas of Ray Serve, each of which owns a server: unmodified clients ask them through Ray."""

import contextlib
import itertools
import json
import os
import queue
import re
import signal
import threading
from collections import Counter

import grpc
import numpy as np
import plugins
import processes
import pytest
import ray_clusters
import repository as models
import requests
import yaml
from protocols import GRPC, HTTP, add_sub_inputs
from python_backends import BUILT_IN
from ray_clusters import Cluster, ClusterError, parent_of
from replicas import LOADS, keep_asking
from serving import BINARY, PATIENCE, ROOT, eventually, http_status
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException

pytestmark = pytest.mark.ray

BOTH = pytest.mark.parametrize("protocol", [HTTP, GRPC], ids=lambda protocol: protocol.name)
# Ray looks after its replicas so often, in seconds.
OFTEN = {"health_check_period_s": 0.2}
SEQUENCES = 20


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    models.add_sub(folder)
    models.identity(folder, "INT32")
    models.accumulate(folder, "direct")
    plugins.python_model(folder, "streamer")
    return folder


@pytest.fixture(scope="module")
def any_cluster():
    with ray_clusters.place() as place, Cluster(place) as cluster:
        yield cluster


@pytest.fixture
def cluster(any_cluster):
    """The cluster without an application of an earlier test."""
    any_cluster.do("delete")
    eventually(lambda: not any_cluster.servers(), "the end of the servers of earlier tests")
    return any_cluster


@contextlib.contextmanager
def asked(cluster, *loads):
    """Asks the model `add_sub` until the end of the block. Gives how often it was answered, and the errors."""
    outcomes, done = Counter(), threading.Event()
    arguments = [(*LOADS[load], getattr(cluster, LOADS[load][0].name), done, outcomes) for load in loads]
    callers = [threading.Thread(target=keep_asking, args=these) for these in arguments]
    for caller in callers:
        caller.start()
    try:
        yield outcomes
    finally:
        done.set()
        for caller in callers:
            caller.join()


def wait_for_answers(outcomes, count=50):
    end = outcomes["answered"] + count
    eventually(lambda: outcomes["answered"] >= end, f"{count} answers; {outcomes}")


@BOTH
def test_unmodified_clients_make_each_call(cluster, repository, protocol):
    options = ["--model-control-mode=explicit", "--load-model=add_sub"]
    cluster.deploy(repository, options=options)
    inputs, first = add_sub_inputs(protocol)
    with protocol.connect(cluster) as client:
        np.testing.assert_array_equal(client.infer("add_sub", inputs).as_numpy("OUTPUT0"), first + 1000)
        assert client.is_server_live() and client.is_server_ready()
        client.load_model("identity_int32")
        assert client.is_model_ready("identity_int32")
        client.unload_model("identity_int32")
        eventually(lambda: not client.is_model_ready("identity_int32"), "the end of the model")

        def ask(question, *arguments):
            return protocol.json(question, *arguments)

        assert ask(client.get_server_metadata)["name"] == "triton"
        assert ask(client.get_model_metadata, "add_sub")["name"] == "add_sub"
        config = ask(client.get_model_config, "add_sub")
        assert config.get("config", config)["max_batch_size"] == 8
        assert ask(client.get_inference_statistics, "add_sub")["model_stats"][0]["inference_count"] == 1
        index = ask(client.get_model_repository_index)
        assert "add_sub" in json.dumps(index)
        for question in (client.get_system_shared_memory_status, client.get_cuda_shared_memory_status):
            assert not ask(question) or "regions" in ask(question) or ask(question) == {}
        assert "trace_rate" in json.dumps(ask(client.get_trace_settings))
        assert "log_verbose_level" in json.dumps(ask(client.get_log_settings))
        with pytest.raises(InferenceServerException, match="Request for unknown model: 'none' is not found") as refused:
            client.infer("none", inputs)
        assert refused.value.status() == protocol.status("NOT_FOUND")
        with pytest.raises(InferenceServerException) as refused:
            client.infer("add_sub", inputs[:1])
        assert refused.value.status() == protocol.status("INVALID_ARGUMENT")


def test_each_call_of_the_service_reaches_the_server(cluster, repository, start):
    cluster.deploy(repository)
    server = start(repository, variables=BUILT_IN.variables)
    service = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]

    def outcome(address, method):
        with grpc.insecure_channel(address) as channel:
            try:
                channel.unary_unary(f"/{service.full_name}/{method}")(b"", timeout=PATIENCE)
            except grpc.RpcError as error:
                return error.code(), error.details()

    unary = [method.name for method in service.methods if not method.client_streaming]
    through_ray = {method: outcome(cluster.grpc, method) for method in unary}
    assert through_ray == {method: outcome(server.grpc, method) for method in unary}


def test_a_stream_goes_both_ways(cluster, repository):
    cluster.deploy(repository, num_replicas=2)
    answers = queue.SimpleQueue()

    def ask(number, **step):
        client.async_stream_infer("accumulate_direct", [GRPC.input("X", np.array([[number]], np.int32))], sequence_id=1, **step)
        result, error = answers.get(timeout=PATIENCE)
        return error.message() if error else result.as_numpy("SUM").item()

    with GRPC.connect(cluster) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        steps = [{"sequence_start": True}, {}, {}, {}, {"sequence_end": True}]
        # Each answer comes before the next request is sent.
        assert [ask(number, **step) for number, step in enumerate(steps, 1)] == [1, 3, 6, 10, 15]
        assert "must specify the START flag" in ask(1)
        client.stop_stream()


def test_events_come_while_the_model_sends_them(cluster, repository, tmp_path):
    told = tmp_path / "told"
    cluster.deploy(repository)
    url = f"http://{cluster.http}/v2/models/streamer/generate_stream"
    with requests.post(url, json={"N": 0, "TELL": str(told)}, stream=True, timeout=PATIENCE) as answer:
        events = (json.loads(line.removeprefix(b"data: ")) for line in answer.iter_lines() if line)
        assert [next(events)["OUT"] for _ in range(3)] == [0, 1, 2]
    eventually(told.exists, "the model to learn that its client has gone")


def test_paths_and_headers_go_both_ways(cluster, repository):
    cluster.deploy(repository, options=["--id=replica"], route_prefix="/some/models")
    headers = {"endpoint-load-metrics-format": "json"}
    inputs = [{"name": "INPUT", "datatype": "INT32", "shape": [1], "data": [5]}]
    url = f"http://{cluster.http}/some/models/v2/models/identity%5Fint32/infer?a=b"
    answer = requests.post(url, json={"inputs": inputs}, headers=headers, timeout=PATIENCE)
    assert answer.json()["outputs"][0]["data"] == [5]
    assert answer.headers["x-nereid-server"] == "replica" and "endpoint-load-metrics" in answer.headers


def test_handles_infer_with_arrays_and_with_bytes(cluster, repository):
    cluster.deploy(repository)
    assert cluster.do("infer", model="identity_int32", inputs={"INPUT": [1, 2]}, id="a") == {"OUTPUT": [1, 2]}
    request = service_pb2.ModelInferRequest(model_name="identity_int32", raw_input_contents=[np.array([3], np.int32).tobytes()])
    request.inputs.add(name="INPUT", datatype="INT32", shape=[1])
    answer = service_pb2.ModelInferResponse.FromString(
        bytes.fromhex(cluster.do("infer_raw", request=request.SerializeToString().hex()))
    )
    assert answer.raw_output_contents == request.raw_input_contents
    with pytest.raises(ClusterError, match="ServerError.*Request for unknown model: 'none' is not found"):
        cluster.do("infer", model="none", inputs={"INPUT": [1]})
    with pytest.raises(ClusterError, match="ServerError: NOT_FOUND: Request for unknown model: '' is not found"):
        cluster.do("infer_raw", request="")


def test_no_request_is_lost_while_replicas_are_added(cluster, repository):
    cluster.deploy(repository)
    with asked(cluster, "HTTP, kept", "gRPC") as outcomes:
        wait_for_answers(outcomes)
        cluster.deploy(repository, num_replicas=3)
        eventually(lambda: cluster.replicas() == 3, "three replicas")
        wait_for_answers(outcomes, 200)
    assert set(outcomes) == {"answered"} and len(cluster.servers()) == 3


def test_a_server_that_is_killed_is_started_again_in_its_replica(cluster, repository):
    cluster.deploy(repository, **OFTEN)
    [server] = cluster.servers()
    replica, before = parent_of(server), cluster.serve_logs()
    with asked(cluster, "HTTP, kept", "gRPC", "gRPC, streams") as outcomes:
        wait_for_answers(outcomes)
        os.kill(server, signal.SIGKILL)
        [other] = eventually(lambda: cluster.servers() - {server}, "another server")
        wait_for_answers(outcomes, 200)
    assert parent_of(other) == replica and processes.is_running(replica)
    # What it had when it was killed.
    assert [error for error in outcomes if not re.search("answered|503|UNAVAILABLE", error)] == []
    assert cluster.do("status")["deployment"] == "HEALTHY"
    told = "nereid is started again: the server has ended with status -9"
    eventually(lambda: cluster.serve_logs().count(told) > before.count(told), "the log of the replica")
    failed = "ealth check failed"
    assert cluster.serve_logs().count(failed) == before.count(failed)


class Start:
    """A program that becomes the server, unless a test lets it wait or fail."""

    def __init__(self, folder):
        self.held, self.broken, self.program = folder / "held", folder / "broken", folder / "start"
        self.program.write_text(
            f'#!/bin/sh\nwhile [ -e {self.held} ]; do sleep 0.01; done\n'
            f'if [ -e {self.broken} ]; then echo "it is broken" >&2; exit 3; fi\nexec {BINARY} "$@"\n'
        )
        self.program.chmod(0o755)


@BOTH
def test_requests_wait_while_the_server_starts_again(cluster, repository, tmp_path, threads, protocol):
    start = Start(tmp_path)
    cluster.deploy(repository, program=str(start.program), **OFTEN)
    [server] = cluster.servers()
    inputs, first = add_sub_inputs(protocol)

    def infer():
        with protocol.connect(cluster, **({"network_timeout": PATIENCE} if protocol is HTTP else {})) as client:
            return client.infer("add_sub", inputs)

    def known_ends():
        return cluster.serve_logs().count("nereid is started again")

    infer()
    before = known_ends()
    start.held.touch()
    os.kill(server, signal.SIGKILL)
    eventually(lambda: known_ends() > before, "the replica to know that the server has ended")
    waiting = [threads.submit(infer) for _ in range(4)]
    started = cluster.do("status")
    assert started["deployment"] == "HEALTHY" and not any(answer.done() for answer in waiting)
    start.held.unlink()
    for answer in waiting:
        np.testing.assert_array_equal(answer.result(PATIENCE).as_numpy("OUTPUT0"), first + 1000)


@BOTH
def test_requests_that_have_waited_too_long_are_refused(cluster, repository, tmp_path, protocol):
    start = Start(tmp_path)
    cluster.deploy(repository, program=str(start.program), restart_wait_s=0.05)
    [server] = cluster.servers()
    start.held.touch()
    os.kill(server, signal.SIGKILL)
    reason = r"nereid has ended, and has not been ready again within 0\.05 s; the server has ended with status -9"
    with protocol.connect(cluster) as client:

        def refusal():
            with pytest.raises(InferenceServerException) as refused:
                client.infer("add_sub", add_sub_inputs(protocol)[0])
            assert refused.value.status() == protocol.status("UNAVAILABLE")
            return re.search(reason, refused.value.message())

        eventually(refusal, "the reason")
        start.held.unlink()


def test_a_server_that_ends_again_and_again_fails_the_check(cluster, repository, tmp_path):
    start = Start(tmp_path)
    cluster.deploy(repository, program=str(start.program), **OFTEN)
    [server] = cluster.servers()
    replica = parent_of(server)
    start.broken.touch()
    os.kill(server, signal.SIGKILL)
    eventually(lambda: not processes.is_running(replica), "Ray to give up the replica")
    # Processes of Ray write it, not the one whose end the test has seen.
    told = "nereid has ended 5 times within 60 s. The last time the server has ended with status 3"
    eventually(lambda: told in cluster.serve_logs(), "the reason in the logs")
    start.broken.unlink()
    eventually(lambda: cluster.do("status")["deployment"] == "HEALTHY" and cluster.servers(), "another replica")
    assert parent_of(*cluster.servers()) != replica


def test_a_server_that_does_not_answer_fails_the_check(cluster, repository):
    cluster.deploy(repository, **OFTEN)
    [server] = cluster.servers()
    os.kill(server, signal.SIGSTOP)
    eventually(lambda: not processes.is_running(server), "Ray to give up the replica, which kills the server")
    eventually(lambda: "nereid runs and has not answered for 10 s" in cluster.serve_logs(), "the reason in the logs")
    eventually(lambda: cluster.do("status")["deployment"] == "HEALTHY" and cluster.servers(), "another replica")


def test_a_server_that_cannot_start_fails_the_deployment_with_its_reason(cluster, repository):
    with pytest.raises(ClusterError, match="failed"):
        cluster.deploy(repository, options=["--no-such-option=1"])
    told = cluster.do("status")
    assert told["application"] == "DEPLOY_FAILED"
    assert "ServerError: the server has ended with status 1" in told["message"] and "--no-such-option" in told["message"]
    assert not cluster.servers()


COMPUTING = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        outputs = [np.array([sum(range(2_000_000)) % 7], np.int32) for _ in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", output)]) for output in outputs]
"""


def test_replicas_are_as_many_as_the_queued_work_wants(cluster, tmp_path):
    config = "max_batch_size: 0\n" + models.tensor("input", "X", "INT32", 1) + models.tensor("output", "Y", "INT32", 1)
    plugins.python_model(tmp_path, "computing", text=COMPUTING, config=config)
    often = {"upscale_delay_s": 0, "downscale_delay_s": 0, "look_back_period_s": 1}
    cluster.deploy(tmp_path, autoscaling_config={"min_replicas": 1, "max_replicas": 2, **often})
    assert cluster.replicas() == 1
    done = threading.Event()

    def ask():
        with GRPC.connect(cluster) as client:
            while not done.is_set():
                client.infer("computing", [GRPC.input("X", np.array([1], np.int32))])

    callers = [threading.Thread(target=ask) for _ in range(10)]
    for caller in callers:
        caller.start()
    try:
        eventually(lambda: cluster.replicas() == 2, "a second replica")
    finally:
        done.set()
        for caller in callers:
            caller.join()
    eventually(lambda: cluster.replicas() == 1, "the end of the second replica")


# How many replicas there are and are wanted, the loads of each, and how many are wanted then.
LOADS_OF_REPLICAS = {
    "nothing is known": (2, 2, [], [], 2),
    "nothing is to do": (3, 3, [0, 0, 0], [0, 0, 0], 2),
    "work waits": (2, 2, [0.1, 0.5], [1, 1], 3),
    "little work waits": (2, 2, [0.1, 0.1], [1, 1], 2),
    "one is not there yet": (2, 3, [1, 1], [1, 1], 3),
    "fewer could do it": (3, 3, [0, 0, 0], [0.3, 0.4, 0.4], 2),
    "fewer could not do it": (3, 3, [0, 0, 0], [0.5, 0.5, 0.5], 3),
    "one has not told its load": (3, 3, [0, 0], [0, 0], 3),
    "the last one stays": (1, 1, [0], [0], 1),
}


def test_the_policy_decides_by_the_loads(any_cluster):
    names = ("current", "target", "queued", "busy")
    told = {name: any_cluster.do("wanted", **dict(zip(names, loads))) for name, loads in LOADS_OF_REPLICAS.items()}
    assert told == {name: loads[-1] for name, loads in LOADS_OF_REPLICAS.items()}


@BOTH
def test_sequences_stay_at_the_replica_that_has_them(cluster, repository, protocol):
    cluster.deploy(repository, num_replicas=2, sequences=True)
    header = {"http": "x-session-id", "grpc": "session_id"}[protocol.name]

    def add(number, sequence, **step):
        value = [protocol.input("X", np.array([[number]], np.int32))]
        headers = {header: str(sequence)}
        answer = client.infer("accumulate_direct", value, headers=headers, sequence_id=sequence, **step)
        return answer.as_numpy("SUM").item()

    def executions():
        return [cluster.executions(server, "accumulate_direct") for server in cluster.servers()]

    others = itertools.count(1000)

    def both_are_asked():
        add(1, next(others), sequence_start=True, sequence_end=True)
        return all(executions())

    sequences = range(1, SEQUENCES + 1)
    with protocol.connect(cluster) as client:
        # Ray's proxy knows the second replica a little later than the first one.
        eventually(both_are_asked, "the proxy to know both replicas")
        before = executions()
        assert [add(1, number, sequence_start=True) for number in sequences] == [1] * SEQUENCES
        assert [add(2, number) for number in sequences] == [3] * SEQUENCES
        assert [add(3, number, sequence_end=True) for number in sequences] == [6] * SEQUENCES
    # Both have had some.
    assert all(now > then for now, then in zip(executions(), before)), before


def test_haproxy_is_in_front_if_ray_wants_it(repository):
    with ray_clusters.place() as place, Cluster(place, **ray_clusters.haproxy_variables(place.folder)) as cluster:
        with pytest.raises(ClusterError, match="request_router_class.*HAProxy is enabled"):
            cluster.deploy(repository, sequences=True)
        cluster.deploy(repository, num_replicas=2, **OFTEN)
        server, _ = cluster.servers()
        with asked(cluster, "HTTP, kept", "gRPC", "gRPC, streams") as outcomes:
            wait_for_answers(outcomes)
            os.kill(server, signal.SIGKILL)
            eventually(lambda: len(cluster.servers() - {server}) == 2, "another server")
            wait_for_answers(outcomes, 200)
        assert [error for error in outcomes if not re.search("answered|503|UNAVAILABLE", error)] == []


def test_connections_to_servers_that_behave_badly_are_bounded():
    line = [ray_clusters.ray_python(), ray_clusters.PROGRAM.with_name("ray_connections.py")]
    variables = processes.variables_with(PYTHONPATH=str(ROOT / "packaging/wheel"))
    assert len(processes.run(line, env=variables, check=True).stdout.splitlines()) == 5


def test_the_program_that_ray_has_is_reached_by_the_name_that_both_have():
    line = [ray_clusters.ray_python(), "-c", "from nereid_server.programs import serve; serve()", "run", "--help"]
    variables = processes.variables_with(PYTHONPATH=str(ROOT / "packaging/wheel"))
    assert "Run an application from an import path" in processes.run(line, env=variables, check=True).stdout


def test_the_example_is_served_and_leaves_nothing(repository):
    text = (ROOT / "packaging/ray/serve.yaml").read_text()
    with ray_clusters.place() as place:
        config = yaml.safe_load(text)
        config["http_options"] |= {"host": "127.0.0.1", "port": place.http_port}
        config["grpc_options"]["port"] = place.grpc_port
        [application] = config["applications"]
        assert application["args"]["model_repository"] == "/models"
        application["args"] |= {"model_repository": str(repository), "program": str(BINARY)}
        path = place.folder / "serve.yaml"
        path.write_text(yaml.safe_dump(config))
        line = [ray_clusters.ray_python().parent / "serve", "run", path]
        with open(place.log, "wb") as log, processes.running(line, env=place.variables(), stdout=log, stderr=log) as program:
            eventually(lambda: http_status(place.http_port, "/v2/health/ready") == 200, "the example to run")
            for protocol in (HTTP, GRPC):
                inputs, first = add_sub_inputs(protocol)
                with protocol.connect(place) as client:
                    np.testing.assert_array_equal(client.infer("add_sub", inputs).as_numpy("OUTPUT0"), first + 1000)
            program.send_signal(signal.SIGINT)
            program.wait(PATIENCE)
