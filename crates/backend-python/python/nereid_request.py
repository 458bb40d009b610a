"""Requests: those that the server gives to a model, and those that a model makes to ask another one."""

import enum
import operator

from nereid_host import (
    LEAST_INT64,
    MOST_INT64,
    MOST_UINT32,
    MOST_UINT64,
    TritonModelException,
    host,
    text,
    truth,
    whole_number,
)
from nereid_response import InferenceResponseSender, ResponseIterator, is_cancelled, parameters_text
from nereid_tensor import Tensor

TRITONSERVER_REQUEST_FLAG_SEQUENCE_START = 1
TRITONSERVER_REQUEST_FLAG_SEQUENCE_END = 2
TRITONSERVER_REQUEST_RELEASE_ALL = 1
TRITONSERVER_REQUEST_RELEASE_RESCHEDULE = 2


class MemoryType(enum.IntEnum):
    """Where a model wants the outputs of its own requests."""

    TRITONSERVER_MEMORY_GPU = 0
    TRITONSERVER_MEMORY_CPU = 1


TRITONSERVER_MEMORY_GPU = MemoryType.TRITONSERVER_MEMORY_GPU
TRITONSERVER_MEMORY_CPU = MemoryType.TRITONSERVER_MEMORY_CPU


class PreferredMemory:
    """The memory that a model prefers for the outputs of its own request. All outputs come in the processor's."""

    def __init__(self, preferred_memory_type, preferred_device_id=0):
        if not isinstance(preferred_memory_type, MemoryType):
            raise TypeError(
                "the memory type must be TRITONSERVER_MEMORY_CPU or TRITONSERVER_MEMORY_GPU, "
                f"found type {type(preferred_memory_type)}"
            )
        self._memory_type = preferred_memory_type
        self._device_id = whole_number("preferred_device_id", preferred_device_id, LEAST_INT64, MOST_INT64)


class InferenceTrace:
    """The trace of a request. A model gives it to its own requests, so that their traces have this one as parent."""

    __slots__ = ("_handle", "_context")

    def __init__(self):
        self._handle = None
        self._context = None

    def get_context(self):
        """The trace's context as a collector of OpenTelemetry needs it, or None."""
        return self._context


_REQUIRED = object()


class RequestHandle:
    """A request as the server knows it."""

    __slots__ = ("number", "requested")

    def __init__(self, number, requested):
        self.number = number
        self.requested = requested


