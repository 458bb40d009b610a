"""Calls everything of `pb_utils` with random values, drawn from SEED, and answers with a random response or exception.

A call may work or raise. The answer COUNTS has how many did the one and the other; WHO has the number of the process. With
a negative seed the model only says who it is.
"""

import collections
import decimal
import enum
import fractions
import inspect
import os
import random

import numpy as np
import triton_python_backend_utils as pb_utils

CALLS = 60
FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class Text(str):
    def __str__(self):
        return "another text"


class Number(int):
    def __int__(self):
        return 7

    def __index__(self):
        return 7


class Colour(str, enum.Enum):
    RED = "red"


class Size(enum.IntEnum):
    SMALL = 1


class Index:
    def __index__(self):
        return 2


class BadIndex:
    def __index__(self):
        raise ValueError("no index")


class BadTruth:
    def __bool__(self):
        raise ValueError("neither true nor false")


class BadRepr:
    def __repr__(self):
        raise ValueError("no words")


class BadWords(Exception):
    def __str__(self):
        raise SystemExit("no words")


class OddWords(Exception):
    def __str__(self):
        return np.str_("odd words")


class Derived(pb_utils.Tensor):
    def __init__(self):
        pass


class DerivedError(pb_utils.TritonError):
    def message(self):
        return 7

    def code(self):
        return "none"


class DerivedArray(np.ndarray):
    @property
    def shape(self):
        return ("a",)


