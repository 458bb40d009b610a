"""Cases of the area `scheduling`: which requests are executed together, in which order, and which are refused.

A case holds the only instance of a model by a request that waits for a file. Then requests come one by one: each waits in the
queue, or has been refused, before the next one is sent. At last the file is made. So what follows is the same each time.
"""

import json
import pathlib
from dataclasses import dataclass

import grpc
import serving
from differential import models
from differential.answers import HANGS, Answer
from differential.connected_area import ConnectedArea
from differential.exchange import PATIENCE
from protocols import pending
from tritonclient.grpc import service_pb2 as pb

MOST_REQUESTS = 7
MOST_SEQUENCES = 3
METHOD = "/inference.GRPCInferenceService/ModelInfer"
# Another case has other sequences.
IDS_OF_CASE = 10


def gated(name, *lines):
    inputs = (models.TensorSpec("X", "INT32", (-1,)), models.TensorSpec("GATE", "BYTES", (1,), models.OPTIONAL))
    more = "instance_group { kind: KIND_CPU count: 1 }\n" + "\n".join(lines)
    return models.ModelSpec(name, "gated", 4, inputs, (models.TensorSpec("TOLD", "BYTES", (1,)),), more)


def dynamic(name, text):
    return gated(name, f"dynamic_batching {{ {text} }}")


CONTROLS = "".join(
    f'control_input {{ name: "{kind}" control {{ kind: CONTROL_SEQUENCE_{kind} int32_false_true: [0, 1] }} }}\n'
    for kind in ("START", "END", "READY")
)


def sequenced(name, strategy):
    return gated(name, f"sequence_batching {{ {strategy} max_sequence_idle_microseconds: 1000000000\n{CONTROLS} }}")


TIMEOUTS = "default_timeout_microseconds: 1000000000 allow_timeout_override: true"
POLICY = "default_queue_policy {{ {} }}".format
LEVELS = "priority_queue_policy {{ key: 2 value: {{ max_queue_size: {} }} }}".format
SERVED = (
    dynamic("plain", ""),
    gated("unbatched"),
    dynamic("preferred", "preferred_batch_size: [2, 3]"),
    dynamic("ordered", "preserve_ordering: true"),
    dynamic("ranked", "priority_levels: 3 default_priority_level: 2"),
    dynamic("bounded", POLICY("max_queue_size: 3")),
    dynamic("impatient", POLICY(f"timeout_action: REJECT {TIMEOUTS}")),
    dynamic("delayed", POLICY(f"timeout_action: DELAY {TIMEOUTS}")),
    dynamic("bounded_ranked", f"priority_levels: 2 default_priority_level: 1 {LEVELS(2)}"),
    dynamic("ragged_apart", "preferred_batch_size: 4"),
    sequenced("direct", "direct { }"),
    sequenced("oldest", "oldest { max_candidate_sequences: 4 }"),
)
SEQUENCES = ("direct", "oldest")


@dataclass(frozen=True)
class QueuedRequest:
    """A request behind the gate. `sequence` is a number, or 0."""

    rows: int = 1
    length: int = 1
    priority: int = 0
    timeout_us: int = 0
    sequence: int = 0
    start: bool = False
    end: bool = False

    def __str__(self):
        parts = {name: value for name, value in vars(self).items() if value}
        return ", ".join(f"{name} {value}" for name, value in parts.items())


@dataclass(frozen=True)
class SchedulingCase:
    model: str
    requests: tuple

    def __str__(self):
        return f"model {self.model}, behind a gate:\n" + "\n".join(f"  {request}" for request in self.requests)


def draw(choices):
    """A case."""
    model = choices.one_of(SERVED).name
    requests = []
    started = {1}
    for _ in choices.several(1, MOST_REQUESTS):
        given = {"rows": choices.one_of((1, 1, 1, 2, 3, 4, 5))}
        if model == "ragged_apart" or choices.one_in(8):
            given["length"] = choices.between(1, 2)
        if choices.one_in(2) and "ranked" in model:
            given["priority"] = choices.one_of((1, 2, 3, 0, 4))
        if choices.one_in(2) and model in ("impatient", "delayed"):
            given["timeout_us"] = 1
        if model in SEQUENCES:
            given = {"sequence": choices.between(1, MOST_SEQUENCES)}
            # Mostly right: a sequence starts once.
            given["start"] = (given["sequence"] not in started) != choices.one_in(10)
            given["end"] = choices.one_in(5)
            started.add(given["sequence"])
        requests.append(QueuedRequest(**given))
    return SchedulingCase(model, tuple(requests))


