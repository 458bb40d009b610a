"""Cases of the area `grpc`: calls of `ModelInfer`, and streams of `ModelStreamInfer`.

A case is up to three right requests, each with up to three mutations. The bytes of a message may be damaged, too.
"""

from dataclasses import dataclass

import grpc
from differential import models, tensors
from differential.answers import Answer, flat
from differential.connected_area import ConnectedArea
from differential.exchange import PATIENCE
from differential.grpc_calls import ended, keys
from google.protobuf import json_format
from tritonclient.grpc import service_pb2 as pb

MOST_MUTATIONS = 3
MOST_REQUESTS = 3
SERVICE = "/inference.GRPCInferenceService/"


@dataclass
class GrpcCase:
    """Messages as they are sent, and what they were before their bytes were damaged."""

    streamed: bool
    messages: list
    shown: list
    # The names of the mutations of each message.
    mutations: list
    metadata: tuple = ()
    compression: grpc.Compression = grpc.Compression.NoCompression

    def __str__(self):
        call = "ModelStreamInfer" if self.streamed else "ModelInfer"
        rest = "".join(f"\n  {what}" for what in (self.metadata, self.compression) if what)
        pairs = zip(self.shown, self.mutations, strict=True)
        messages = "".join(f"\n  {shown}\n    mutations: {', '.join(mutations)}" for shown, mutations in pairs)
        return f"{call}{rest}{messages}"


def draw(choices):
    """A case."""
    streamed = choices.one_in(3)
    case = GrpcCase(streamed, [], [], [])
    # This Triton may end itself by a stream with requests to a decoupled model and others.
    is_alone = choices.one_in(4)
    served = [model for model in models.MODELS if is_alone or not model.decoupled]
    for place in choices.several(1, MOST_REQUESTS if streamed and not is_alone else 1):
        message = right(choices.one_of(served), choices)
        if streamed:
            message.id = str(place)
        mutations = []
        for _ in choices.several(0, MOST_MUTATIONS):
            mutation = choices.one_of(MUTATIONS)
            mutation(message, choices)
            mutations.append(mutation.__name__)
        data = message.SerializeToString(deterministic=True)
        shown = json_format.MessageToDict(message, preserving_proto_field_name=True)
        if not streamed and choices.one_in(20):
            data = damaged(data, choices)
            shown = data.hex()
            mutations.append("damaged")
        case.messages.append(data)
        case.shown.append(shown)
        case.mutations.append(mutations)
    if streamed and len(case.messages) == 1 and choices.one_in(4):
        case.metadata = (("triton_grpc_error", choices.one_of(("true", "false", "1"))),)
    if choices.one_in(10):
        case.compression = choices.one_of((grpc.Compression.Gzip, grpc.Compression.Deflate))
    return case


def right(model, choices):
    """A request that a model takes, with typed or with raw contents."""
    message = pb.ModelInferRequest(model_name=model.name)
    if choices.one_in(4):
        message.id = choices.one_of(("r1", "\u00e9\u20ac"))
    batch = choices.between(1, model.max_batch) if model.max_batch else None
    kept = [spec for spec in model.inputs if spec.more != models.OPTIONAL or not choices.one_in(2)]
    raw = choices.one_in(2) or any(spec.datatype in ("FP16", "BF16") for spec in kept)
    for spec in kept:
        shape = tensors.shape(choices, spec, batch)
        elements = tensors.values(choices, spec.datatype, shape)
        tensor = message.inputs.add(name=spec.name, datatype=spec.datatype, shape=shape)
        if raw:
            message.raw_input_contents.append(tensors.as_bytes(spec.datatype, elements))
        else:
            getattr(tensor.contents, TYPED[spec.datatype]).extend(elements)
    if choices.one_in(2):
        for spec in model.outputs:
            if not choices.one_in(4):
                output = message.outputs.add(name=spec.name)
                if spec.datatype != "BYTES" and choices.one_in(4):
                    output.parameters["classification"].int64_param = choices.between(1, 5)
    return message


