"""Replicas behind HAProxy, as `packaging/haproxy` configures it: which of them has a sequence, and what a client sees when one
leaves.
"""

import collections
import itertools
import threading

import numpy as np
import pytest
import repository as models
import requests
from perf_tool import perf_rows
from protocols import GRPC, HTTP
from replicas import Fleet, haproxy, keep_asking
from serving import PATIENCE, eventually, http_status
from tritonclient.utils import InferenceServerException

pytestmark = pytest.mark.others

SEQUENCES = 30
# Longer than any test.
LONG_DELAY = 3600
# HAProxy looks twice a second.
DELAY = 4


def live_sequences(port):
    return requests.get(f"http://127.0.0.1:{port}/v2/load", timeout=PATIENCE).json()["live_sequences"]


def statistics(port, model):
    return requests.get(f"http://127.0.0.1:{port}/v2/models/{model}/stats", timeout=PATIENCE).json()["model_stats"][0]


def executions(port):
    return int(statistics(port, "add_sub")["execution_count"])


class Sums:
    """Sequences that add up numbers, each step through HAProxy."""

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


@pytest.fixture
def sequences(tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    models.accumulate(folder, "direct")
    return folder


def addresses(front):
    return {HTTP: f"127.0.0.1:{front[0]}", GRPC: f"127.0.0.1:{front[1]}"}


@pytest.mark.parametrize("protocol", [HTTP, GRPC], ids=str)
def test_sequences_stay_at_the_replica_that_has_them_also_when_it_leaves(tmp_path, sequences, backend_option, protocol):
    options = (f"--shutdown-delay-secs={LONG_DELAY}", "--drain-status=404")
    with Fleet(tmp_path, sequences, backend_option, *options) as fleet, haproxy(tmp_path, "sequences", fleet.ports) as front:
        with Sums(protocol, addresses(front)[protocol]) as sums:
            assert [sums.add(1, number, start=True) for number in range(1, SEQUENCES + 1)] == [1] * SEQUENCES
            (leaving, _), (staying, _) = fleet.ports
            before = live_sequences(staying)
            assert 0 < before < SEQUENCES and before + live_sequences(leaving) == SEQUENCES
            fleet.servers[0].terminate()
            eventually(lambda: http_status(leaving, "/v2/health/ready") == 404, "the announcement")
            more = itertools.count(2000)
            eventually(lambda: ten_begin(sums, protocol, more), "HAProxy to know")
            assert live_sequences(staying) == before
            assert [sums.add(2, number) for number in range(1, SEQUENCES + 1)] == [3] * SEQUENCES
            # Others begin at the other replica. They end at once, because it has no slots for all.
            others = range(1000, 1000 + SEQUENCES)
            assert [sums.add(5, number, start=True, end=True) for number in others] == [5] * SEQUENCES
            assert [sums.add(3, number, end=True) for number in range(1, SEQUENCES + 1)] == [6] * SEQUENCES
        assert fleet.servers[0].process.wait(PATIENCE) == 0


def ten_begin(sums, protocol, numbers):
    """Whether ten sequences in a row begin: over gRPC a replica that leaves may still be asked, and refuses."""
    try:
        for number in itertools.islice(numbers, 10):
            sums.add(1, number, start=True, end=True)
    except InferenceServerException:
        # Over HTTP HAProxy asks the other replica itself.
        assert protocol is GRPC
        return False
    return True


def test_without_the_table_sequences_break(tmp_path, sequences, backend_option):
    """Shows that the tests with it show something."""
    with Fleet(tmp_path, sequences, backend_option) as fleet, haproxy(tmp_path, "stateless", fleet.ports) as front:
        with Sums(HTTP, addresses(front)[HTTP]) as sums:
            broken = 0
            for number in range(1, SEQUENCES + 1):
                sums.add(1, number, start=True)
                try:
                    broken += sums.add(2, number) != 3
                except InferenceServerException:
                    broken += 1
    assert broken > 0


@pytest.mark.parametrize("protocol", [HTTP, GRPC], ids=str)
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


def test_replicas_are_replaced_without_a_lost_request(tmp_path, backend_option, threads):
    folder = tmp_path / "models"
    folder.mkdir()
    models.add_sub(folder)
    done, outcomes = threading.Event(), {HTTP: collections.Counter(), GRPC: collections.Counter()}
    with (
        Fleet(tmp_path, folder, backend_option, f"--shutdown-delay-secs={DELAY}") as fleet,
        haproxy(tmp_path, "stateless", fleet.ports) as front,
    ):
        asked = [(protocol, address) for protocol, address in addresses(front).items() for _ in range(2)]
        callers = [threads.submit(keep_asking, *one, done, outcomes[one[0]]) for one in asked]
        try:
            eventually(lambda: all(counted["answered"] > 10 for counted in outcomes.values()), "the load to be under way")
            for index, (port, _) in enumerate(fleet.ports):
                fleet.replace(index)
                eventually(lambda used=port: executions(used) > 10, "HAProxy to use the new replica")
        finally:
            done.set()
        for caller in callers:
            caller.result(PATIENCE)
    assert all(set(counted) == {"answered"} for counted in outcomes.values()), outcomes
