"""Requests that meet at a slow model: batches, full queues, requests that wait too long, and priorities.

Nothing here depends on who is quick: while one long request runs, the next ones are sent, and the number of those that
wait, which the server publishes, tells when each has arrived.
"""

import time

import pytest
from protocols import metric, pending, slow_inputs
from serving import eventually
from tritonclient.utils import InferenceServerException


class Crowd:
    """Sends requests at once, each from a thread and with a client of its own."""

    def __init__(self, server, protocol, threads, model):
        self.server, self.protocol, self.threads, self.model = server, protocol, threads, model
        self.finished = []

    def infer(self, rounds, x=0.0, **options):
        with self.protocol.connect(self.server) as client:
            return client.infer(self.model, slow_inputs(self.protocol, rounds, x), **options).as_numpy("Y").item()

    def send(self, rounds, x=0.0, **options):
        """Gives a future; `finished` lists each x in the order of the answers."""

        def ask():
            answer = self.infer(rounds, x, **options)
            self.finished.append(x)
            return answer

        return self.threads.submit(ask)

    def send_and_wait_in_line(self, rounds, x=0.0, position=1, **options):
        """As `send`, but comes back when the request waits as one of so many."""
        future = self.send(rounds, x, **options)
        eventually(lambda: pending(self.server, self.model) == position, f"{position} waiting requests")
        return future

    def occupy(self, rounds):
        """One request runs for a second and another waits behind it."""
        return [self.send(rounds(1)), self.send_and_wait_in_line(1)]


@pytest.fixture
def crowd(server, protocol, threads):
    return lambda model: Crowd(server, protocol, threads, model)


def executions(statistics):
    return {entry["batch_size"]: entry["compute_infer"]["count"] for entry in statistics.get("batch_stats", [])}


def test_requests_that_wait_together_are_run_together(crowd, client, protocol, rounds):
    before = protocol.statistics(client, "slow")
    crowd = crowd("slow")
    first = crowd.send(rounds(1), 100)
    waiting = [crowd.send(1, x) for x in range(12)]
    assert first.result() == 100
    assert [future.result() for future in waiting] == list(range(12))

    after = protocol.statistics(client, "slow")
    assert after["inference_count"] - before["inference_count"] == 13
    # At least one wait in common: 13 requests in fewer executions than requests, some of them larger than one.
    assert after["execution_count"] - before["execution_count"] < 13
    grown = {size: count - executions(before).get(size, 0) for size, count in executions(after).items()}
    assert sum(size * count for size, count in grown.items()) == 13
    assert max(size for size, count in grown.items() if count) > 1


def test_a_request_that_finds_the_queue_full_is_refused_at_once(crowd, server, protocol, rounds):
    def rejected():
        return metric(
            server, "nv_inference_request_failure", model="slow_bounded", reason="REJECTED", version=1
        )

    before = rejected()
    crowd = crowd("slow_bounded")
    accepted = [*crowd.occupy(rounds), crowd.send_and_wait_in_line(1, position=2)]
    with pytest.raises(InferenceServerException) as refusal:
        crowd.infer(1, request_id="late")
    assert refusal.value.message() == "[request id: late] Exceeds maximum queue size"
    assert refusal.value.status() == protocol.status("UNAVAILABLE")
    assert not any(future.done() for future in accepted[1:])
    assert [future.result() for future in accepted] == [0.0] * 3
    assert rejected() == before + 1


def test_a_request_that_waits_longer_than_its_timeout_is_refused(crowd, server, client, protocol, rounds):
    before = protocol.statistics(client, "slow_impatient")["inference_stats"]["fail"].get("count", 0)
    crowd = crowd("slow_impatient")
    accepted = crowd.occupy(rounds)
    with pytest.raises(InferenceServerException) as refusal:
        crowd.infer(1, timeout=20_000, request_id="hasty")
    assert refusal.value.message() == "[request id: hasty] Request timeout expired"
    assert refusal.value.status() == protocol.status("UNAVAILABLE")
    assert not accepted[1].done()
    assert [future.result() for future in accepted] == [0.0, 0.0]
    assert protocol.statistics(client, "slow_impatient")["inference_stats"]["fail"]["count"] == before + 1


def test_the_more_important_of_two_waiting_requests_is_run_first(crowd, rounds):
    crowd = crowd("slow_ranked")
    running = crowd.send(rounds(1), 0)
    ordinary = crowd.send_and_wait_in_line(rounds(0.2), 2, priority=2)
    important = crowd.send_and_wait_in_line(rounds(0.2), 1, position=2, priority=1)
    for future in (running, ordinary, important):
        future.result()
    assert crowd.finished == [0, 1, 2]


def test_a_waiting_request_costs_its_own_time_in_the_queue(crowd, client, protocol, rounds):
    before = protocol.statistics(client, "slow_ranked")["inference_stats"]
    crowd = crowd("slow_ranked")
    started = time.monotonic_ns()
    running, waiting = crowd.send(rounds(0.3)), crowd.send_and_wait_in_line(rounds(0.3))
    running.result(), waiting.result()
    passed = time.monotonic_ns() - started
    after = protocol.statistics(client, "slow_ranked")["inference_stats"]
    in_queue = after["queue"]["ns"] - before["queue"].get("ns", 0)
    computing = after["compute_infer"]["ns"] - before["compute_infer"].get("ns", 0)
    assert 0 < in_queue < passed
    assert computing <= passed
    # Whoever waited, waited for most of what the other one computed.
    assert in_queue + computing > passed / 2