class InferenceRequest:
    """A request: one that the server gives to a model, or one that a model makes to ask another model."""

    __slots__ = ("_known", "_inputs", "_wire", "_served", "_number", "_sender", "_release_flags", "__weakref__")

    def __init__(
        self,
        request_id="",
        correlation_id=0,
        inputs=_REQUIRED,
        requested_output_names=_REQUIRED,
        model_name=_REQUIRED,
        model_version=-1,
        flags=0,
        timeout=0,
        preferred_memory=None,
        trace=None,
        parameters=None,
    ):
        for name, value in (("inputs", inputs), ("requested_output_names", requested_output_names), ("model_name", model_name)):
            if value is _REQUIRED:
                raise TypeError(f"InferenceRequest needs the argument '{name}'")
        request_id = text(_argument("request_id"), request_id)
        model_name = text(_argument("model_name"), model_name)
        model_version = whole_number(_argument("model_version"), model_version, LEAST_INT64, MOST_INT64)
        flags = whole_number(_argument("flags"), flags, 0, MOST_UINT32)
        timeout = whole_number(_argument("timeout"), timeout, 0, MOST_UINT64)
        correlation_id = _checked_correlation_id(correlation_id)
        if preferred_memory is not None and not isinstance(preferred_memory, PreferredMemory):
            raise TypeError(f"{_argument('preferred_memory')} must be a PreferredMemory, found type {type(preferred_memory)}")
        if trace is not None and not isinstance(trace, InferenceTrace):
            raise TypeError(f"{_argument('trace')} must be an InferenceTrace, found type {type(trace)}")
        whose = f"request with id '{request_id}' and model name '{model_name}'"
        self._number = self._wire = self._sender = None
        self._release_flags = TRITONSERVER_REQUEST_RELEASE_ALL
        self._inputs = _checked_inputs(inputs, whose)
        self._known = {
            "id": request_id,
            "correlation_id": correlation_id,
            "inputs": self._inputs,
            "requested_outputs": _checked_names(requested_output_names, whose),
            "model_name": model_name,
            "model_version": model_version,
            "flags": flags,
            "timeout": timeout,
            "preferred_memory": PreferredMemory(TRITONSERVER_MEMORY_CPU) if preferred_memory is None else preferred_memory,
            "trace": InferenceTrace() if trace is None else trace,
            "parameters": parameters_text(parameters),
        }

    @classmethod
    def _from_wire(cls, handle, fields):
        """A request that the server gives to a model. `fields` is kept as it is."""
        request = cls.__new__(cls)
        request._number = handle
        request._known = fields
        request._wire = None
        request._inputs = fields["inputs"]
        request._release_flags = TRITONSERVER_REQUEST_RELEASE_ALL
        # A decoupled model may drop a request without having asked for its sender.
        request._sender = InferenceResponseSender._of(handle, True) if fields.get("decoupled") else None
        return request

    @classmethod
    def _from_server(cls, wire, inputs, served):
        """The same, from a message: most models ask for nothing but the inputs. `served`: the model's name and version,
        and whether it is decoupled."""
        request = cls.__new__(cls)
        request._wire = wire
        request._inputs = inputs
        request._served = served
        request._known = request._number = request._sender = None
        request._release_flags = TRITONSERVER_REQUEST_RELEASE_ALL
        if served[2]:
            request._sender = InferenceResponseSender._of(request._handle, True)
        return request

    @property
    def _handle(self):
        """How the server knows the request; None for a request that a model has made."""
        if self._number is None and self._wire is not None:
            self._number = RequestHandle(self._wire[0], self._wire[7])
        return self._number

    @property
    def _fields(self):
        if self._known is None:
            _, request_id, correlation_id, flags, timeout, priority, parameters, outputs, trace, _ = self._wire
            self._known = {
                "id": request_id,
                "correlation_id": correlation_id,
                "flags": flags,
                "timeout": timeout,
                "priority": priority,
                "parameters": parameters,
                "requested_outputs": outputs,
                "trace": trace,
                "inputs": self._inputs,
                "model_name": self._served[0],
                "model_version": self._served[1],
                "decoupled": self._served[2],
            }
        return self._known

    def inputs(self):
        return self._inputs

    def request_id(self):
        return self._fields.get("id", "")

    def correlation_id(self):
        """The sequence that the request belongs to: a number, or text."""
        return self._fields.get("correlation_id", 0)

    def flags(self):
        return self._fields.get("flags", 0)

    def set_flags(self, flags):
        self._fields["flags"] = whole_number("the flags of a request", flags, 0, MOST_UINT32)

    def timeout(self):
        """In microseconds; 0 is none."""
        return self._fields.get("timeout", 0)

    def parameters(self):
        """The parameters, as JSON text."""
        return self._fields.get("parameters") or "{}"

    def requested_output_names(self):
        return set(self._fields.get("requested_outputs", ()))

    def preferred_memory(self):
        return self._fields.get("preferred_memory") or PreferredMemory(TRITONSERVER_MEMORY_CPU)

    def trace(self):
        trace = self._fields.get("trace")
        if not isinstance(trace, InferenceTrace):
            context, trace = trace, InferenceTrace()
            trace._handle, trace._context = self._handle, context or None
            self._fields["trace"] = trace
        return trace

    def is_cancelled(self):
        return is_cancelled(self._handle)

    def get_response_sender(self):
        if self._sender is None:
            self._sender = InferenceResponseSender._of(self._handle, None if self._handle is None else False)
        return self._sender

    def set_release_flags(self, flags):
        self._release_flags = whole_number("the release flags of a request", flags, 0, MOST_UINT32)

    def exec(self, decoupled=False):
        """Asks the model that the request names, and waits. What fails is an error of the response."""
        decoupled = truth("decoupled", decoupled)
        answer = host().infer(self, decoupled)
        return ResponseIterator(answer) if decoupled else answer

    def async_exec(self, decoupled=False):
        """As `exec`, in the loop that runs: returns a task."""
        # Who calls this has imported it, and other workers start without it.
        import asyncio

        return asyncio.get_running_loop().create_task(self._ask(truth("decoupled", decoupled)))

    async def _ask(self, decoupled):
        answer = await host().async_infer(self, decoupled)
        return ResponseIterator(answer) if decoupled else answer

    def _is_answered(self):
        """Whether a response went through the sender."""
        return self._sender is not None and (self._sender._sent > 0 or self._sender._closed)

    def _close(self):
        """The request has its answer. Its sender refuses more from now on."""
        if self._sender is not None:
            with self._sender._lock:
                self._sender._closed = True


def _argument(name):
    return f"the argument '{name}' of InferenceRequest"


def _checked_correlation_id(value):
    if value is None:
        raise TypeError(f"{_argument('correlation_id')} must be a whole number or text, found None")
    if isinstance(value, (str, bytes, bytearray)):
        return text(_argument("correlation_id"), value)
    try:
        number = int.__index__(operator.index(value))
    except TypeError:
        raise TritonModelException("Correlation ID must be integer or string") from None
    if not 0 <= number <= MOST_UINT64:
        raise TritonModelException(f"Correlation ID must be from 0 to 2^64 - 1, found {number}")
    return number


def _checked_inputs(inputs, whose):
    tensors = list(inputs)
    for tensor in tensors:
        if tensor is None:
            raise TritonModelException(f"Input tensor for {whose} should not be empty.")
        if not isinstance(tensor, Tensor):
            raise TypeError(f"the inputs of an InferenceRequest must be of type Tensor, found type {type(tensor)}")
    return tensors


def _checked_names(names, whose):
    if isinstance(names, (str, bytes, bytearray)):
        raise TypeError("requested_output_names must be a list of names, found a text")
    plain = {text("each name in requested_output_names", name) for name in names}
    if "" in plain:
        raise TritonModelException(f"Requested output name for {whose} should not be empty.")
    return sorted(plain)


def get_input_tensor_by_name(inference_request, name):
    """The input of that name, or None."""
    for tensor in inference_request.inputs():
        if tensor.name() == name:
            return tensor
    return None


def get_output_tensor_by_name(inference_response, name):
    """The output of that name, or None."""
    for tensor in inference_response.output_tensors():
        if tensor.name() == name:
            return tensor
    return None