TYPED = {
    "BOOL": "bool_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
PARAMETERS = ("a", "sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "triton_x", "binary_data_output")
OF_TENSORS = ("a", "classification", "binary_data_size", "shared_memory_region", "shared_memory_byte_size")
VALUES = (
    ("int64_param", (0, 1, -1, 7, 2**63 - 1, -(2**63))),
    ("bool_param", (True, False)),
    # A correlation id has at most 128 characters.
    ("string_param", ("", "x", "seven", "s" * 128, "s" * 129)),
    ("double_param", (0.0, 1.5, -1e300)),
    ("uint64_param", (0, 7, 2**64 - 1)),
    (None, ()),
)


def set_value(parameter, choices):
    kind, options = choices.one_of(VALUES)
    if kind:
        setattr(parameter, kind, choices.one_of(options))
    else:
        parameter.Clear()


def with_parameter(message, choices):
    set_value(message.parameters[choices.one_of(PARAMETERS)], choices)


def with_input_parameter(message, choices):
    if message.inputs:
        set_value(choices.one_of(message.inputs).parameters[choices.one_of(OF_TENSORS)], choices)


def with_output_parameter(message, choices):
    if message.outputs:
        output = choices.one_of(message.outputs)
        name = choices.one_of(OF_TENSORS)
        # This Triton ends itself over classes of byte strings.
        if name != "classification" or output.name != "OB":
            set_value(output.parameters[name], choices)


def other_model(message, choices):
    message.model_name = choices.one_of(("none", "", "TWO", "two ", "stats"))


def other_version(message, choices):
    message.model_version = choices.one_of(("1", "2", "0", "-1", "x", "1x", "99999999999999999999", " 1", "01"))


def other_datatype(message, choices):
    if message.inputs:
        choices.one_of(message.inputs).datatype = choices.one_of((*models.DATATYPES, "int32", "STRING", ""))


def other_shape(message, choices):
    if message.inputs:
        shape = choices.one_of(message.inputs).shape
        at = choices.below(len(shape) + 1)
        way = choices.below(3)
        if way == 0 and at < len(shape):
            shape[at] = choices.one_of((0, 1, 2, 3, 5, 9, -1, -2))
        elif way == 1:
            shape.insert(at, choices.one_of((1, 2, 0)))
        elif at < len(shape):
            del shape[at]


def other_contents(message, choices):
    """Elements more, less, or of another kind."""
    if message.inputs:
        tensor = choices.one_of(message.inputs)
        kind = choices.one_of(dict.fromkeys(TYPED.values()))
        value = {"bool_contents": True, "bytes_contents": b"x"}.get(kind, 1)
        way = choices.below(3)
        if way == 0:
            getattr(tensor.contents, kind).append(value)
        elif way == 1:
            tensor.ClearField("contents")
            getattr(tensor.contents, kind).append(value)
        else:
            tensor.ClearField("contents")


def other_raw(message, choices):
    """Another number of raw contents, or of their bytes."""
    raw = message.raw_input_contents
    way = choices.below(3)
    if way == 0 and raw:
        at = choices.below(len(raw))
        raw[at] = choices.one_of((raw[at][:-1], raw[at] + b"\0", raw[at] * 2, b"", raw[at][:4]))
    elif way == 1:
        raw.append(b"\0\0\0\0")
    elif raw:
        del raw[choices.below(len(raw))]


def other_name(message, choices):
    tensors_ = [*message.inputs, *message.outputs]
    if tensors_:
        choices.one_of(tensors_).name = choices.one_of(("x", "", "IA", "OA"))


def another_tensor(message, choices):
    """A tensor twice, or one less."""
    field_ = choices.one_of((message.inputs, message.outputs))
    if field_:
        at = choices.below(len(field_))
        if choices.one_in(2):
            del field_[at]
        else:
            field_.append(field_[at])


MUTATIONS = (
    with_parameter, with_parameter, with_input_parameter, with_output_parameter, other_model, other_version, other_datatype,
    other_shape, other_shape, other_contents, other_contents, other_raw, other_raw, other_name, another_tensor,
)  # fmt: skip


def damaged(data, choices):
    """Other bytes."""
    at = choices.below(len(data) + 1)
    way = choices.below(3)
    if way == 0:
        return data[:at]
    if way == 1:
        return data[:at] + data[at + 1 :]
    return data[:at] + bytes([choices.below(256)]) + data[at + 1 :]


def fields_of(response):
    """The fields of a response of inference. Raw contents are those of their outputs."""
    document = json_format.MessageToDict(response, preserving_proto_field_name=True)
    outputs, raw = document.pop("outputs", []), document.pop("raw_output_contents", [])
    fields = flat(document)
    fields["outputs"] = " ".join(one.get("name", "") for one in outputs)
    fields["raw contents"] = len(raw)
    for one, data in zip(outputs, response.raw_output_contents, strict=False):
        fields |= flat(one, one.get("name", "")) | {f"{one.get('name', '')} data": data.hex()}
    return fields


class GrpcArea(ConnectedArea):
    name = "grpc"
    draw = staticmethod(draw)

    def connect(self, server):
        options = (("grpc.enable_retries", 0), ("grpc.initial_reconnect_backoff_ms", 50))
        return grpc.insecure_channel(server.grpc, options)

    def answers(self, connection, case):
        return streamed(connection, case) if case.streamed else called(connection, case)


def called(channel, case):
    """The answer to a call."""
    method = channel.unary_unary(f"{SERVICE}ModelInfer", response_deserializer=pb.ModelInferResponse.FromString)
    try:
        response, call = method.with_call(case.messages[0], PATIENCE, case.metadata or None, compression=case.compression)
    except grpc.RpcError as error:
        return [ended(error)]
    return [Answer("OK", fields=fields_of(response) | keys(call))]


def streamed(channel, case):
    """The answers on a stream, request by request, and at last the end of the stream."""
    call = channel.stream_stream(f"{SERVICE}ModelStreamInfer", response_deserializer=pb.ModelStreamInferResponse.FromString)
    answers = []
    responses = call(iter(case.messages), PATIENCE, case.metadata or None, compression=case.compression)
    try:
        for response in responses:
            code = "error" if response.error_message else "response"
            answers.append(Answer(code, response.error_message, fields_of(response.infer_response)))
    except grpc.RpcError:
        pass
    # Decoupled responses of several requests come in any order.
    answers.sort(key=lambda answer: answer.fields.get("id", ""))
    return [*answers, ended(responses)]
