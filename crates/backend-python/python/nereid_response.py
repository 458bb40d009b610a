"""Responses, errors, and what answers a request over time: response senders and iterators."""

import enum
import json
import operator
import threading

import numpy as np
from nereid_host import LEAST_INT64, MOST_INT64, MOST_UINT32, TritonModelException, connected, host, text, whole_number
from nereid_tensor import Tensor

TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1


class ErrorCode(enum.IntEnum):
    """The numbers of TRITONSERVER_Error_Code."""

    UNKNOWN = 0
    INTERNAL = 1
    NOT_FOUND = 2
    INVALID_ARG = 3
    UNAVAILABLE = 4
    UNSUPPORTED = 5
    ALREADY_EXISTS = 6
    CANCELLED = 7


class TritonError:
    """An error that a response carries."""

    UNKNOWN = ErrorCode.UNKNOWN
    INTERNAL = ErrorCode.INTERNAL
    NOT_FOUND = ErrorCode.NOT_FOUND
    INVALID_ARG = ErrorCode.INVALID_ARG
    UNAVAILABLE = ErrorCode.UNAVAILABLE
    UNSUPPORTED = ErrorCode.UNSUPPORTED
    ALREADY_EXISTS = ErrorCode.ALREADY_EXISTS
    CANCELLED = ErrorCode.CANCELLED

    __slots__ = ("_message", "_code")

    def __init__(self, message, code=ErrorCode.INTERNAL):
        if not isinstance(code, ErrorCode):
            raise TypeError(f"the code of a TritonError must be one of its constants, found type {type(code)}")
        # An error must reach the client, whatever characters it has.
        self._message = text("the message of a TritonError", message, "replace")
        self._code = code

    def code(self):
        return self._code

    def message(self):
        return self._message

    def __repr__(self):
        return f"<TritonError {self._code.name}: {self._message}>"


def parameters_text(parameters):
    """The parameters of a request or a response as JSON text."""
    if parameters is None:
        return "{}"
    if not isinstance(parameters, dict):
        raise TritonModelException(f"Expect a dictionary of parameters, got {type(parameters)}")
    plain = {}
    for key, value in parameters.items():
        if not isinstance(key, str):
            raise TritonModelException(f"Expect parameters keys to have type str, found type {type(key)}")
        plain[text("the name of a parameter", key)] = _plain_parameter(value)
    return json.dumps(plain)


def _plain_parameter(value):
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, str):
        return text("the value of a parameter", value)
    try:
        value = operator.index(value)
    except TypeError:
        raise TritonModelException(
            f"Expect parameters values to have type bool/int/str, found type {type(value)}"
        ) from None
    return whole_number("the value of a parameter", value, LEAST_INT64, MOST_INT64)


class InferenceResponse:
    """One response: output tensors, or an error; and parameters."""

    __slots__ = ("_output_tensors", "_error", "_parameters", "__weakref__")

    def __init__(self, output_tensors=(), error=None, parameters=None):
        tensors = list(output_tensors)
        for tensor in tensors:
            if tensor is None:
                raise TritonModelException("Output tensor for inference response should not be empty.")
            if not isinstance(tensor, Tensor):
                raise TypeError(f"output_tensors must have objects of type Tensor, found type {type(tensor)}")
        if error is not None and not isinstance(error, TritonError):
            raise TypeError(f"the error of a response must be a TritonError, found type {type(error)}")
        self._output_tensors = tensors
        self._error = error
        self._parameters = parameters_text(parameters)

    def output_tensors(self):
        return self._output_tensors

    def has_error(self):
        return self._error is not None

    def error(self):
        return self._error

    def parameters(self):
        """The parameters, as JSON text."""
        return self._parameters


class InferenceResponseSender:
    """Sends the responses of one request, from any thread.

    The sender tells the host when it is dropped before the final flag, so that no client waits for ever.
    """

    __slots__ = ("_handle", "_decoupled", "_lock", "_closed", "_sent", "__weakref__")

    def __new__(cls, *_, **__):
        raise TypeError("InferenceResponseSender: No constructor defined!")

    @classmethod
    def _of(cls, handle, decoupled):
        """The sender of a request. `decoupled` is None for a request of a model: only the model that is asked answers it."""
        sender = object.__new__(cls)
        sender._handle = handle
        sender._decoupled = decoupled
        sender._lock = threading.Lock()
        sender._closed = False
        sender._sent = 0
        return sender

    def send(self, response=None, flags=0):
        """Sends a response, the final flag, or both. May be called by any thread."""
        if response is not None and not isinstance(response, InferenceResponse):
            raise TypeError(f"the response must be an InferenceResponse, found type {type(response)}")
        flags = whole_number("the flags of a response", flags, 0, MOST_UINT32)
        if flags not in (0, TRITONSERVER_RESPONSE_COMPLETE_FINAL):
            raise TritonModelException("Unable to send response. Unsupported flag provided.")
        if flags == 0 and response is None:
            raise TritonModelException(
                "Inference Response object must be provided when the response flags is set to zero."
            )
        if self._decoupled is None:
            raise TritonModelException(
                "Unable to send response. Response sender has no reference to the decoupled state of the model."
            )
        # The host is called under the lock: responses of one request must not overtake each other or the final flag.
        with self._lock:
            self._check(response)
            # What cannot be sent does not count: the model may send an error instead, or drop the sender.
            host().send(self._handle, response, flags)
            self._closed = flags == TRITONSERVER_RESPONSE_COMPLETE_FINAL
            self._sent += 1

    def _check(self, response):
        if not self._decoupled:
            if response is not None and self._sent > 0:
                raise TritonModelException(
                    "Unable to send response. Non-decoupled model cannot send more than one response."
                )
            if response is None and self._sent == 0:
                raise TritonModelException(
                    "Unable to send response. Non-decoupled model cannot send complete final before sending a response."
                )
        if self._closed:
            raise TritonModelException("Unable to send response. Response sender has been closed.")

    def is_cancelled(self):
        return is_cancelled(self._handle)

    def __del__(self):
        if self._decoupled is not None and not self._closed and connected() is not None:
            connected().abandon(self._handle)


def is_cancelled(handle):
    return handle is not None and host().is_cancelled(handle)


class ResponseIterator:
    """The responses of a decoupled model. It may be iterated again after its end: the responses are kept."""

    def __init__(self, source):
        self._source = source
        self._responses = []
        self._next = 0
        self._finished = False

    def __iter__(self):
        if self._finished and self._next >= len(self._responses):
            self._next = 0
        return self

    def __next__(self):
        if self._next < len(self._responses):
            self._next += 1
            return self._responses[self._next - 1]
        if self._finished:
            raise StopIteration
        try:
            response = next(self._source)
        except StopIteration:
            self._finished = True
            raise
        self._responses.append(response)
        self._next += 1
        return response

    def cancel(self):
        """Cancels the request. Responses may still come until it has ended."""
        if not self._finished:
            self._source.cancel()
