"""What callers ask, and whether what they are told is right.

Each class is a kind of caller. `prepare(protocol, address)` connects; `ask()` asks once, and tells the judge what is wrong.
A caller that raises `Reconnect` has lost its connection, or must not use it any more.
"""

import contextlib
import http.client
import itertools
import queue
import random

import numpy as np
import shared_regions
from ensembles import parameters_of
from protocols import GRPC, HTTP
from serving import PATIENCE
from tritonclient.utils import InferenceServerException

from chaos.world import ENSEMBLES, SEQUENCES, STATELESS, STREAMED, with_members

correlation_ids = itertools.count(1)


# Otherwise clients of a process share a connection, and what one of them does to it happens to all.
OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]


class Reconnect(Exception):
    """The connection cannot be used any more."""


# What libraries of clients raise if a connection has ended.
LOST = (OSError, InferenceServerException, http.client.HTTPException)


def connect(protocol, server):
    if protocol is HTTP:
        return HTTP.connect(server, connection_timeout=PATIENCE, network_timeout=PATIENCE)
    return GRPC.connect(server, channel_args=OWN_CONNECTION)


def options_of(protocol):
    return {} if protocol is HTTP else {"client_timeout": PATIENCE}


class Caller:
    """What all callers have. `seed` decides what it asks."""

    def __init__(self, judge, files, protocol, seed):
        self.judge, self.files, self.protocol = judge, files, protocol
        self.random = random.Random(seed)
        self.client = None
        # How many requests it has sent, and how many of them were of sequences through ensembles.
        self.sent = self.sent_to_ensembles = 0

    def connect(self, server):
        self.client = connect(self.protocol, server)

    def close(self):
        with contextlib.suppress(Exception):
            self.client.close()

    def x(self):
        return self.random.randrange(1 << 20)

    def bounds(self, model):
        """The oldest generation that may answer from now on, for each output with one."""
        return {output: self.files.generations[member].lowest for output, member in model.generations.items()}

    def judge_generations(self, model, bounds, result, what):
        """Judges the generations of an answer. Returns them."""
        found = {output: result.as_numpy(output).flat[0] for output in model.generations}
        for output, generation in found.items():
            member = model.generations[output]
            highest = self.files.generations[member].highest
            if not bounds[output] <= generation <= highest:
                text = f"generation {generation} of {member}, where {bounds[output]} to {highest} may answer"
                self.judge.breaks(f"{what}: {text}")
        return found

    def expect(self, what, found, expected):
        found = np.asarray(found).tolist()
        expected = np.asarray(expected).tolist()
        if found != expected:
            self.judge.breaks(f"{what}: {found} instead of {expected}")

    def count(self, model):
        self.sent += 1
        self.sent_to_ensembles += model in SEQUENCES and model.name in ENSEMBLES

    def infer(self, model, x, **options):
        self.count(model)
        inputs = [self.protocol.input(model.x, x)]
        return self.client.infer(model.name, inputs, **options, **options_of(self.protocol))


class Stateless(Caller):
    """Requests without a sequence, of one to three rows. Equal ones are often asked at the same time."""

    def ask(self):
        model = self.random.choice(STATELESS)
        rows = self.random.choice((1, 1, 1, 2, 3))
        few = "cached" in model.name or "nested" in model.name
        x = np.array([[self.random.randrange(16) if few else self.x()] for _ in range(rows)], np.int64)
        what = f"{model.name} over {self.protocol.name}"
        bounds, since = self.bounds(model), self.judge.now()
        try:
            result = self.infer(model, x)
        except LOST as error:
            self.judge.failed(with_members(model.name), since, what, error)
            raise Reconnect from error
        self.expect(f"{what} for {x.tolist()}", result.as_numpy(model.y), x + model.adds)
        self.judge_generations(model, bounds, result, what)


