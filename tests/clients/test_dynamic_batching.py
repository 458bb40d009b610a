"""Requests that meet at a slow model: batches, full queues, requests that wait too long, and priorities.

Nothing here depends on who is quick: while one long request runs, the next ones are sent, and the number of those that
wait, which the server publishes, tells when each has arrived.
"""

import time

import pytest
from protocols import metric, pending, settle, slow_inputs
from serving import eventually
from tritonclient.utils import InferenceServerException


class Crowd:
    """Sends requests at once, each from a thread and with a client of its own."""

    def __init__(self, server, protocol, threads, model):
        self.server, self.protocol, self.threads, self.model = server, protocol, threads, model
        self.finished = []
        settle(server, model)

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

    def wait_for(self, count):
        """Comes back when so many requests wait."""
        eventually(lambda: pending(self.server, self.model) == count, f"{count} waiting requests")

    def occupy(self, rounds):
        """One request runs, a second waits behind it; which is which does not matter, as they are the same."""
        futures = [self.send(rounds), self.send(rounds)]
        self.wait_for(1)
        return futures


@pytest.fixture
def crowd(server, protocol, threads):
    return lambda model: Crowd(server, protocol, threads, model)


def executions(statistics):
    return {entry["batch_size"]: entry["compute_infer"]["count"] for entry in statistics.get("batch_stats", [])}


def test_requests_that_wait_together_are_run_together(crowd, client, protocol, rounds):
    crowd = crowd("slow")
    before = protocol.statistics(client, "slow")
    pair = crowd.occupy(rounds(1))
    others = [crowd.send(1, x) for x in range(1, 13)]
    crowd.wait_for(13)
    assert [future.result() for future in pair] == [0, 0]
    assert [future.result() for future in others] == list(range(1, 13))

    after = protocol.statistics(client, "slow")
    assert after["inference_count"] - before["inference_count"] == 14
    assert after["execution_count"] - before["execution_count"] == 3
    # The first alone, then as many as the model takes, then the rest.
    grown = {size: count - executions(before).get(size, 0) for size, count in executions(after).items()}
    assert {size: count for size, count in grown.items() if count} == {1: 1, 8: 1, 5: 1}


def test_a_request_that_finds_the_queue_full_is_refused_at_once(crowd, server, protocol, rounds):
    def rejected():
        return metric(server, "nv_inference_request_failure", model="slow_bounded", reason="REJECTED", version=1)

    crowd = crowd("slow_bounded")
    before = rejected()
    accepted = [*crowd.occupy(rounds(0.7)), crowd.send(1)]
    crowd.wait_for(2)
    with pytest.raises(InferenceServerException) as refusal:
        crowd.infer(1, request_id="late")
    assert refusal.value.message() == "[request id: late] Exceeds maximum queue size"
    assert refusal.value.status() == protocol.status("UNAVAILABLE")
    assert not accepted[2].done()
    assert [future.result() for future in accepted] == [0.0] * 3
    assert rejected() == before + 1


def test_a_request_that_waits_longer_than_its_timeout_is_refused(crowd, server, client, protocol, rounds):
    crowd = crowd("slow_impatient")
    before = protocol.statistics(client, "slow_impatient")["inference_stats"]["fail"].get("count", 0)
    accepted = crowd.occupy(rounds(0.5))
    with pytest.raises(InferenceServerException) as refusal:
        crowd.infer(1, timeout=20_000, request_id="hasty")
    assert refusal.value.message() == "Request timeout expired"
    assert refusal.value.status() == protocol.status("UNAVAILABLE")
    assert not all(future.done() for future in accepted)
    assert [future.result() for future in accepted] == [0.0, 0.0]
    assert protocol.statistics(client, "slow_impatient")["inference_stats"]["fail"]["count"] == before + 1


def test_the_more_important_of_the_waiting_requests_is_run_first(crowd, rounds):
    crowd = crowd("slow_ranked")
    futures = crowd.occupy(rounds(0.7))
    for count, x, priority in ((2, 2, 2), (3, 1, 1)):
        futures.append(crowd.send(rounds(0.2), x, priority=priority))
        crowd.wait_for(count)
    for future in futures:
        future.result()
    assert crowd.finished == [0, 1, 0, 2]


def test_a_waiting_request_costs_its_own_time_in_the_queue(crowd, client, protocol, rounds):
    crowd = crowd("slow_ranked")
    before = protocol.statistics(client, "slow_ranked")["inference_stats"]
    started = time.monotonic_ns()
    for future in crowd.occupy(rounds(0.5)):
        future.result()
    passed = time.monotonic_ns() - started
    after = protocol.statistics(client, "slow_ranked")["inference_stats"]
    in_queue = after["queue"]["ns"] - before["queue"].get("ns", 0)
    computing = after["compute_infer"]["ns"] - before["compute_infer"].get("ns", 0)
    assert 0 < in_queue < passed
    assert computing <= passed
    # Whoever waited, waited for most of what the other one computed.
    assert in_queue + computing > passed / 2