TEXTS = ["plain", "", "grün", "a\0b", "\n", "\ud800", "x" * 70_000, b"bytes", b"", b"\xff", bytearray(b"array"), Text("text")]
TEXTS += [Colour.RED, np.str_("numpy"), np.bytes_(b"numpy"), np.array(["of an array"])[0]]
TEXTS += ["mirror", "INPUT_FP32", "OUTPUT_FP32", "1"]
NUMBERS = [0, 1, 2, 3, -1, 1 << 31, 1 << 32, 1 << 63, 1 << 64, 10**400, True, False]
NUMBERS += [1.5, -0.0, float("nan"), float("inf")]
NUMBERS += [1j, Number(3), Size.SMALL, Index(), BadIndex(), decimal.Decimal(2), fractions.Fraction(1, 3), np.int64(3)]
NUMBERS += [np.uint8(1), np.bool_(True), np.float32(1.5), np.float64(2), np.array(3), np.array([1]), np.array([1, 2])]
OTHERS = [None, ..., NotImplemented, BadTruth(), BadRepr(), BadWords(), object()]
OTHERS += [type, len, range(3), memoryview(b"memory"), {1}]
ARRAYS = [np.zeros(2, kind) for kind in ("?", "i1", "i8", "u2", "f2", "f4", "f8", "c8", "S3", "U3", "M8[s]", "O")]
ARRAYS += [np.zeros((2, 0)), np.zeros(()), np.arange(6.0).reshape(2, 3).T, np.zeros(2).view(DerivedArray)]
ARRAYS += [np.array([b"a", "ä", 7, None], object), np.array([BadRepr()], object)]
ARRAYS += [np.ma.masked_array([1.0, 2.0], [True, False])]


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": np.str_("SEED"), "data_type": "TYPE_INT64", "dims": [np.int64(1)]})
        config.add_output({"name": "COUNTS", "data_type": "TYPE_INT64", "dims": (np.int8(2),)})
        config.add_output({"name": "WHO", "data_type": b"TYPE_INT64", "dims": [1]})
        config.set_max_batch_size(np.int64(0))
        return config

    def initialize(self, args):
        kinds = pb_utils.MetricFamily
        families = [("drawn", kinds.COUNTER), (b"drawn_gauge", kinds.GAUGE), (np.str_("drawn_size"), kinds.HISTOGRAM)]
        self.families = [pb_utils.MetricFamily(name, "drawn", kind) for name, kind in families]
        histogram = {"buckets": [np.int64(1), np.float32(2)]}
        self.metrics = [made.Metric(**(histogram if at == 2 else {})) for at, made in enumerate(self.families)]

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        seed = int(request.inputs()[0].as_numpy()[0])
        self.counts = collections.Counter()
        self.random = random.Random(seed)
        for _ in range(CALLS if seed >= 0 else 0):
            self.attempt(self.call)
        counts = np.array([self.counts["worked"], self.counts["raised"]])
        outputs = [pb_utils.Tensor("COUNTS", counts), pb_utils.Tensor("WHO", np.array([os.getpid()]))]
        if seed >= 0:
            outcome = self.random.randrange(5)
            if outcome == 0:
                raise self.random.choice([BadWords(), OddWords(), ValueError(self.value()), SystemExit(self.value())])
            if outcome == 1:
                return self.value()
            if outcome == 2:
                # Whatever is sent, the sender answers.
                sender = request.get_response_sender()
                for _ in range(4):
                    self.attempt(lambda: sender.send(self.random.choice([self.response, self.value])(), self.number()))
                self.attempt(lambda: sender.send(flags=FINAL))
                return None
            if outcome == 3:
                return self.attempt(self.response)
        return pb_utils.InferenceResponse(outputs)

    def attempt(self, call):
        try:
            result = call()
        except BaseException:
            self.counts["raised"] += 1
            return None
        self.counts["worked"] += 1
        return result

    # Calls.

    def call(self):
        name = self.random.choice([name for name in pb_utils.__all__ if callable(getattr(pb_utils, name))])
        called = getattr(pb_utils, name)
        if not isinstance(called, type) or self.random.random() < 0.5:
            return self.drawn(called)
        if issubclass(called, (enum.Enum, Exception)):
            return called(self.value())
        methods = [method for method in vars(called) if not method.startswith("_") and callable(getattr(called, method))]
        method = getattr(self.instance(called), self.random.choice(methods)) if methods else len
        return self.drawn(method)

    def drawn(self, called):
        """Calls something with values for its parameters, which sometimes are what is expected."""
        if isinstance(called, type) and issubclass(called, (enum.Enum, Exception)):
            return called(self.value())
        arguments, named = [], {}
        for parameter in inspect.signature(called).parameters.values():
            if parameter.kind == parameter.VAR_POSITIONAL:
                arguments.append(self.value())
            elif parameter.kind != parameter.VAR_KEYWORD and (
                parameter.default is parameter.empty or parameter.name in WANTED or self.random.random() < 0.3
            ):
                named[parameter.name] = self.argument(parameter.name)
        result = called(*arguments, **named)
        if isinstance(result, pb_utils.InferenceRequest):
            result.exec(self.random.choice([False, np.bool_(False), np.True_]))
        return result

    def instance(self, kind):
        made = {
            pb_utils.Tensor: self.tensor,
            pb_utils.InferenceRequest: self.request,
            pb_utils.InferenceResponse: lambda: pb_utils.InferenceResponse([self.tensor()]),
            pb_utils.InferenceResponseSender: lambda: self.request().get_response_sender(),
            pb_utils.InferenceTrace: lambda: self.request().trace(),
            pb_utils.ResponseIterator: lambda: self.request().exec(decoupled=True),
            pb_utils.TritonError: lambda: pb_utils.TritonError("drawn"),
            pb_utils.PreferredMemory: lambda: pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU),
            pb_utils.ModelConfig: lambda: pb_utils.ModelConfig("{}"),
            pb_utils.MetricFamily: lambda: self.random.choice(self.families),
            pb_utils.Metric: lambda: self.random.choice(self.metrics),
            pb_utils.Logger: lambda: pb_utils.Logger,
        }
        return made[kind]()

    # Values.

    def argument(self, name):
        if self.random.random() < 0.15:
            return self.value()
        draw = WANTED.get(name)
        return self.value() if draw is None else draw(self)

    def text(self):
        return self.random.choice(TEXTS)

    def number(self):
        return self.random.choice(NUMBERS)

    def texts(self):
        return [self.text() for _ in range(self.random.randrange(3))]

    def tensor(self):
        return pb_utils.Tensor("INPUT_FP32", np.zeros(2, np.float32))

    def tensors(self):
        return [self.random.choice([*[self.tensor] * 6, self.some_tensor, Derived])() for _ in range(2)]

    def some_tensor(self):
        return pb_utils.Tensor(self.text(), self.random.choice(ARRAYS))

    def request(self):
        return pb_utils.InferenceRequest(inputs=[self.tensor()], requested_output_names=["OUTPUT_FP32"], model_name="mirror")

    def error(self):
        return self.random.choice([pb_utils.TritonError, DerivedError])(self.text(), pb_utils.TritonError.NOT_FOUND)

    def response(self):
        error = self.random.choice([None, None, self.error()])
        return pb_utils.InferenceResponse(self.tensors(), error, self.random.choice([None, self.dictionary()]))

    def dictionary(self):
        return {self.text(): self.random.choice([self.text, self.number])() for _ in range(2)}

    def numbers(self):
        return [self.number() for _ in range(self.random.randrange(4))]

    def value(self, depth=2):
        kind = self.random.randrange(9 if depth else 4)
        if kind < 4:
            return self.random.choice((TEXTS, NUMBERS, OTHERS, ARRAYS)[kind])
        if kind < 7:
            values = [self.value(depth - 1) for _ in range(self.random.randrange(4))]
            return values if kind == 4 else tuple(values) if kind == 5 else iter(values)
        if kind == 7:
            return {self.text(): self.value(depth - 1) for _ in range(self.random.randrange(3))}
        return self.random.choice([self.tensor, self.request, self.response])()


