"""The rules of answers of models in Python: what is refused, in which words, and that nobody waits for ever."""

import queue

import numpy as np
import plugins
import pytest
import python_backends
import repository as models
from protocols import GRPC, HTTP
from serving import PATIENCE, Server, eventually
from tritonclient.utils import InferenceServerException

DECOUPLED = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "WHAT", "data_type": "TYPE_STRING", "dims": [1]})
        config.add_output({"name": "DONE", "data_type": "TYPE_STRING", "dims": [1]})
        config.set_model_transaction_policy({"decoupled": True})
        return config

    def execute(self, requests):
        for request in requests:
            what = request.inputs()[0].as_numpy().item().decode()
            sender = request.get_response_sender()
            response = pb_utils.InferenceResponse([pb_utils.Tensor("DONE", np.array([what], np.object_))])
            if what == "return a list":
                return [response]
            if what == "raise":
                raise ValueError("not today")
            sender.send(response)
            if what == "send and raise":
                raise ValueError("not today")
            if what != "forget the end":
                sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
ASYNCHRONOUS = DECOUPLED.replace("    def execute", "    async def execute")
# What `execute` returns is a coroutine, and `execute` is none.
RETURN = "    def execute(self, requests):\n        return self.run(requests)\n\n    async def run"
RETURNED = DECOUPLED.replace("    def execute", RETURN)
NO_EXECUTE = "class TritonPythonModel:\n    def initialize(self, args):\n        pass\n"
SUMMING = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(*(tensor.as_numpy() for tensor in request.inputs())) for request in requests]

    def answer(self, given, before):
        after = given + before
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", after), pb_utils.Tensor("NEXT", after)])
"""
OF_SUMMING = """
max_batch_size: 4
input { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] }
output { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] }
sequence_batching {
  oldest { max_candidate_sequences: 4 }
  state {
    input_name: "SUM" output_name: "NEXT" data_type: TYPE_INT32 dims: [ 1 ]
    initial_state { name: "nothing" data_type: TYPE_INT32 dims: [ 1 ] zero_data: true }
  }
}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory, python_backend):
    folder = tmp_path_factory.mktemp("models")
    plugins.python_model(folder, "breaker")
    plugins.python_model(folder, "strict", "breaker", 'parameters { key: "STRICT_OUTPUTS" value: { string_value: "yes" } }')
    plugins.python_model(folder, "decoupled", text=DECOUPLED)
    plugins.python_model(folder, "asynchronous", text=ASYNCHRONOUS)
    plugins.python_model(folder, "returned", text=RETURNED)
    ends = models.tensor("input", "WHAT", "BYTES", 1) + models.tensor("output", "DONE", "BYTES", 1)
    plugins.python_model(folder, "idle", text=NO_EXECUTE, config=ends)
    plugins.python_model(folder, "summing", text=SUMMING, config=OF_SUMMING)
    options, variables = python_backend.options, python_backend.variables
    with Server(tmp_path_factory.mktemp("server"), folder, *options, variables=variables) as server:
        yield server.wait_until_ready()


def text(value):
    return np.array([value], np.object_)


def do(client, protocol, what, model="breaker", **named):
    return client.infer(model, [protocol.input("WHAT", text(what))], **named)


def refused(client, protocol, what, model="breaker", **named):
    with pytest.raises(InferenceServerException) as failed:
        do(client, protocol, what, model, **named)
    assert failed.value.status() == protocol.status("INTERNAL")
    return failed.value.message()


REFUSALS = {
    "answer with text": "Expected an 'InferenceResponse' object in the execute function return list, found type '<class 'str'>'.",
    "forget an output tensor": "TritonModelException: Output tensor for inference response should not be empty.\n\nAt:\n",
    "answer with complex numbers": "TritonModelException: NumPy dtype is not supported.\n\nAt:\n",
    "leave the name out": "TritonModelException: Tensor name cannot be an empty string.\n\nAt:\n",
}


