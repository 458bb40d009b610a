"""Ensembles: members that fail, queues that are full, clients that go away, and what is counted of all this."""

import queue
import re

import numpy as np
import pytest
from ensembles import Executed, Stream, ask, infer
from held import held_inputs, occupy
from protocols import GRPC, HTTP, canceled, metric, pending
from serving import PATIENCE, eventually
from tritonclient.utils import InferenceServerException

ONE = {"INPUT": np.array([1.5], np.float32)}
FAILURE = "failed as wanted: response"


@pytest.fixture
def client(protocol, ensemble_server):
    with protocol.connect(ensemble_server) as client:
        yield client


@pytest.fixture
def grpc(ensemble_server):
    with GRPC.connect(ensemble_server) as client:
        yield client


@pytest.fixture
def answers():
    """Results and errors of requests that do not wait for their answers."""
    return queue.Queue()


def refusal(protocol, client, model, arrays, **options):
    """The code and the text of an error."""
    with pytest.raises(InferenceServerException) as error:
        infer(protocol, client, model, arrays, **options)
    return error.value.status(), error.value.message()


def send(client, model, answers, hold=None, x=0.0, **options):
    """Sends a request over gRPC. Its result and error go into the queue `answers`. Returns what cancels it."""
    inputs = held_inputs(GRPC, hold, x)
    return client.async_infer(model, inputs, lambda result, error: answers.put((result, error)), **options)


# ---- Members that fail ----


@pytest.mark.parametrize(
    "model, text",
    [
        ("may_fail", f"in ensemble 'may_fail', {FAILURE}"),
        ("may_fail_inside", f"in ensemble 'may_fail_inside', in ensemble 'may_fail', {FAILURE}"),
    ],
    ids=["member", "nested"],
)
def test_a_failure_of_a_member_names_the_ensembles_around_it(protocol, client, model, text):
    with Executed(protocol, client, "costly") as executed:
        expected = protocol.status("INVALID_ARGUMENT"), text
        assert refusal(protocol, client, model, ONE, parameters={"fail_at": "response"}) == expected
        assert executed.times() == [0]
    assert infer(protocol, client, model, ONE)["OUTPUT"].item() == 1.5


def test_of_two_failures_one_is_told_once(protocol, client):
    for _ in range(20):
        _, text = refusal(protocol, client, "may_fail_twice", ONE, parameters={"fail_at": "response"})
        assert text == f"in ensemble 'may_fail_twice', {FAILURE}"


def test_a_failure_in_a_branch_that_nobody_wants_is_none(protocol, client):
    assert infer(protocol, client, "may_fail_twice", ONE, ["SECOND"])["SECOND"].item() == 1.5


def test_a_failure_of_an_execution_is_the_ensembles(protocol, client):
    _, text = refusal(protocol, client, "may_fail", ONE, parameters={"fail_at": "execute"})
    assert text.startswith("in ensemble 'may_fail', ") and "failed as wanted: execute" in text


def test_failures_on_a_stream_do_not_end_it(ensemble_server):
    with GRPC.connect(ensemble_server) as client, Stream(client) as stream:
        stream.send("may_fail", ONE, parameters={"fail_at": "response"}, request_id="bad")
        stream.send("may_fail", ONE, request_id="good")
        result, error = stream.answers.get(timeout=PATIENCE)
        assert result is None and error.message() == f"in ensemble 'may_fail', {FAILURE}"
        assert stream.next().get_response().id == "good"


# ---- What is counted ----


def counts(protocol, client, model):
    """What the statistics say about a model; absent numbers are zeros."""
    statistics = protocol.statistics(client, model)
    found = {kind: spent.get("count", 0) for kind, spent in statistics["inference_stats"].items()}
    found |= {kind: statistics.get(kind, 0) for kind in ("inference_count", "execution_count")}
    return found


def spent(protocol, client, *models):
    """Nanoseconds in which these models have computed, together."""
    kinds = ("compute_input", "compute_infer", "compute_output")
    found = [protocol.statistics(client, model)["inference_stats"] for model in models]
    return {kind: sum(statistics.get(kind, {}).get("ns", 0) for statistics in found) for kind in kinds}


def difference(after, before):
    return {key: value - before.get(key, 0) for key, value in after.items() if value != before.get(key, 0)}


