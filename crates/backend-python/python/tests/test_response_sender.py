"""Response senders: what may be sent when, and that no request is forgotten."""

import gc
import threading

import pytest
from triton_python_backend_utils import (
    TRITONSERVER_RESPONSE_COMPLETE_FINAL,
    InferenceRequest,
    InferenceResponse,
    TritonModelException,
)

FINAL = TRITONSERVER_RESPONSE_COMPLETE_FINAL
RESPONSE = InferenceResponse()


def given(decoupled=True):
    return InferenceRequest._from_wire("handle", {"inputs": [], "decoupled": decoupled})


def refused(sender, *arguments):
    with pytest.raises(TritonModelException) as refusal:
        sender.send(*arguments)
    return str(refusal.value).removeprefix("Unable to send response. ")


def test_a_decoupled_model_sends_what_it_likes_and_the_end(host):
    sender = given().get_response_sender()
    sender.send(RESPONSE)
    sender.send(RESPONSE, flags=0)
    sender.send(flags=FINAL)
    assert host.called("send") == [["handle", RESPONSE, 0], ["handle", RESPONSE, 0], ["handle", None, FINAL]]
    assert refused(sender, RESPONSE) == refused(sender, None, FINAL) == "Response sender has been closed."
    assert len(host.called("send")) == 3


def test_arguments_are_checked_first(host):
    sender = given().get_response_sender()
    assert refused(sender, RESPONSE, 2) == "Unsupported flag provided."
    assert refused(sender) == "Inference Response object must be provided when the response flags is set to zero."
    with pytest.raises(TypeError):
        sender.send("a response")
    assert not host.called("send")
    sender.send(flags=FINAL)


def test_a_model_that_is_not_decoupled_sends_one_response(host):
    sender = given(decoupled=False).get_response_sender()
    before = "Non-decoupled model cannot send complete final before sending a response."
    assert refused(sender, None, FINAL) == before
    sender.send(RESPONSE)
    assert refused(sender, RESPONSE) == "Non-decoupled model cannot send more than one response."
    sender.send(flags=FINAL)
    assert refused(sender, None, FINAL) == "Response sender has been closed."


def test_a_request_has_one_sender(host):
    request = given(decoupled=False)
    assert not request._is_answered()
    assert request.get_response_sender() is request.get_response_sender()
    request.get_response_sender().send(RESPONSE, FINAL)
    assert request._is_answered()


def test_a_request_that_was_answered_otherwise_refuses_more(host):
    request = given(decoupled=False)
    sender = request.get_response_sender()
    request._close()
    assert refused(sender, RESPONSE) == "Response sender has been closed."
    del request, sender
    gc.collect()
    assert not host.called("abandon")


def test_requests_of_models_are_answered_by_others(host):
    request = InferenceRequest(inputs=[], requested_output_names=[], model_name="other")
    assert "no reference to the decoupled state" in refused(request.get_response_sender(), RESPONSE)
    del request
    gc.collect()
    assert not host.called("abandon")


def test_a_decoupled_request_that_is_dropped_is_told(host):
    given()
    gc.collect()
    assert host.called("abandon") == [["handle"]]


def test_a_sender_that_is_dropped_before_the_end_is_told_once_nobody_has_it(host):
    request = given()
    sender = request.get_response_sender()
    sender.send(RESPONSE)
    del request
    gc.collect()
    assert not host.called("abandon")
    del sender
    gc.collect()
    assert host.called("abandon") == [["handle"]]


def test_a_sender_that_has_ended_is_not_told(host):
    given().get_response_sender().send(flags=FINAL)
    gc.collect()
    assert not host.called("abandon")


def test_what_cannot_be_sent_ends_nothing(host):
    sender = given(decoupled=False).get_response_sender()
    host.refusals["send"] = "an output does not fit"
    assert refused(sender, RESPONSE, FINAL) == "an output does not fit"
    host.refusals.clear()
    sender.send(RESPONSE, FINAL)
    request = given()
    host.refusals["send"] = "an output does not fit"
    assert refused(request.get_response_sender(), RESPONSE, FINAL) == "an output does not fit"
    del request
    gc.collect()
    assert host.called("abandon") == [["handle"]]


def test_of_many_threads_one_sends_the_end(host):
    sender = given().get_response_sender()
    together = threading.Barrier(8)
    outcomes = []

    def end():
        together.wait()
        try:
            sender.send(flags=FINAL)
            outcomes.append("sent")
        except TritonModelException:
            outcomes.append("refused")

    threads = [threading.Thread(target=end) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["refused"] * 7 + ["sent"]
    assert len(host.called("send")) == 1