@pytest.mark.parametrize("what", REFUSALS)
def test_a_broken_rule_is_told_to_the_client(protocol, client, what):
    head = "Failed to process the request(s) for model 'breaker_0', message: "
    assert refused(client, protocol, what).startswith(head + REFUSALS[what])
    assert do(client, protocol, "answer later").as_numpy("DONE").item() == b"later"


# Triton's backend lets the client wait for ever.
@pytest.mark.parametrize("python_backend", python_backends.OURS, indirect=True)
def test_no_answer_is_an_error(protocol, client):
    words = "Expected an 'InferenceResponse' object in the execute function return list, found type '<class 'NoneType'>'."
    assert words in refused(client, protocol, "answer with nothing")


# Triton's backend leaves it out without a word.
@pytest.mark.parametrize("python_backend", python_backends.OURS, indirect=True)
def test_an_output_that_the_configuration_does_not_have_is_told_once(protocol, client, server):
    told = "output 'DOEN' of model 'breaker' is not in the configuration, which has [DONE, MORE]: no response has it"
    for _ in range(3):
        answer = do(client, protocol, "answer with an unknown output")
        assert answer.as_numpy("DONE").item() == b"done" and answer.as_numpy("DOEN") is None
    eventually(lambda: told in server.log(), "the warning")
    assert server.log().count(told) == 1


def test_a_model_without_execute_says_so(protocol, client):
    message = refused(client, protocol, "anything", "idle")
    assert message.startswith("Failed to process the request(s) for model 'idle_0', message: Python model /")
    assert message.endswith("/idle/1/model.py does not implement `execute` method.")


def test_an_error_hides_the_outputs_beside_it(protocol, client):
    assert refused(client, protocol, "answer with tensors and an error") == "both"


@pytest.mark.parametrize("what, answer", [("answer later", b"later"), ("answer now and finish later", b"now")])
def test_a_model_may_answer_through_a_sender_after_its_execution(protocol, client, what, answer):
    assert do(client, protocol, what).as_numpy("DONE").item() == answer


def test_a_sender_sends_one_response_and_the_end(protocol, client):
    assert do(client, protocol, "send twice").as_numpy("DONE").item() == b"once"

    def said():
        return do(client, protocol, "tell what was said").as_numpy("DONE").item().decode().splitlines()

    cannot = "Unable to send response. "
    assert said() == [
        cannot + "Non-decoupled model cannot send complete final before sending a response.",
        "Inference Response object must be provided when the response flags is set to zero.",
        cannot + "Unsupported flag provided.",
        "sent",
        cannot + "Non-decoupled model cannot send more than one response.",
        "sent",
        cannot + "Response sender has been closed.",
    ]


def test_outputs_that_nobody_asked_for_are_left_out(protocol, client):
    result = do(client, protocol, "answer with another shape", outputs=[protocol.output("DONE")])
    assert result.as_numpy("MORE") is None


@pytest.mark.parametrize("what, name", [("answer with another datatype", "DONE"), ("answer with another shape", "MORE")])
def test_outputs_that_contradict_the_configuration_are_sent_nevertheless(protocol, client, what, name):
    assert do(client, protocol, what).as_numpy(name) is not None


# Triton does not compare outputs with the configuration.
@pytest.mark.parametrize("python_backend", python_backends.OURS, indirect=True)
@pytest.mark.parametrize("what, name", [("answer with another datatype", "DONE"), ("answer with another shape", "MORE")])
def test_a_strict_model_sends_nothing_that_contradicts_the_configuration(protocol, client, server, what, name):
    message = refused(client, protocol, what, "strict")
    assert f"'{name}'" in message
    assert do(client, protocol, "answer later", "strict").as_numpy("DONE").item() == b"later"