def test_a_success_is_counted_once(protocol, client):
    x = {"INPUT": np.zeros((3, 4), np.float32)}
    infer(protocol, client, "diamond", x)
    before = counts(protocol, client, "diamond")
    rows = {row["batch_size"]: row for row in protocol.statistics(client, "diamond")["batch_stats"]}
    infer(protocol, client, "diamond", x)
    steps = ("queue", "compute_input", "compute_infer", "compute_output", "success")
    expected = dict.fromkeys(steps, 1) | {"inference_count": 3, "execution_count": 1}
    assert difference(counts(protocol, client, "diamond"), before) == expected
    after = {row["batch_size"]: row for row in protocol.statistics(client, "diamond")["batch_stats"]}
    assert after[3]["compute_infer"]["count"] == rows[3]["compute_infer"]["count"] + 1


def test_an_ensemble_computes_as_long_as_its_members_together(protocol, client):
    members = ("scale", "shift", "combine")
    x = {"INPUT": np.zeros((1, 4), np.float32)}
    infer(protocol, client, "diamond", x)
    before = spent(protocol, client, *members), spent(protocol, client, "diamond")
    infer(protocol, client, "diamond", x)
    of_members, of_ensemble = spent(protocol, client, *members), spent(protocol, client, "diamond")
    assert difference(of_ensemble, before[1]) == difference(of_members, before[0])


def test_members_count_their_requests(protocol, client):
    before = counts(protocol, client, "scale")
    infer(protocol, client, "chain", {"INPUT": np.zeros((2, 4), np.float32)})
    after = difference(counts(protocol, client, "scale"), before)
    assert (after["success"], after["inference_count"], after["execution_count"]) == (2, 4, 2)


def test_a_failure_is_counted_once(protocol, ensemble_server, client):
    def failed(model, reason):
        return metric(ensemble_server, "nv_inference_request_failure", model=model, reason=reason, version=1)

    before = counts(protocol, client, "may_fail"), counts(protocol, client, "faulty"), failed("may_fail", "OTHER")
    refusal(protocol, client, "may_fail", ONE, parameters={"fail_at": "response"})
    eventually(lambda: counts(protocol, client, "may_fail") != before[0], "the failure to be counted")
    assert difference(counts(protocol, client, "may_fail"), before[0]) == {"fail": 1}
    assert difference(counts(protocol, client, "faulty"), before[1])["fail"] == 1
    assert failed("may_fail", "OTHER") == before[2] + 1


# ---- Ids, priorities, queues ----


@pytest.mark.parametrize("model", ["chain", "nested", "ensemble_model"])
def test_the_answer_has_the_id_of_the_request(protocol, client, model):
    arrays = {"INPUT": np.zeros((1, 4), np.float32)}
    if model == "ensemble_model":
        arrays = {"IMAGE": np.array([[b"1"]], np.object_)}
    response = ask(protocol, client, model, arrays, request_id="the id").get_response()
    assert (response["id"] if protocol is HTTP else response.id) == "the id"


def batches_of_5(client):
    """How many executions of the held model had as many rows."""
    rows = GRPC.statistics(client, "held").get("batch_stats", [])
    return sum(row["compute_infer"]["count"] for row in rows if row["batch_size"] == 5)


def test_requests_of_an_ensemble_are_batched_by_its_members(grpc, ensemble_server, gate, answers):
    others = queue.Queue()
    hold = occupy(gate, grpc, "held", others)
    for x in range(5):
        send(grpc, "held_inside", answers, x=x)
    eventually(lambda: pending(ensemble_server, "held") == 5, "the requests to wait")
    before = batches_of_5(grpc)
    hold.release()
    results = [answers.get(timeout=PATIENCE) for _ in range(5)]
    assert [error for _, error in results] == [None] * 5
    assert sorted(result.as_numpy("OUTPUT0").item() for result, _ in results) == [0, 1, 2, 3, 4]
    assert batches_of_5(grpc) == before + 1


def test_a_members_full_queue_is_an_error_of_the_ensemble(protocol, grpc, client, ensemble_server, gate, answers):
    hold = occupy(gate, grpc, "held_bounded", answers)
    for _ in range(2):
        send(grpc, "held_bounded_inside", answers)
    eventually(lambda: pending(ensemble_server, "held_bounded") == 2, "the queue to be full")
    arrays = {"INPUT0": np.zeros((1, 1), np.float32), "HOLD": np.zeros((1, 1), np.int64)}
    code, text = refusal(protocol, client, "held_bounded_inside", arrays, request_id="late")
    assert code == protocol.status("UNAVAILABLE")
    assert text == "in ensemble 'held_bounded_inside', [request id: late] Exceeds maximum queue size"
    hold.release()
    assert [answers.get(timeout=PATIENCE)[1] for _ in range(3)] == [None] * 3
    infer(protocol, client, "held_bounded_inside", arrays)