# What is expected, by the names of parameters. Other parameters get anything.
WANTED = {
    "request_id": TritonPythonModel.text,
    "correlation_id": lambda self: self.random.choice([7, np.int64(7), self.text(), self.number()]),
    "inputs": TritonPythonModel.tensors,
    "requested_output_names": lambda self: self.random.choice([["OUTPUT_FP32"], (b"OUTPUT_FP32",), self.texts()]),
    "model_name": lambda self: self.random.choice([self.text(), "mirror", b"mirror", np.str_("mirror")]),
    "model_version": lambda self: self.random.choice([-1, np.int64(1), Size.SMALL, "1", self.number()]),
    "flags": lambda self: self.random.choice([0, 1, np.bool_(True), np.uint8(1), self.number()]),
    "timeout": lambda self: self.random.choice([0, np.uint64(60_000_000), 60_000_000, self.number()]),
    "parameters": lambda self: self.random.choice([None, {}, {np.str_("a"): np.int8(1)}, self.dictionary()]),
    "output_tensors": TritonPythonModel.tensors,
    "message": TritonPythonModel.text,
    "level": lambda self: self.random.choice([*pb_utils.LogLevel, self.number()]),
    "code": lambda self: self.random.choice([pb_utils.TritonError.NOT_FOUND, self.number()]),
    "name": TritonPythonModel.text,
    "numpy_array": lambda self: self.random.choice(ARRAYS),
    "tensor": lambda self: self.random.choice([self.tensor(), *ARRAYS]),
    "description": TritonPythonModel.text,
    "kind": lambda self: self.random.choice([*pb_utils.MetricKind]),
    "labels": lambda self: self.random.choice([None, {self.text(): self.text()}]),
    "buckets": lambda self: self.random.choice([None, [1, 2], self.numbers()]),
    "value": TritonPythonModel.number,
    "decoupled": lambda self: self.random.choice([False, self.number()]),
    "files": lambda self: self.random.choice([None, {self.text(): self.text()}]),
    "error": lambda self: self.random.choice([None, self.error()]),
    "response": lambda self: self.random.choice([None, self.response()]),
    "config": lambda self: self.random.choice(["{}", self.text()]),
    "model_config": lambda self: self.random.choice(["{}", {}, self.text()]),
    "preferred_memory_type": lambda self: self.random.choice([*pb_utils.MemoryType]),
    "preferred_memory": lambda self: self.random.choice([None, pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU)]),
    "trace": lambda self: self.random.choice([None, pb_utils.InferenceTrace()]),
}
