"""Replicas behind HAProxy and Envoy, as `packaging` configures them: which of them has a sequence, and what a client sees when
one leaves.
"""

import collections
import itertools
import threading

import grpc
import numpy as np
import pytest
import repository as models
import requests
from certificates import Authority
from perf_tool import perf_rows
from protocols import GRPC, HTTP, add_sub_inputs
from replicas import FRONTS, LOADS, Fleet, haproxy, keep_asking
from serving import PATIENCE, eventually, http_status, size
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

pytestmark = pytest.mark.others

SEQUENCES = 30
# Longer than any test.
LONG_DELAY = 3600
# HAProxy and Envoy look twice a second.
DELAY = 4
# How often all replicas are replaced by new ones, one after the other.
RESTARTS = size(1, 20)
# Clients that do the same.
ALIKE = size(1, 2)


def live_sequences(port):
    return requests.get(f"http://127.0.0.1:{port}/v2/load", timeout=PATIENCE).json()["live_sequences"]


def statistics(port, model):
    return requests.get(f"http://127.0.0.1:{port}/v2/models/{model}/stats", timeout=PATIENCE).json()["model_stats"][0]


def executions(port):
    return int(statistics(port, "add_sub")["execution_count"])


def is_ready(address):
    """Whether a replica behind a port of gRPC answers."""
    with GRPC.library.InferenceServerClient(address) as client:
        try:
            return client.is_server_ready()
        except InferenceServerException:
            return False


class Sums:
    """Sequences that add up numbers, each step through HAProxy, which reads the sequence in a header."""

    def __init__(self, protocol, address):
        self._client, self._protocol = protocol.library.InferenceServerClient(address), protocol

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._client.close()

    def add(self, number, sequence, start=False, end=False):
        value = [self._protocol.input("X", np.array([[number]], np.int32))]
        step = {"sequence_id": sequence, "sequence_start": start, "sequence_end": end}
        answer = self._client.infer("accumulate_direct", value, headers={"x-sequence-id": str(sequence)}, **step)
        return answer.as_numpy("SUM").item()


class PinnedSums:
    """The same through Envoy, which tells in a header of an answer where the sequence is."""

    def __init__(self, protocol, address):
        self._add, self._places = (self._over_http if protocol is HTTP else self._over_grpc), {}
        self._http = (requests.Session(), f"http://{address}/v2/models/accumulate_direct/infer")
        self._channel = grpc.insecure_channel(address)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._http[0].close()
        self._channel.close()

    def add(self, number, sequence, start=False, end=False):
        place = None if start else self._places.get(sequence)
        step = {"sequence_id": sequence, "sequence_start": start, "sequence_end": end}
        total, told = self._add(number, {"x-replica": place} if place else {}, step)
        self._places[sequence] = told or place
        return total

    def _over_http(self, number, headers, step):
        value = {"name": "X", "datatype": "INT32", "shape": [1, 1], "data": [number]}
        session, address = self._http
        answer = session.post(address, json={"inputs": [value], "parameters": step}, headers=headers, timeout=PATIENCE)
        if answer.status_code != 200:
            raise InferenceServerException(answer.text)
        return answer.json()["outputs"][0]["data"][0], answer.headers.get("x-replica")

    def _over_grpc(self, number, headers, step):
        value = GRPC.input("X", np.array([[number]], np.int32))
        infer, outputs = self._stub.ModelInfer, service_pb2.ModelInferRequest.InferRequestedOutputTensor
        request = service_pb2.ModelInferRequest(model_name="accumulate_direct", outputs=[outputs(name="SUM")])
        request.inputs.append(value._get_tensor())
        request.raw_input_contents.append(value._get_content())
        for name, parameter in step.items():
            kind = "bool_param" if isinstance(parameter, bool) else "int64_param"
            setattr(request.parameters[name], kind, parameter)
        try:
            answer, call = infer.with_call(request, metadata=tuple(headers.items()), timeout=PATIENCE)
        except grpc.RpcError as error:
            raise InferenceServerException(error.details()) from error
        total = np.frombuffer(answer.raw_output_contents[0], np.int32)[0].item()
        return total, dict(call.initial_metadata()).get("x-replica")


CLIENTS = {"haproxy": Sums, "envoy": PinnedSums}


