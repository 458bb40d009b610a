"""Requests that the server gives, and requests that a model makes."""

import asyncio
import json

import numpy as np
import pytest
import triton_python_backend_utils as pb_utils
from triton_python_backend_utils import InferenceRequest, InferenceResponse, Tensor, TritonError, TritonModelException

X = Tensor("X", np.zeros(1))


def ask(**named):
    return InferenceRequest(**({"inputs": [X], "requested_output_names": ["Y"], "model_name": "other"} | named))


def test_a_request_of_the_server_tells_what_its_client_said(host):
    fields = {"id": "the id", "correlation_id": "seq", "flags": 1, "timeout": 5000, "parameters": '{"a": 1}'}
    fields |= {"requested_outputs": ["Y", "Z"], "inputs": [X], "trace": '{"traceparent": "00-1-2-01"}'}
    request = InferenceRequest._from_wire("handle", fields)
    assert (request.request_id(), request.correlation_id(), request.flags()) == ("the id", "seq", 1)
    assert (request.timeout(), json.loads(request.parameters())) == (5000, {"a": 1})
    assert request.requested_output_names() == {"Y", "Z"}
    assert request.inputs() == [X] and pb_utils.get_input_tensor_by_name(request, "X") is X
    assert pb_utils.get_input_tensor_by_name(request, "Y") is None
    assert request.trace().get_context() == '{"traceparent": "00-1-2-01"}'
    assert request.trace()._handle == "handle" and request.trace() is request.trace()


def test_what_a_client_did_not_say_has_defaults(host):
    request = InferenceRequest._from_wire("handle", {"inputs": []})
    assert (request.request_id(), request.correlation_id(), request.flags(), request.timeout()) == ("", 0, 0, 0)
    assert (request.parameters(), request.requested_output_names(), request.inputs()) == ("{}", set(), [])
    assert request.trace().get_context() is None


def test_a_request_knows_whether_it_is_cancelled(host):
    request = InferenceRequest._from_wire("handle", {"inputs": []})
    assert not request.is_cancelled() and not request.get_response_sender().is_cancelled()
    host.answers["is_cancelled"] = True
    assert request.is_cancelled() and request.get_response_sender().is_cancelled()
    assert host.called("is_cancelled") == [["handle"]] * 4
    assert not ask().is_cancelled()


def test_flags_are_set(host):
    request = ask(flags=pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START)
    request.set_flags(pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END)
    request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
    assert (request.flags(), request._release_flags) == (2, 2)


def test_a_request_of_a_model_has_what_the_model_gave_it(host):
    trace = InferenceRequest._from_wire("parent", {"inputs": []}).trace()
    request = ask(
        request_id="mine",
        correlation_id=7,
        model_version=2,
        timeout=9,
        trace=trace,
        parameters={"text": "a", "number": 1, "truth": True},
        preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU),
    )
    assert host.answers["infer"] is request.exec()
    [[asked, decoupled]] = host.called("infer")
    assert asked is request and not decoupled
    fields = request._fields
    assert (fields["id"], fields["correlation_id"], fields["model_name"], fields["model_version"]) == ("mine", 7, "other", 2)
    assert json.loads(request.parameters()) == {"text": "a", "number": 1, "truth": True}
    assert fields["trace"]._handle == "parent"


def test_async_exec_begins_by_itself(host):
    async def two_at_once():
        first = asyncio.ensure_future(ask().async_exec())
        second = ask().async_exec()
        await asyncio.wait([second])
        assert len(host.called("infer")) == 2
        return await first, second.result()

    assert asyncio.run(two_at_once()) == (host.answers["infer"],) * 2


def test_async_exec_needs_a_loop(host):
    with pytest.raises(RuntimeError, match="no running event loop"):
        ask().async_exec()


class Responses:
    def __init__(self, *responses):
        self.responses = iter(responses)
        self.cancelled = 0

    def __next__(self):
        return next(self.responses)

    def cancel(self):
        self.cancelled += 1


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_decoupled_model_has_many_responses(host, asynchronous):
    responses = [InferenceResponse() for _ in range(3)]
    host.answers["infer"] = source = Responses(*responses)

    async def awaited():
        return await ask().async_exec(decoupled=True)

    iterator = asyncio.run(awaited()) if asynchronous else ask().exec(decoupled=True)
    assert next(iterator) is responses[0]
    # As in the reference, a new loop goes on after the first, and begins again after the end.
    assert list(iterator) == responses[1:]
    assert list(iterator) == list(iterator) == responses
    iterator.cancel()
    assert source.cancelled == 0