@pytest.fixture
def answers(server):
    """Sends a request on a stream, and gives what comes: texts, and errors as exceptions."""
    with GRPC.connect(server) as client:
        received = queue.Queue()
        client.start_stream(lambda result, error: received.put((result, error)))

        def ask(model, what):
            client.async_stream_infer(model, [GRPC.input("WHAT", text(what))])
            result, error = received.get(timeout=PATIENCE)
            yield error.message() if error else result.as_numpy("DONE").item().decode()
            result, error = received.get(timeout=PATIENCE)
            yield error.message() if error else result.as_numpy("DONE").item().decode()

        yield ask


def test_a_decoupled_model_returns_nothing(answers):
    wanted = "Python model 'decoupled_0' is using the decoupled mode and the execute function must return None."
    assert next(answers("decoupled", "return a list")).endswith(wanted)
    assert next(answers("decoupled", "behave")) == "behave"


def test_an_exception_of_a_decoupled_model_ends_the_request(answers):
    head = "Failed to process the request(s) for model 'decoupled_0', message: ValueError: not today\n\nAt:\n"
    assert next(answers("decoupled", "raise")).startswith(head)
    said, error = answers("decoupled", "send and raise")
    assert said == "send and raise" and error.startswith(head)
    assert next(answers("decoupled", "behave")) == "behave"


# Clients of Triton wait for ever.
@pytest.mark.parametrize("python_backend", python_backends.OURS, indirect=True)
@pytest.mark.parametrize("model", ["decoupled", "asynchronous", "returned"])
def test_a_stream_that_the_model_does_not_end_is_an_error(answers, model):
    said, error = answers(model, "forget the end")
    assert said == "forget the end" and error
    assert next(answers(model, "behave")) == "behave"


# As above: Triton only logs the exception.
@pytest.mark.parametrize("python_backend", python_backends.OURS, indirect=True)
@pytest.mark.parametrize("model", ["asynchronous", "returned"])
def test_an_exception_of_an_asynchronous_decoupled_model_ends_the_request(answers, model):
    said, error = answers(model, "send and raise")
    assert said == "send and raise" and "ValueError: not today" in error


EARLY = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        asked = pb_utils.InferenceRequest(model_name="other", inputs=[], requested_output_names=[])
        asked.exec()

    def execute(self, requests):
        return []
"""


# Version 2.51 of Triton crashes.
@pytest.mark.parametrize("python_backend", python_backends.OURS, indirect=True)
def test_a_model_asks_nobody_before_it_is_ready(start_python, tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    ends = models.tensor("input", "X", "FP32", 1) + models.tensor("output", "Y", "FP32", 1)
    plugins.python_model(folder, "early", text=EARLY, config=ends)
    server = start_python(folder, "--exit-on-error=false", "--strict-readiness=false")
    with HTTP.connect(server) as client:
        [model] = eventually(lambda: client.get_model_repository_index(), "the index")
        assert model["state"] == "UNAVAILABLE"
        assert "TritonModelException: BLS is only supported during the 'execute' function." in model["reason"]


# Triton's backend gives a model the first state again and again.
@pytest.mark.parametrize("python_backend", python_backends.OURS, indirect=True)
def test_the_state_of_a_sequence_is_among_the_inputs(client, protocol, server):
    one, other = (1, 2) if protocol is HTTP else (3, 4)

    def step(sequence, number, **place):
        given = protocol.input("IN", np.array([[number]], np.int32))
        result = client.infer("summing", [given], sequence_id=sequence, **place)
        assert result.get_output("NEXT") is None
        return result.as_numpy("OUT").item()

    assert [step(one, 1, sequence_start=True), step(other, 10, sequence_start=True)] == [1, 10]
    assert [step(one, 2), step(other, 10), step(other, 1)] == [3, 20, 21]
    assert [step(one, 3, sequence_end=True), step(other, 9, sequence_end=True)] == [6, 30]
    assert "of model 'summing' is not in the configuration" not in server.log()