@pytest.fixture
def sequences(tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    models.accumulate(folder, "direct")
    return folder


def addresses(front):
    return {HTTP: f"127.0.0.1:{front[0]}", GRPC: f"127.0.0.1:{front[1]}"}


@pytest.mark.parametrize("protocol", [HTTP, GRPC], ids=["http", "grpc"])
@pytest.mark.parametrize("front", FRONTS)
def test_sequences_stay_at_the_replica_that_has_them_also_when_it_leaves(tmp_path, sequences, backend_option, front, protocol):
    options = (f"--shutdown-delay-secs={LONG_DELAY}", "--drain-status=404")
    with (
        Fleet(tmp_path, sequences, backend_option, *options) as fleet,
        FRONTS[front](tmp_path, "sequences", fleet.ports) as ports,
    ):
        with CLIENTS[front](protocol, addresses(ports)[protocol]) as sums:
            eventually(lambda: ten_begin(sums, front, protocol, itertools.count(3000)), "the front to know the replicas")
            assert [sums.add(1, number, start=True) for number in range(1, SEQUENCES + 1)] == [1] * SEQUENCES
            (leaving, _), (staying, _) = fleet.ports
            before = live_sequences(staying)
            assert 0 < before < SEQUENCES and before + live_sequences(leaving) == SEQUENCES
            fleet.servers[0].terminate()
            eventually(lambda: http_status(leaving, "/v2/health/ready") == 404, "the announcement")
            more = itertools.count(2000)
            eventually(lambda: ten_begin(sums, front, protocol, more), "the front to know")
            assert live_sequences(staying) == before
            assert [sums.add(2, number) for number in range(1, SEQUENCES + 1)] == [3] * SEQUENCES
            # Others begin at the other replica. They end at once, because it has no slots for all.
            others = range(1000, 1000 + SEQUENCES)
            assert [sums.add(5, number, start=True, end=True) for number in others] == [5] * SEQUENCES
            assert [sums.add(3, number, end=True) for number in range(1, SEQUENCES + 1)] == [6] * SEQUENCES
        assert fleet.servers[0].process.wait(PATIENCE) == 0


def ten_begin(sums, front, protocol, numbers):
    """Whether ten sequences in a row begin: over gRPC a replica that leaves may still be asked, and refuses. Envoy knows no
    replica before its first check."""
    try:
        for number in itertools.islice(numbers, 10):
            sums.add(1, number, start=True, end=True)
    except InferenceServerException:
        # Over HTTP HAProxy asks the other replica itself.
        assert front == "envoy" or protocol is GRPC
        return False
    return True


@pytest.mark.parametrize("front", FRONTS)
def test_with_the_other_configuration_sequences_break(tmp_path, sequences, backend_option, front):
    """Shows that the tests with that for sequences show something."""
    with Fleet(tmp_path, sequences, backend_option) as fleet, FRONTS[front](tmp_path, "stateless", fleet.ports) as ports:
        eventually(lambda: http_status(ports[0], "/v2/health/ready") == 200, "the front to know the replicas")
        with CLIENTS[front](HTTP, addresses(ports)[HTTP]) as sums:
            broken = 0
            for number in range(1, SEQUENCES + 1):
                sums.add(1, number, start=True)
                try:
                    broken += sums.add(2, number) != 3
                except InferenceServerException:
                    broken += 1
    assert broken > 0


@pytest.mark.parametrize("protocol", [HTTP, GRPC], ids=["http", "grpc"])
def test_perf_names_the_sequence_of_a_request(tmp_path, sequences, backend_option, protocol):
    with Fleet(tmp_path, sequences, backend_option) as fleet, haproxy(tmp_path, "sequences", fleet.ports) as front:
        place = ["accumulate_direct", f"--protocol={protocol.name}", f"--url={addresses(front)[protocol]}"]
        counts = ["--concurrency-range=4", "--sequence-length=5", "--sequence-length-variation=0", "--request-count=200"]
        [row] = perf_rows(tmp_path, *place, *counts, "--sequence-header=x-sequence-id")
        assert row["errors"] == "0"
        for port, _ in fleet.ports:
            outcomes = statistics(port, "accumulate_direct")["inference_stats"]
            assert int(outcomes["success"]["count"]) > 0, "each replica has sequences"
            assert int(outcomes["fail"]["count"]) == 0


@pytest.mark.parametrize("front", FRONTS)
def test_replicas_may_be_encrypted(tmp_path, backend_option, front):
    folder = tmp_path / "models"
    folder.mkdir()
    models.add_sub(folder)
    authority = Authority(tmp_path)
    issued = authority.issue("replica")
    options = [f"--{port}-use-ssl=true" for port in ("http", "grpc")]
    options += [f"--{port}-server-cert={issued.certificate}" for port in ("http", "grpc")]
    options += [f"--{port}-server-key={issued.key}" for port in ("http", "grpc")]
    with (
        Fleet(tmp_path, folder, backend_option, *options) as fleet,
        FRONTS[front](tmp_path, "stateless", fleet.ports, authority.certificate) as ports,
    ):
        eventually(lambda: http_status(ports[0], "/v2/health/ready") == 200, "the front to know the replicas")
        eventually(lambda: is_ready(addresses(ports)[GRPC]), "the front to know the ports of gRPC")
        for protocol, asks in LOADS.values():
            inputs, expected = add_sub_inputs(protocol)
            next(asks(protocol, addresses(ports)[protocol], expected, inputs))
        # The replicas do not speak without.
        assert http_status(fleet.ports[0][0], "/v2/health/ready") != 200


@pytest.mark.timeout(size(120, 3600))
@pytest.mark.parametrize("front", FRONTS)
def test_replicas_are_replaced_without_a_lost_request(tmp_path, backend_option, threads, front):
    folder = tmp_path / "models"
    folder.mkdir()
    models.add_sub(folder)
    done, outcomes = threading.Event(), {name: collections.Counter() for name in LOADS}
    with (
        Fleet(tmp_path, folder, backend_option, f"--shutdown-delay-secs={DELAY}", count=3) as fleet,
        FRONTS[front](tmp_path, "stateless", fleet.ports) as ports,
    ):
        eventually(lambda: http_status(ports[0], "/v2/health/ready") == 200, "the front to know the replicas")
        eventually(lambda: is_ready(addresses(ports)[GRPC]), "the front to know the ports of gRPC")
        callers = [
            threads.submit(keep_asking, protocol, asks, addresses(ports)[protocol], done, outcomes[name])
            for name, (protocol, asks) in list(LOADS.items()) * ALIKE
        ]
        try:
            eventually(lambda: all(counted["answered"] > 10 for counted in outcomes.values()), "the load to be under way")
            for replaced, (port, _) in list(enumerate(fleet.ports)) * RESTARTS:
                fleet.replace(replaced)
                eventually(lambda used=port: executions(used) > 10, "the front to use the new replica")
        finally:
            done.set()
        for caller in callers:
            caller.result(PATIENCE)
    print(front, outcomes)
    assert all(set(counted) == {"answered"} for counted in outcomes.values()), outcomes
