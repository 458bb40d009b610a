"""What the two protocols have in common: the client library of each, and the same question asked of both."""

import re
import types
from dataclasses import dataclass

import numpy as np
import requests
import tritonclient.grpc
import tritonclient.http

# What a client's exception reports for each error code, over HTTP and over gRPC.
STATUS = {
    "INVALID_ARGUMENT": ("400", "StatusCode.INVALID_ARGUMENT"),
    "NOT_FOUND": ("404", "StatusCode.NOT_FOUND"),
    "INTERNAL": ("500", "StatusCode.INTERNAL"),
    "UNIMPLEMENTED": ("501", "StatusCode.UNIMPLEMENTED"),
    "UNAVAILABLE": ("503", "StatusCode.UNAVAILABLE"),
}


@dataclass(frozen=True)
class Protocol:
    name: str
    library: types.ModuleType

    def connect(self, server, **options):
        """A client of the library, exactly as a user would make it."""
        return self.library.InferenceServerClient(getattr(server, self.name), **options)

    def input(self, name, array, datatype=None):
        """An input tensor."""
        array = np.asarray(array)
        datatype = datatype or numpy_datatype(array)
        tensor = self.library.InferInput(name, list(array.shape), datatype)
        tensor.set_data_from_numpy(array)
        return tensor

    def output(self, name, **options):
        return self.library.InferRequestedOutput(name, **options)

    def status(self, code):
        return STATUS[code][0 if self.name == "http" else 1]

    def json(self, question, *arguments):
        """Asks the client a question whose answer is an object; gRPC's integers become integers again."""
        if self.name == "http":
            return question(*arguments)
        return integers(question(*arguments, as_json=True))

    def statistics(self, client, model, version=""):
        return self.json(client.get_inference_statistics, model, version)["model_stats"][0]


HTTP = Protocol("http", tritonclient.http)
GRPC = Protocol("grpc", tritonclient.grpc)


def numpy_datatype(array):
    return tritonclient.utils.np_to_triton_dtype(array.dtype)


def integers(value):
    """JSON of protobuf writes 64-bit integers as strings; versions and reasons are strings that stay."""
    match value:
        case dict():
            return {key: inner if key in ("version", "versions") else integers(inner) for key, inner in value.items()}
        case list():
            return [integers(inner) for inner in value]
        case str() if re.fullmatch(r"-?\d+", value):
            return int(value)
    return value


def add_sub_inputs(protocol, batch=1):
    """Inputs for add_sub, different in every element."""
    first = np.arange(batch * 16, dtype=np.int32).reshape(batch, 16)
    return [protocol.input("INPUT0", first), protocol.input("INPUT1", np.full_like(first, 1000))], first


def metric(server, name, **labels):
    """The value of one series; its labels are exactly these."""
    wanted = {key: str(value) for key, value in labels.items()}
    for line in requests.get(server.metrics, timeout=60).text.splitlines():
        match = re.fullmatch(r"([\w:]+)(?:\{(.*)\})? (\S+)", line)
        if match and match[1] == name and dict(re.findall(r'(\w+)="([^"]*)"', match[2] or "")) == wanted:
            return float(match[3])
    raise AssertionError(f"there is no {name} with {wanted}")


def pending(server, model):
    """How many requests wait for an execution of the model."""
    return metric(server, "nv_inference_pending_request_count", model=model, version=1)


def canceled(server, model):
    """How many requests for the model were canceled."""
    return metric(server, "nv_inference_request_failure", model=model, reason="CANCELED", version=1)
