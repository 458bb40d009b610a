"""Requests that meet at a held model: batches, full queues, requests that wait too long, and priorities.

Nothing here depends on who is quick: while one held request runs, the next ones are sent, and the number of those that
wait, which the server publishes, tells when each has arrived.
"""

import time

import pytest
from held import held_inputs
from protocols import add_sub_inputs, metric, pending
from serving import eventually
from tritonclient.utils import InferenceServerException


class Crowd:
    """Sends requests at once, each from a thread and with a client of its own."""

    def __init__(self, server, protocol, threads, gate, model):
        self.server, self.protocol, self.threads, self.gate, self.model = server, protocol, threads, gate, model
        self.finished = []
        # What earlier tests left to the model is finished when this is.
        self.infer()

    def infer(self, hold=None, x=0.0, **options):
        with self.protocol.connect(self.server) as client:
            result = client.infer(self.model, held_inputs(self.protocol, hold, x), **options)
            return result.as_numpy("OUTPUT0").item()

    def send(self, hold=None, x=0.0, **options):
        """Gives a future; `finished` lists each x in the order of the answers."""

        def ask():
            answer = self.infer(hold, x, **options)
            self.finished.append(x)
            return answer

        return self.threads.submit(ask)

    def wait_for(self, count):
        """Comes back when so many requests wait."""
        eventually(lambda: pending(self.server, self.model) == count, f"{count} waiting requests")

    def wait_until_finished(self, *xs):
        eventually(lambda: self.finished == list(xs), f"the answers {xs}")

    def occupy(self):
        """One request runs until the hold, which comes first, is released. The future comes second."""
        hold = self.gate.hold()
        future = self.send(hold)
        hold.wait_until_running()
        return hold, future


@pytest.fixture
def crowd(server, protocol, threads, gate):
    return lambda model: Crowd(server, protocol, threads, gate, model)


def executions(statistics):
    return {entry["batch_size"]: entry["compute_infer"]["count"] for entry in statistics.get("batch_stats", [])}


def test_requests_that_wait_together_are_run_together(crowd, client, protocol):
    crowd = crowd("held")
    before = protocol.statistics(client, "held")
    hold, first = crowd.occupy()
    others = [crowd.send(x=x) for x in range(1, 14)]
    crowd.wait_for(13)
    hold.release()
    assert first.result() == 0
    assert [future.result() for future in others] == list(range(1, 14))

    after = protocol.statistics(client, "held")
    assert after["inference_count"] - before["inference_count"] == 14
    assert after["execution_count"] - before["execution_count"] == 3
    # The first alone, then as many as the model takes, then the rest.
    grown = {size: count - executions(before).get(size, 0) for size, count in executions(after).items()}
    assert {size: count for size, count in grown.items() if count} == {1: 1, 8: 1, 5: 1}


def test_a_request_that_finds_the_queue_full_is_refused_at_once(crowd, server, protocol):
    def rejected():
        return metric(server, "nv_inference_request_failure", model="held_bounded", reason="REJECTED", version=1)

    crowd = crowd("held_bounded")
    before = rejected()
    hold, first = crowd.occupy()
    accepted = [first, crowd.send(), crowd.send()]
    crowd.wait_for(2)
    with pytest.raises(InferenceServerException) as refusal:
        crowd.infer(request_id="late")
    assert refusal.value.message() == "[request id: late] Exceeds maximum queue size"
    assert refusal.value.status() == protocol.status("UNAVAILABLE")
    assert not any(future.done() for future in accepted)
    hold.release()
    assert [future.result() for future in accepted] == [0.0] * 3
    assert rejected() == before + 1


def test_a_request_that_waits_longer_than_its_timeout_is_refused(crowd, server, client, protocol):
    crowd = crowd("held_impatient")
    before = protocol.statistics(client, "held_impatient")["inference_stats"]["fail"].get("count", 0)
    hold, accepted = crowd.occupy()
    with pytest.raises(InferenceServerException) as refusal:
        crowd.infer(timeout=20_000, request_id="hasty")
    assert refusal.value.message() == "Request timeout expired"
    assert refusal.value.status() == protocol.status("UNAVAILABLE")
    assert not accepted.done()
    hold.release()
    assert accepted.result() == 0
    assert protocol.statistics(client, "held_impatient")["inference_stats"]["fail"]["count"] == before + 1


def test_the_more_important_of_the_waiting_requests_is_run_first(crowd, gate):
    crowd = crowd("held_ranked")
    first_hold, first = crowd.occupy()
    important, other = gate.hold(), gate.hold()
    futures = [first, crowd.send(other, x=2, priority=2)]
    crowd.wait_for(1)
    futures.append(crowd.send(important, x=1, priority=1))
    crowd.wait_for(2)
    first_hold.release()
    important.wait_until_running()
    crowd.wait_until_finished(0)
    important.release()
    crowd.wait_until_finished(0, 1)
    other.release()
    for future in futures:
        future.result()
    assert crowd.finished == [0, 1, 2]


def test_a_waiting_request_costs_its_own_time_in_the_queue(crowd, client, protocol):
    crowd = crowd("held_ranked")
    before = protocol.statistics(client, "held_ranked")["inference_stats"]
    started = time.monotonic_ns()
    hold, running = crowd.occupy()
    waiting = crowd.send()
    crowd.wait_for(1)
    both = time.monotonic_ns()
    # What takes a time that can be measured.
    for _ in range(100):
        client.infer("add_sub", add_sub_inputs(protocol)[0])
    held = time.monotonic_ns() - both
    hold.release()
    assert (running.result(), waiting.result()) == (0, 0)
    passed = time.monotonic_ns() - started
    after = protocol.statistics(client, "held_ranked")["inference_stats"]
    for kind in ("queue", "compute_infer"):
        assert held <= after[kind]["ns"] - before[kind].get("ns", 0) <= passed, kind
