"""Who follows the advice of `explain` gets a better figure: each model is asked twice, as it was and as the advice says.

The figures are numbers of requests and batches, and what runs is decided by gates: a busy machine changes nothing.
"""

import queue

import numpy as np
import pytest
import requests
from held import held_inputs
from protocols import GRPC
from serving import PATIENCE, eventually

# Fewer batches and requests say too little for an advice.
ROUNDS = 10
# No test waits so long.
LONG_MICROSECONDS = 60_000_000


class Asked:
    """A server with the model `held`, and a client that does not wait for its answers."""

    def __init__(self, server, client, gate):
        self.server, self.client, self.gate, self.answers = server, client, gate, queue.Queue()

    def explained(self, model="held"):
        answer = requests.get(f"http://{self.server.http}/v2/models/{model}/explain", timeout=PATIENCE)
        [model] = answer.json()["models"]
        return model

    def advice(self, about, model="held"):
        findings = self.explained(model)["findings"]
        return next((finding.get("advice", "") for finding in findings if finding["about"] == about), "")

    def fact(self, about):
        return next(finding["fact"] for finding in self.explained()["findings"] if finding["about"] == about)

    def executed(self):
        return self.explained()["batches"]["executed"]

    def waiting(self):
        return self.explained()["queue"]["requests"]

    def send(self, hold=None, size=1, model="held", rows=True, **options):
        number = hold.number if hold else 0
        inputs = [
            GRPC.input("INPUT0", np.zeros((1, size) if rows else size, np.float32)),
            GRPC.input("HOLD", np.array([[number]] if rows else [number], np.int64)),
        ]
        self.client.async_infer(model, inputs, lambda result, error: self.answers.put(error), **options)

    def occupy(self, **options):
        """Keeps an instance busy with a request. Returns the hold."""
        hold = self.gate.hold()
        self.send(hold, **options)
        hold.wait_until_running()
        return hold

    def send_one_after_another(self, *each):
        """Sends a request with each of these options when all before it wait or have been answered."""
        for number, options in enumerate(each, 1):
            self.send(**options)
            eventually(lambda sent=number: self.answers.qsize() + self.waiting() == sent, f"{number} requests")

    def wait_for(self, count):
        eventually(lambda: self.waiting() == count, f"{count} waiting requests")

    def wait_for_answers(self, count):
        eventually(lambda: self.answers.qsize() == count, f"{count} answers")

    def receive(self, count):
        """The errors among so many answers."""
        return [error for error in (self.answers.get(timeout=PATIENCE) for _ in range(count)) if error]

    def rounds(self, sizes, rounds=ROUNDS):
        """In each round the only instance is busy while one request of each size comes."""
        for _ in range(rounds):
            hold = self.occupy()
            for size in sizes:
                self.send(size=size)
            self.wait_for(len(sizes))
            hold.release()
            assert self.receive(len(sizes) + 1) == []

    def one_by_one(self, options, count=1):
        for _ in range(count):
            self.send(**options)
            assert self.receive(1) == []


@pytest.fixture
def serve(start, backend_option, gate, tmp_path):
    """Serves the model `held` with this configuration, and what else is said."""
    count = 0

    def serve(config, *options, more_models=lambda folder: None, **named):
        nonlocal count
        count += 1
        folder = tmp_path / f"models{count}"
        folder.mkdir()
        gate.write(folder, "held", config, **named)
        more_models(folder)
        server = start(folder, backend_option, *options).wait_until_ready()
        return Asked(server, GRPC.connect(server), gate)

    return serve


def dynamic(rows=8, **settings):
    return f"max_batch_size: {rows}\ndynamic_batching {{ {fields(settings)} }}\n"


def sequences(strategy, rows=1, idle=LONG_MICROSECONDS, **settings):
    """A configuration of a model for sequences; without `rows` it has no batches."""
    how = f"{strategy} {{ {fields(settings)} }} max_sequence_idle_microseconds: {idle}"
    return f"max_batch_size: {rows}\nsequence_batching {{ {how} }}\n"


def fields(settings):
    return " ".join(f"{name}: {value}" for name, value in settings.items())