class Sequence(Caller):
    """Sequences, one request after the other. A sequence has one generation of its model from its beginning to its end."""

    def ask(self):
        model = self.random.choice(SEQUENCES)
        number, length = next(correlation_ids), self.random.choice((1, 2, 3, 5, 8, 13))
        who = number if number % 2 else f"sequence {number}"
        what = f"sequence {number} of {model.name} over {self.protocol.name}"
        bounds, since = self.bounds(model), self.judge.now()
        total, generations = 0, None
        for place in range(length):
            x = self.x()
            total += x + model.adds
            named = {"sequence_id": who, "sequence_start": place == 0, "sequence_end": place == length - 1}
            try:
                result = self.infer(model, np.array([[x]], np.int64), **named)
            except LOST as error:
                self.judge.failed(with_members(model.name), since, f"{what}, request {place + 1} of {length}", error)
                self.leave(model, who)
                raise Reconnect from error
            self.expect(f"{what}, request {place + 1} of {length}", result.as_numpy("Y"), [[total]])
            found = self.judge_generations(model, bounds, result, what)
            if generations not in (None, found):
                self.judge.breaks(f"{what}: generation {found} after {generations}")
            generations = found

    def leave(self, model, who):
        """Ends a sequence that has failed, so that it does not keep its slot. Whether that succeeds does not matter."""
        with contextlib.suppress(*LOST):
            self.infer(model, np.zeros((1, 1), np.int64), sequence_id=who, sequence_end=True)