def message_of(model, request, first_id, gate=""):
    message = pb.ModelInferRequest(model_name=model)
    message.inputs.add(name="X", datatype="INT32", shape=[request.rows, request.length])
    message.inputs[0].contents.int_contents.extend([0] * (request.rows * request.length))
    if gate:
        message.inputs.add(name="GATE", datatype="BYTES", shape=[request.rows, 1])
        message.inputs[1].contents.bytes_contents.extend([gate.encode()] * request.rows)
    if request.priority:
        message.parameters["priority"].int64_param = request.priority
    if request.timeout_us:
        message.parameters["timeout"].int64_param = request.timeout_us
    if request.sequence:
        message.parameters["sequence_id"].int64_param = first_id + request.sequence
        message.parameters["sequence_start"].bool_param = request.start
        message.parameters["sequence_end"].bool_param = request.end
    return message


class ServerChannel:
    """A server, and the channel to it."""

    def __init__(self, server):
        self.server, self.channel = server, grpc.insecure_channel(server.grpc)

    def close(self):
        self.channel.close()


class SchedulingArea(ConnectedArea):
    """Both servers with models that tell how they were executed."""

    name = "scheduling"
    served = SERVED
    most_tries = 60
    # How Triton divides what waits into batches may depend on when its threads run.
    must_come_again = 2
    draw = staticmethod(draw)
    connect = ServerChannel

    def __init__(self):
        self._number = 0

    def ask(self, case):
        """What became of each request, in both servers."""
        self._number += 1
        return super().ask(case)

    def answers(self, connection, case):
        server, number = connection.server, self._number
        call = connection.channel.unary_unary(METHOD, pb.ModelInferRequest.SerializeToString, pb.ModelInferResponse.FromString)
        first_id = number * IDS_OF_CASE
        gate = pathlib.Path(self._pair.folder) / f"gate-{server.name}-{number}"
        begun = gate.with_name(f"{gate.name}.begun")
        # The gate's request is the first step of sequence 1, where there are sequences.
        holder = QueuedRequest(sequence=1, start=True) if case.model in SEQUENCES else QueuedRequest()
        sent = [call.future(message_of(case.model, holder, first_id, str(gate)), PATIENCE)]
        try:
            serving.eventually(lambda: begun.exists() or sent[0].done(), "the gate's request to be executed")
            for request in case.requests:
                sent.append(call.future(message_of(case.model, request, first_id), PATIENCE))
                waits_or_has_ended(server, case.model, sent)
        finally:
            gate.touch()
        answers = [answer_of(future) for future in sent]
        end_sequences(call, case, first_id)
        begin = answers[0].fields.get("execution", 0)
        for answer in answers:
            if "execution" in answer.fields:
                answer.fields["execution"] -= begin
        return answers


def waits_or_has_ended(server, model, sent):
    """Waits until the last request is in the queue or has its answer."""

    def so():
        # In this order: a request that ends meanwhile counts as one that waits.
        waiting = pending(server, model)
        return waiting + sum(future.done() for future in sent[1:]) >= len(sent) - 1

    serving.eventually(so, "a request to wait", patience=PATIENCE)


def answer_of(future):
    try:
        response = future.result()
    except grpc.RpcError as error:
        code = HANGS if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED else error.code().name
        return Answer(code, error.details() or "")
    told = response.raw_output_contents[0]
    length = int.from_bytes(told[:4], "little")
    return Answer("OK", fields=json.loads(told[4 : 4 + length]))


def end_sequences(call, case, first_id):
    """Ends what a case has left open; what is not open is refused, which is no matter."""
    if case.model in SEQUENCES:
        for number in range(1, MOST_SEQUENCES + 1):
            answer_of(call.future(message_of(case.model, QueuedRequest(sequence=number, end=True), first_id), PATIENCE))