EIGHT, MIXED = [1] * 8, [1, 2] * 4
# The model as it was, what is advised about what, and the model as the advice says.
BUSY = {
    "a dynamic batcher": (
        "max_batch_size: 8\n",
        {"batches": "Add 'dynamic_batching { }'", "time": "let requests share batches"},
        dynamic(),
    ),
    "a larger maximum": (dynamic(rows=1), {"batches": "Raise max_batch_size"}, dynamic()),
    "no preferred size": (
        dynamic(preferred_batch_size=[2]),
        {"batches": "Remove preferred_batch_size"},
        dynamic(),
    ),
}


@pytest.mark.parametrize("what", BUSY)
def test_a_busy_instance_gets_larger_batches(serve, what):
    config, advices, advised = BUSY[what]
    asked = serve(config)
    asked.rounds(EIGHT)
    for about, advice in advices.items():
        assert advice in asked.advice(about)
    before = asked.executed()
    asked = serve(advised)
    asked.rounds(EIGHT)
    assert asked.executed() < before


@pytest.mark.parametrize(
    "delay, words", [(0, "max_queue_delay_microseconds makes larger"), (1, "Raise max_queue_delay_microseconds")]
)
def test_a_delay_lets_requests_share_batches_that_come_one_after_another(serve, delay, words):
    executed = []
    for microseconds in (delay, LONG_MICROSECONDS):
        asked = serve(dynamic(rows=4, max_queue_delay_microseconds=microseconds))
        for _ in range(ROUNDS):
            asked.send_one_after_another({}, {}, {}, {})
            assert asked.receive(4) == []
        executed.append(asked.executed())
        assert (words in asked.advice("batches")) == (microseconds == delay)
    # A busy machine may let a few share a batch before.
    assert executed[0] > executed[1] == ROUNDS


def test_fewer_instances_make_larger_batches(serve):
    executed = []
    for count in (2, 1):
        asked = serve(dynamic(), group=f"count: {count}")
        for _ in range(ROUNDS):
            hold = asked.occupy()
            asked.send_one_after_another({}, {}, {})
            hold.release()
            assert asked.receive(4) == []
        executed.append(asked.executed())
        assert ("fewer instances make larger batches" in asked.advice("batches")) == (count == 2)
    # A busy machine may let a few more share a batch before.
    assert executed[0] > executed[1] == 2 * ROUNDS


@pytest.mark.parametrize(
    "sizes, more", [([2] * len(MIXED), ""), (MIXED, "allow_ragged_batch: true")], ids=["padded", "ragged"]
)
def test_padded_requests_and_ragged_ones_share_batches(serve, sizes, more):
    asked = serve(dynamic(), dims=[-1])
    asked.rounds(MIXED)
    assert "Let clients pad their tensors, or set allow_ragged_batch" in asked.advice("batches")
    before = asked.executed()
    asked = serve(dynamic(), dims=[-1], more=more)
    asked.rounds(sizes)
    assert asked.executed() < before


def test_requests_do_not_wait_for_others_that_do_not_come(serve):
    ends = []
    for delay in (50_000, 0):
        asked = serve(dynamic(max_queue_delay_microseconds=delay))
        asked.one_by_one({}, count=20)
        ends.append(asked.explained()["batches"]["ends"])
        assert ("Lower max_queue_delay_microseconds" in asked.advice("time")) == (delay > 0)
        assert ("set it to 0" in asked.advice("batches")) == (delay > 0)
    assert ends == [{"delay": 20}, {"idle_instance": 20}]


def test_a_sequence_does_not_wait_for_others_that_do_not_come(serve):
    ends = []
    for delay in (50_000, 0):
        asked = serve(sequences("oldest", rows=4, max_candidate_sequences=4, max_queue_delay_microseconds=delay))
        asked.one_by_one({"sequence_id": 1, "sequence_start": True})
        asked.one_by_one({"sequence_id": 1}, count=19)
        ends.append(asked.explained()["batches"]["ends"])
        assert ("Set max_queue_delay_microseconds to 0" in asked.advice("batches")) == (delay > 0)
    assert ends == [{"delay": 20}, {"idle_instance": 20}]


