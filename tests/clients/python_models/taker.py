"""Tells of each place of `pb_utils` which values it takes: answers to the name of a PLACE with names of values."""

import decimal
import enum

import numpy as np
import triton_python_backend_utils as pb_utils


class Text(str):
    pass


class Colour(str, enum.Enum):
    RED = "red"


class Size(enum.IntEnum):
    SMALL = 1


class Index:
    def __index__(self):
        return 1


class Int:
    def __int__(self):
        return 1


class Float:
    def __float__(self):
        return 1.0


class Truth:
    def __bool__(self):
        return True


VALUES = {
    "str": "text",
    "bytes": b"text",
    "bytearray": bytearray(b"text"),
    "memoryview": memoryview(b"text"),
    "kind of str": Text("text"),
    "enum of str": Colour.RED,
    "np.str_": np.str_("text"),
    "np.bytes_": np.bytes_(b"text"),
    "no UTF-8": "\ud800",
    "bool": True,
    "int": 1,
    "enum of int": Size.SMALL,
    "np.int64": np.int64(1),
    "np.bool_": np.bool_(True),
    "array of no dimension": np.array(1),
    "array": np.array([1, 2]),
    "__index__": Index(),
    "__int__": Int(),
    "Decimal": decimal.Decimal(1),
    "-1": -1,
    "2**32": 1 << 32,
    "2**63": 1 << 63,
    "2**64": 1 << 64,
    "float": 1.5,
    "np.float64": np.float64(1.5),
    "__float__": Float(),
    "complex": 1j,
    "__bool__": Truth(),
    "None": None,
    "list": [],
    "dict": {},
    "object": object(),
}
def request(**more):
    tensor = pb_utils.Tensor("INPUT_FP32", np.zeros(1, np.float32))
    return pb_utils.InferenceRequest(
        **{"inputs": [tensor], "requested_output_names": ["OUTPUT_FP32"], "model_name": "mirror", **more}
    )


PLACES = {
    "request_id": lambda value: request(request_id=value),
    "correlation_id": lambda value: request(correlation_id=value),
    "model_name": lambda value: request(model_name=value),
    "model_version": lambda value: request(model_version=value),
    "flags": lambda value: request(flags=value),
    "set_flags": lambda value: request().set_flags(value),
    "timeout": lambda value: request(timeout=value),
    "inputs": lambda value: request(inputs=value),
    "requested_output_names": lambda value: request(requested_output_names=[value]),
    "parameters": lambda value: request(parameters=value),
    "name of a parameter": lambda value: request(parameters={value: 1}),
    "value of a parameter": lambda value: request(parameters={"name": value}),
    "name of a tensor": lambda value: pb_utils.Tensor(value, np.zeros(1)),
    "array of a tensor": lambda value: pb_utils.Tensor("name", value),
    "message of an error": lambda value: pb_utils.TritonError(value),
    "error of a response": lambda value: pb_utils.InferenceResponse([], value),
    "line of the log": lambda value: pb_utils.Logger.log_info(value),
    "device": lambda value: pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU, value),
    "max_batch_size": lambda value: pb_utils.ModelConfig('{"max_batch_size": 0}').set_max_batch_size(value),
}


def takes(place, value):
    try:
        PLACES[place](value)
    except Exception:
        return False
    return True


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "PLACE", "data_type": "TYPE_STRING", "dims": [1]})
        config.add_output({"name": "TAKEN", "data_type": "TYPE_STRING", "dims": [-1]})
        config.set_max_batch_size(0)
        return config

    def execute(self, requests):
        return [self.answer(asked.inputs()[0].as_numpy()[0].decode()) for asked in requests]

    def answer(self, place):
        taken = [name for name, value in VALUES.items() if takes(place, value)]
        return pb_utils.InferenceResponse([pb_utils.Tensor("TAKEN", np.array(taken, np.object_))])