class Streams(Caller):
    """Rounds on a stream: sequences between each other, decoupled requests and others, all sent without waiting."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.answers = queue.Queue()
        self.numbers = itertools.count(1)

    def connect(self, server):
        self.client = connect(GRPC, server)
        self.answers = queue.Queue()
        answers = self.answers
        self.client.start_stream(lambda result, error: answers.put((result, error)))

    def close(self):
        with contextlib.suppress(Exception):
            self.client.stop_stream(cancel_requests=True)
        super().close()

    def ask(self):
        # By id.
        asked = {}
        since = self.judge.now()
        for model in self.random.sample(SEQUENCES, 2):
            self.add_sequence(asked, model)
        for model in self.random.choices(STREAMED, k=3):
            self.add_decoupled(asked, model)
        for model in self.random.choices(STATELESS, k=3):
            x = self.x()
            asked[self.id()] = Asked(model, self.bounds(model), x, {}, [x + model.adds])
        self.exchange(asked, since)

    def exchange(self, asked, since):
        """Sends all requests without waiting, those of a sequence in their order, and judges the responses."""
        for one in between_each_other(asked, self.random):
            self.count(asked[one].model)
            try:
                asked[one].send(self.client, one)
            except LOST:
                # The stream has ended. The answer that says so is among those that are read now.
                break
        self.receive(asked, since)

    def id(self):
        return f"{id(self)} {next(self.numbers)}"

    def add_sequence(self, asked, model):
        number, length = next(correlation_ids), self.random.choice((2, 4, 8))
        bounds, total = self.bounds(model), 0
        for place in range(length):
            x = self.x()
            total += x + model.adds
            named = {"sequence_id": number, "sequence_start": place == 0, "sequence_end": place == length - 1}
            asked[self.id()] = Asked(model, bounds, x, named, [total])

    def add_decoupled(self, asked, model):
        x, count = self.x(), self.random.choice((0, 1, 3, 7))
        expected = [x + place + model.adds for place in range(count)]
        asked[self.id()] = Asked(model, self.bounds(model), x, {}, expected, count)

    def receive(self, asked, since):
        open_ = set(asked)
        names = {name for one in asked.values() for name in with_members(one.model.name)}
        while open_:
            try:
                result, error = self.answers.get(timeout=PATIENCE)
            except queue.Empty:
                result, error = None, "timed out: a stream has no answer"
            if error is not None:
                self.judge.failed(names, since, f"a stream with {sorted({one.model.name for one in asked.values()})}", error)
                raise Reconnect
            one = result.get_response().id
            if one not in open_:
                self.judge.breaks(f"a stream got another response for the request '{one}', which has ended")
                continue
            if asked[one].take(self, result):
                open_.remove(one)


def between_each_other(asked, chance):
    """The ids of requests in a random order that keeps the order of each sequence."""
    lines = {}
    for one, request in asked.items():
        lines.setdefault(request.sequence or one, []).append(one)
    lines = [line[::-1] for line in lines.values()]
    while lines:
        line = chance.choice(lines)
        yield line.pop()
        if not line:
            lines.remove(line)


class SequenceStreams(Streams):
    """Rounds on a stream that are only sequences through ensembles."""

    AT_ONCE = 8

    def ask(self):
        asked = {}
        since = self.judge.now()
        for model in self.random.choices([model for model in SEQUENCES if model.name in ENSEMBLES], k=self.AT_ONCE):
            self.add_sequence(asked, model)
        self.exchange(asked, since)


class Asked:
    """A request on a stream, and what it still expects."""

    def __init__(self, model, bounds, x, sequence, expected, count=None):
        self.model, self.bounds, self.expected, self.count = model, bounds, list(expected), count
        self.x, self.named = x, sequence
        self.sequence = sequence.get("sequence_id")
        self.received = 0

    def send(self, client, one):
        inputs = [GRPC.input(self.model.x, np.array([[self.x]], np.int64))]
        if self.count is not None:
            inputs.append(GRPC.input("COUNT", np.array([[self.count]], np.int64)))
        client.async_stream_infer(self.model.name, inputs, request_id=one, enable_empty_final_response=True, **self.named)

    def take(self, caller, result):
        """Judges a response. Returns whether it is the last one."""
        what = f"{self.model.name} on a stream"
        if self.sequence:
            what = f"sequence {self.sequence} of {what}"
        found = result.as_numpy(self.model.y)
        if found is not None:
            if self.received >= len(self.expected):
                caller.judge.breaks(f"{what}: {self.received + 1} responses instead of {len(self.expected)}")
            else:
                caller.expect(f"{what}, response {self.received + 1}", found, [[self.expected[self.received]]])
            caller.judge_generations(self.model, self.bounds, result, what)
            self.received += 1
        is_last = bool(parameters_of(result).get("triton_final_response"))
        if is_last and self.received < len(self.expected):
            caller.judge.breaks(f"{what}: {self.received} responses instead of {len(self.expected)}")
        return is_last


class Regions(Caller):
    """Requests whose tensors are in shared memory. A region is registered anew as soon as its answer has come.

    A plug-in in C decides itself when it releases a request, which may be later.
    """

    BYTES = 4096

    def ask(self):
        model = self.random.choice([model for model in STATELESS if not model.name.startswith("plug")])
        x = np.array([[self.x()], [self.x()]], np.int64)
        what = f"{model.name} in shared memory over {self.protocol.name}"
        bounds, since = self.bounds(model), self.judge.now()
        with shared_regions.Region(self.BYTES, f"region of {id(self)}") as region:
            try:
                region.register(self.client)
                for _ in range(3):
                    inputs = [region.input(self.protocol, model.x, x)]
                    outputs = [region.output(self.protocol, model.y, byte_size=x.nbytes, offset=2048)]
                    outputs += [self.protocol.output(name) for name in model.generations]
                    self.count(model)
                    result = self.client.infer(model.name, inputs, outputs=outputs, **options_of(self.protocol))
                    self.expect(what, region.read(np.int64, [2, 1], 2048), x + model.adds)
                    self.judge_generations(model, bounds, result, what)
                    self.client.unregister_system_shared_memory(region.name)
                    region.register(self.client)
            except LOST as error:
                self.judge.failed(with_members(model.name), since, what, error)
                raise Reconnect from error


def whole_sequence(model):
    """The options of a request that is a sequence of its own, if the model has sequences."""
    if model not in SEQUENCES:
        return {}
    return {"sequence_id": next(correlation_ids), "sequence_start": True, "sequence_end": True}


class Canceled(Stateless):
    """Requests that their client gives up at once, in turn with others: who only gives up loses the connection.

    Nothing is expected of the former, but that the others do not notice.
    """

    def ask(self):
        since = self.judge.now()
        model = self.random.choice(STATELESS + SEQUENCES)
        inputs = [GRPC.input(model.x, np.array([[self.x()]], np.int64))]
        done = queue.Queue()
        self.count(model)
        call = self.client.async_infer(
            model.name, inputs, lambda result, error: done.put(error), **whole_sequence(model)
        )
        call.cancel()
        try:
            error = done.get(timeout=PATIENCE)
        except queue.Empty:
            self.judge.breaks(f"{model.name}: a canceled call does not end")
            raise Reconnect from None
        if error is not None and "ancel" not in str(error):
            self.judge.failed(with_members(model.name), since, f"a canceled request of {model.name}", error)
            raise Reconnect
        super().ask()


# The callers of a campaign: as many of each kind and protocol.
LOADS = {
    "all": (
        [(Stateless, protocol) for protocol in (HTTP, GRPC) * 2]
        + [(Sequence, protocol) for protocol in (HTTP, GRPC, GRPC)]
        + [(Streams, GRPC)] * 2
        + [(Regions, protocol) for protocol in (HTTP, GRPC)]
        + [(Canceled, GRPC)]
    ),
    "sequences": [(Sequence, protocol) for protocol in (HTTP, GRPC)] + [(SequenceStreams, GRPC)] * 4,
}