@pytest.mark.parametrize(
    "before, words",
    [
        ({}, "minimum_slot_utilization with max_queue_delay_microseconds makes larger"),
        (
            {"minimum_slot_utilization": 0.25, "max_queue_delay_microseconds": LONG_MICROSECONDS},
            "Raise minimum_slot_utilization",
        ),
    ],
    ids=["at once", "at a quarter"],
)
def test_a_batch_waits_for_more_slots_of_sequences(serve, before, words):
    advised = {"minimum_slot_utilization": 0.5, "max_queue_delay_microseconds": LONG_MICROSECONDS}
    executed = []
    for settings in (before, advised):
        asked = serve(sequences("direct", rows=8, **settings))
        for number in range(ROUNDS):
            start = {"sequence_start": True} if number == 0 else {}
            asked.send_one_after_another(*({"sequence_id": one, **start} for one in range(1, 5)))
            assert asked.receive(4) == []
        executed.append(asked.executed())
        assert (words in asked.advice("batches")) == (settings is before)
    assert executed[0] >= 2 * ROUNDS and executed[1] == ROUNDS


def test_another_instance_serves_while_one_is_busy(serve):
    asked = serve(dynamic(rows=1))
    asked.rounds([1] * 24, rounds=1)
    assert "Add instances (instance_group count)" in asked.advice("time")
    asked = serve(dynamic(rows=1), group="count: 2")
    hold = asked.occupy()
    for _ in range(24):
        asked.send()
    assert asked.receive(24) == []
    hold.release()
    assert asked.receive(1) == []


def limited(length):
    return dynamic(rows=1, default_queue_policy=f"{{ max_queue_size: {length} }}")


def test_a_long_queue_is_shorter_with_more_instances_or_a_limit(serve):
    words = "Add instances or servers, or set max_queue_size"
    for config, count, waiting, answered in (
        (dynamic(rows=1), 1, 400, 0),
        (dynamic(rows=1), 2, 0, 400),
        (limited(100), 1, 100, 300),
    ):
        asked = serve(config, group=f"count: {count}")
        # What the work needs follows from what earlier work has needed: here as long as these answers take.
        hold = asked.occupy()
        for _ in range(20):
            asked.explained()
        hold.release()
        assert asked.receive(1) == []
        hold = asked.occupy()
        for _ in range(400):
            asked.send()
        asked.wait_for_answers(answered)
        asked.wait_for(waiting)
        needed_seconds = asked.explained()["queue"]["work_seconds"] or 0
        assert (words in asked.advice("queue")) == (needed_seconds >= 1)
        assert needed_seconds >= 1 or waiting < 400
        hold.release()
        asked.receive(401)


def test_a_longer_queue_refuses_less(serve):
    refused = []
    for length in (1, 100):
        asked = serve(limited(length))
        hold = asked.occupy()
        for _ in range(24):
            asked.send()
        asked.wait_for(min(length, 24))
        asked.wait_for_answers(max(0, 24 - length))
        hold.release()
        refused.append(len(asked.receive(25)))
        assert ("allow a longer queue (max_queue_size" in asked.advice("requests")) == (length == 1)
    assert refused == [23, 0]


def test_sequences_wait_for_a_slot_as_long_as_their_clients_allow(serve):
    refused = []
    # No slot is free until the last request. Another instance has one.
    for timeout, count in ((1, 1), (LONG_MICROSECONDS, 1), (1, 2)):
        asked = serve(sequences("oldest", max_candidate_sequences=1), group=f"count: {count}")
        asked.one_by_one({"sequence_id": 1, "sequence_start": True})
        asked.send(sequence_id=2, sequence_start=True, timeout=timeout)
        if (timeout, count) == (LONG_MICROSECONDS, 1):
            asked.wait_for(1)
        else:
            asked.wait_for_answers(1)
        asked.send(sequence_id=1, sequence_end=True)
        refused.append(len(asked.receive(2)))
        assert ("Add instances, or let clients allow more" in asked.advice("requests")) == bool(refused[-1])
    assert refused == [1, 0, 0]


def test_more_of_a_resource_lets_instances_run(serve, gate):
    group = 'count: 1 rate_limiter { resources [{ name: "R" count: 1 }] }'
    config = "max_batch_size: 1\n"

    def other(folder):
        gate.write(folder, "other", config, group=group)

    for count in (1, 2):
        limits = ("--rate-limit=execution_count", f"--rate-limit-resource=R:{count}")
        asked = serve(config, *limits, more_models=other, group=group)
        first, second = asked.occupy(), gate.hold()
        asked.send(second, model="other")
        if count == 1:
            waits = "awaits_resources"
            eventually(lambda: asked.explained("other")["instances"]["each"][0]["state"] == waits, waits)
            assert "Raise --rate-limit-resource" in asked.advice("instances", "other")
            first.release()
        second.wait_until_running()
        first.release()
        second.release()
        assert asked.receive(2) == []