def test_an_iterator_can_be_cancelled(host):
    host.answers["infer"] = source = Responses(InferenceResponse())
    ask().exec(decoupled=True).cancel()
    assert source.cancelled == 1


ID = "request with id 'r' and model name 'other'"
REFUSALS = {
    "Correlation ID must be integer or string": {"correlation_id": 1.5},
    "Correlation ID must be from 0 to": {"correlation_id": -1},
    f"Input tensor for {ID} should not be empty.": {"inputs": [None], "request_id": "r"},
    f"Requested output name for {ID} should not be empty.": {"requested_output_names": [""], "request_id": "r"},
    "Expect a dictionary of parameters, got <class 'list'>": {"parameters": []},
    "Expect parameters keys to have type str, found type <class 'int'>": {"parameters": {1: 1}},
    "Expect parameters values to have type bool/int/str, found type <class 'float'>": {"parameters": {"a": 1.5}},
}


@pytest.mark.parametrize("words", REFUSALS)
def test_a_request_must_be_whole(words):
    with pytest.raises(TritonModelException) as refused:
        ask(**REFUSALS[words])
    assert str(refused.value).startswith(words)


@pytest.mark.parametrize(
    "wrong",
    [
        {"inputs": [np.zeros(1)]},
        {"request_id": 1},
        {"model_name": None},
        {"model_version": "1"},
        {"flags": -1},
        {"timeout": 1.5},
        {"requested_output_names": "Y"},
        {"correlation_id": None},
        {"preferred_memory": 1},
        {"trace": "a trace"},
    ],
)
def test_a_request_has_types(wrong):
    with pytest.raises(TypeError):
        ask(**wrong)


def test_a_request_needs_inputs_outputs_and_a_model():
    for missing in ("inputs", "requested_output_names", "model_name"):
        arguments = {"inputs": [X], "requested_output_names": ["Y"], "model_name": "other"}
        del arguments[missing]
        with pytest.raises(TypeError, match=f"needs the argument '{missing}'"):
            InferenceRequest(**arguments)


def test_a_response_has_outputs_or_an_error():
    response = InferenceResponse(output_tensors=[X], parameters={"a": True})
    assert (response.output_tensors(), response.has_error(), response.error()) == ([X], False, None)
    assert response.parameters() == '{"a": true}' and InferenceResponse().parameters() == "{}"
    assert pb_utils.get_output_tensor_by_name(response, "X") is X
    assert pb_utils.get_output_tensor_by_name(response, "Y") is None
    failed = InferenceResponse([], TritonError("no", TritonError.NOT_FOUND))
    assert failed.has_error() and (failed.error().message(), failed.error().code()) == ("no", TritonError.NOT_FOUND)


def test_a_response_is_checked():
    with pytest.raises(TritonModelException, match="^Output tensor for inference response should not be empty.$"):
        InferenceResponse([None])
    for wrong in ({"output_tensors": [1]}, {"error": "no"}):
        with pytest.raises(TypeError):
            InferenceResponse(**wrong)


def test_errors_have_the_servers_codes():
    names = ["UNKNOWN", "INTERNAL", "NOT_FOUND", "INVALID_ARG", "UNAVAILABLE", "UNSUPPORTED", "ALREADY_EXISTS", "CANCELLED"]
    assert [int(getattr(TritonError, name)) for name in names] == list(range(8))
    assert TritonError("x").code() == TritonError.INTERNAL
    for wrong in (("x", 5), ("x", "INTERNAL"), (None,)):
        with pytest.raises(TypeError):
            TritonError(*wrong)


def test_without_a_server_models_can_be_tried_but_ask_nobody():
    request = ask()
    with pytest.raises(TritonModelException, match="this needs a server"):
        request.exec()
    assert not request.is_cancelled()