def test_of_many_requests_those_that_the_queue_refuses_fail_and_the_others_succeed(grpc, gate, answers):
    hold = gate.hold()
    for _ in range(12):
        send(grpc, "held_bounded_inside", answers, hold, 2.0)
    hold.wait_until_running()
    first = answers.get(timeout=PATIENCE)
    hold.release()
    results = [first] + [answers.get(timeout=PATIENCE) for _ in range(11)]
    good = [result.as_numpy("OUTPUT0").item() for result, error in results if error is None]
    bad = [error.message() for _, error in results if error is not None]
    assert good == [2.0] * len(good) and len(good) >= 3 and bad
    expected = r"in ensemble 'held_bounded_inside', (\[request id: <id_unknown>\] )?Exceeds maximum queue size"
    assert all(re.fullmatch(expected, text) for text in bad), bad


def test_a_request_that_waits_too_long_in_a_member_ends_with_the_members_error(grpc, gate, answers):
    others = queue.Queue()
    hold = occupy(gate, grpc, "held_impatient", others)
    send(grpc, "held_impatient_inside", answers, timeout=50_000)
    # The member's instance is still busy.
    result, error = answers.get(timeout=PATIENCE)
    assert result is None and error.status() == GRPC.status("UNAVAILABLE")
    assert error.message() == "in ensemble 'held_impatient_inside', Request timeout expired"
    hold.release()
    assert others.get(timeout=PATIENCE)[1] is None


def test_members_keep_the_priority_of_the_request(grpc, ensemble_server, gate, answers):
    hold = occupy(gate, grpc, "held_ranked", answers)
    # What waits for the instance already cannot be overtaken.
    send(grpc, "held_ranked", answers, priority=1)
    common, urgent = gate.hold(), gate.hold()
    send(grpc, "held_ranked_inside", answers, common, priority=2)
    send(grpc, "held_ranked_inside", answers, urgent, priority=1)
    eventually(lambda: pending(ensemble_server, "held_ranked") == 3, "all of them to wait")
    hold.release()
    urgent.wait_until_running()
    assert not common.is_running()
    urgent.release()
    common.wait_until_running()
    common.release()
    assert [answers.get(timeout=PATIENCE)[1] for _ in range(4)] == [None] * 4


# ---- Clients that go away ----


def test_canceling_reaches_a_request_that_waits_in_a_member(grpc, ensemble_server, gate, answers):
    others = queue.Queue()
    hold = occupy(gate, grpc, "held", others)
    before = canceled(ensemble_server, "held")
    waiting = send(grpc, "held_inside", answers)
    eventually(lambda: pending(ensemble_server, "held") == 1, "the request to wait")
    waiting.cancel()
    result, error = answers.get(timeout=PATIENCE)
    assert result is None and error.status() == "StatusCode.CANCELLED"
    # The member's instance is still busy.
    eventually(lambda: canceled(ensemble_server, "held") == before + 1, "the member's request to be canceled")
    assert pending(ensemble_server, "held") == 0
    hold.release()
    assert others.get(timeout=PATIENCE)[1] is None


def test_no_step_begins_after_the_client_has_gone_away(grpc, ensemble_server, gate, answers):
    with Executed(GRPC, grpc, "held", "after") as executed:
        hold = gate.hold()
        running = send(grpc, "held_inside", answers, hold)
        hold.wait_until_running()
        before = canceled(ensemble_server, "held_inside")
        running.cancel()
        assert answers.get(timeout=PATIENCE)[1].status() == "StatusCode.CANCELLED"
        eventually(lambda: canceled(ensemble_server, "held_inside") > before, "the ensemble's request to be canceled")
        # The ensemble has not waited for the member, which still runs.
        hold.release()
        eventually(lambda: executed.times()[0] == 1, "the member to end")
        assert executed.times() == [1, 0]


def test_canceling_reaches_a_decoupled_member(grpc, ensemble_server):
    before = canceled(ensemble_server, "endless_inside")
    with Stream(grpc) as stream:
        stream.send("endless_inside", {"IN": np.array([1, 2], np.int32)})
        assert [stream.next().as_numpy("OUT").item() for _ in range(2)] == [2, 4]
    eventually(lambda: canceled(ensemble_server, "endless_inside") == before + 1, "the request to be canceled")

    def told():
        statistics = GRPC.statistics(grpc, "endless").get("response_stats", {})
        return sum(response.get("cancel", {}).get("count", 0) for response in statistics.values())

    assert eventually(told, "the member to be told") >= 1
