"""Limits on how many requests of a step of an ensemble are in flight, which a decoupled member can produce fast."""

import ensembles
import numpy as np
import pytest
from ensembles import NO_BATCHES, Stream, network, step, write_plugin_model
from held import Gate
from protocols import GRPC, canceled, pending
from repository import tensor
from serving import PATIENCE, Server, eventually

IN, OUT = tensor("input", "IN", "INT32", -1), tensor("output", "OUT", "INT32", 1)
TENSORS = NO_BATCHES + IN + OUT
DECOUPLED = "model_transaction_policy { decoupled: true }\n" + tensor("output", "IDX", "UINT32", 1)
LIMITS = [None, 1, 4]


def scheduling(limit):
    return f"  max_inflight_requests: {limit}\n" if limit else ""


@pytest.fixture(scope="module")
def folder_gate(tmp_path_factory):
    return Gate(tmp_path_factory.mktemp("gate"))


@pytest.fixture
def hold(folder_gate):
    yield folder_gate.hold()
    folder_gate.release_all()


@pytest.fixture(scope="module")
def folder(tmp_path_factory, folder_gate):
    """Ensembles with each limit: `plain` doubles what a member repeats, `gated` and `left` send it through a held member."""
    folder = tmp_path_factory.mktemp("models")
    write_plugin_model(folder, "repeat", "repeat", TENSORS + DECOUPLED)
    one = tensor("input", "X", "INT32", 1)
    network(
        folder,
        "double",
        "(int32[1] X) => (int32[1] Y) { Y = Add(X, X) }",
        NO_BATCHES + one + tensor("output", "Y", "INT32", 1),
    )
    network(
        folder,
        "cast",
        "(int32[1] X) => (float[1] REAL, int64[1] HOLD) { REAL = Cast <to = 1> (X) HOLD = Cast <to = 7> (X) }",
        NO_BATCHES + one + tensor("output", "REAL", "FP32", 1) + tensor("output", "HOLD", "INT64", 1),
    )
    repeat = step("repeat", {"IN": "IN"}, {"OUT": "number"})
    for limit in LIMITS:
        double = step("double", {"X": "number"}, {"Y": "OUT"})
        ensembles.write(folder, f"plain_{limit}", TENSORS, repeat, double, scheduling=scheduling(limit))
        # One for each test, so that it counts its own. And no execution has been brief before the held one: if many have
        # been, the ensemble's own thread executes the held one, too, and nothing else for the request until it ends.
        for name in ["gated", "left"]:
            member = f"held_{name}_{limit}"
            folder_gate.write(folder, member, NO_BATCHES)
            ensembles.write(
                folder,
                f"{name}_{limit}",
                NO_BATCHES + IN + tensor("output", "OUT", "FP32", 1),
                repeat,
                step("cast", {"X": "number"}, {"REAL": "real", "HOLD": "hold"}),
                step(member, {"INPUT0": "real", "HOLD": "hold"}, {"OUTPUT0": "OUT"}),
                scheduling=scheduling(limit),
            )
    return folder


@pytest.fixture(scope="module")
def server(folder, tmp_path_factory):
    backends = f"--backend-directory={ensembles.build_backends(tmp_path_factory.mktemp('plugins'))}"
    with Server(tmp_path_factory.mktemp("server"), folder, backends) as server:
        yield server.wait_until_ready()


@pytest.fixture
def client(server):
    with GRPC.connect(server) as client:
        yield client


def numbers(stream):
    return [response["OUT"].item() for response in stream.all()]


@pytest.mark.parametrize("limit", LIMITS)
def test_all_responses_come_in_order_whatever_the_limit(client, limit):
    with Stream(client) as stream:
        for _ in range(16):
            stream.send(f"plain_{limit}", {"IN": np.arange(16, dtype=np.int32)})
            assert numbers(stream) == [2 * number for number in range(16)]


@pytest.mark.parametrize("limit", LIMITS)
def test_many_streams_share_a_limit(server, threads, limit):
    def ask(base):
        with GRPC.connect(server) as client, Stream(client) as stream:
            stream.send(f"plain_{limit}", {"IN": np.arange(base, base + 8, dtype=np.int32)})
            return numbers(stream)

    asked = {base: threads.submit(ask, base) for base in range(0, 160, 10)}
    for base, answer in asked.items():
        assert answer.result(PATIENCE) == [2 * number for number in range(base, base + 8)]


@pytest.mark.parametrize("limit, waiting", [(None, 9), (1, 0), (4, 3)])
def test_no_more_requests_of_a_step_are_in_flight_than_the_limit(server, client, hold, limit, waiting):
    model = f"held_gated_{limit}"
    with Stream(client) as stream:
        stream.send(f"gated_{limit}", {"IN": np.full(10, hold.number, np.int32)})
        hold.wait_until_running()
        eventually(lambda: pending(server, model) == waiting, f"{waiting} requests to wait")
        assert [pending(server, model) for _ in range(30)] == [waiting] * 30
        hold.release()
        assert numbers(stream) == [hold.number] * 10


@pytest.mark.parametrize("limit", LIMITS)
def test_a_client_that_goes_away_gives_its_permits_back(server, client, hold, limit):
    model = f"left_{limit}"
    before = canceled(server, model)
    with Stream(client) as stream:
        stream.send(model, {"IN": np.full(10, hold.number, np.int32)})
        hold.wait_until_running()
    eventually(lambda: canceled(server, model) == before + 1, "the request to be canceled")
    eventually(lambda: pending(server, f"held_{model}") == 0, "the requests to be dropped")
    hold.release()
    with Stream(client) as stream:
        stream.send(model, {"IN": np.zeros(10, np.int32)})
        assert numbers(stream) == [0] * 10


def test_the_limit_is_logged(server):
    assert "Ensemble model 'plain_4' configured with max_inflight_requests: 4" in server.log()
    assert "Ensemble model 'plain_None'" not in server.log()