SLOTS = {
    "candidates": ("Raise max_candidate_sequences", sequences("oldest", max_candidate_sequences=2), 1),
    "instances of oldest": ("or add instances", sequences("oldest", max_candidate_sequences=1), 2),
    "rows": ("Raise max_batch_size", sequences("direct", rows=2), 1),
    "instances of direct": ("or add instances", sequences("direct"), 2),
    "instances without batches": ("All slots are in use. Add instances.", sequences("direct", rows=0), 2),
}


@pytest.mark.parametrize("what", SLOTS)
def test_more_slots_let_more_sequences_run(serve, what):
    words, advised, count = SLOTS[what]
    before = advised.replace("max_batch_size: 2", "max_batch_size: 1").replace("sequences: 2", "sequences: 1")
    rows = "max_batch_size: 0" not in advised
    backlogs = []
    for config, instances in ((before, 1), (advised, count)):
        asked = serve(config, group=f"count: {instances}")
        hold = asked.occupy(sequence_id=1, sequence_start=True, rows=rows)
        asked.send(sequence_id=2, sequence_start=True, rows=rows)
        # A sequence with a slot in the batch that runs waits for its next one. With a slot of another instance it runs.
        eventually(lambda one=asked: one.waiting() == 1 or one.answers.qsize() == 1, "the second sequence")
        backlogs.append(asked.explained()["sequences"]["backlog"])
        assert (words in asked.advice("sequences")) == (backlogs[-1] == 1)
        hold.release()
        asked.send(sequence_id=1, sequence_end=True, rows=rows)
        assert asked.receive(3) == []
    assert backlogs == [1, 0]


def test_sequences_that_end_or_are_idle_leave_their_slots(serve):
    words = "Let clients end their sequences, or lower max_sequence_idle_microseconds"
    asked = serve(sequences("oldest", max_candidate_sequences=1))
    asked.one_by_one({"sequence_id": 1, "sequence_start": True})
    asked.send(sequence_id=2, sequence_start=True)
    asked.wait_for(1)
    assert words in asked.advice("sequences")
    asked.send(sequence_id=1, sequence_end=True)
    assert asked.receive(2) == []
    asked = serve(sequences("oldest", max_candidate_sequences=1, idle=1000))
    for number in (1, 2):
        asked.one_by_one({"sequence_id": number, "sequence_start": True})
    assert asked.advice("sequences") == ""


def test_a_sequence_that_sends_less_ahead_does_not_wait_for_itself(serve):
    own = "earlier ones of their own sequence, which runs in its order. Instances and batches do not change that"
    for ahead in (24, 0):
        asked = serve(sequences("direct"), group="count: 2")
        hold = asked.occupy(sequence_id=1, sequence_start=True)
        for _ in range(ahead):
            asked.send(sequence_id=1)
        asked.wait_for(ahead)
        if ahead:
            fact = asked.fact("queue")
            assert f"Of these, {ahead} wait for an earlier one of the same sequence." in fact
            assert asked.advice("queue") == ""
        hold.release()
        assert asked.receive(ahead + 1) == []
        asked.one_by_one({"sequence_id": 1}, count=24 - ahead)
        assert (own in asked.advice("time")) == (ahead > 0)
        if ahead:
            assert asked.explained()["sequences"]["waited_for_own_seconds"] > 0


def test_a_larger_cache_answers_more(serve):
    config = "max_batch_size: 1\nresponse_cache { enable: true }\n"
    hits = []
    for size in (4096, 1 << 20):
        asked = serve(config, f"--cache-config=local,size={size}")
        for _ in range(2):
            for number in range(100):
                asked.client.infer("held", held_inputs(GRPC, x=number))
        hits.append(asked.explained()["cache"]["hits"])
        assert asked.advice("cache").startswith("Requests hardly ever repeat") == (size == 4096)
    assert hits[0] < hits[1] == 100
