"""Models in Python: decoupled models, cancellation as a model sees it, and models that ask other models."""

import contextlib
import http.client
import json
import queue

import numpy as np
import plugins
import pytest
import python_backends
import requests
from perf_tool import perf_report, where
from protocols import GRPC, HTTP
from repository import tensor
from serving import PATIENCE, eventually, reset
from tritonclient.utils import InferenceServerException


@pytest.fixture
def grpc(python_server):
    with GRPC.connect(python_server) as client:
        yield client


@pytest.fixture
def client(protocol, python_server):
    with protocol.connect(python_server) as client:
        yield client


@pytest.fixture
def answers(grpc):
    """What comes on a stream of the client: pairs of result and error."""
    answers = queue.Queue()
    grpc.start_stream(lambda result, error: answers.put((result, error)))
    yield answers
    grpc.stop_stream(cancel_requests=True)


def count_to(n, **more):
    return [GRPC.input("N", np.array([n], np.int32)), *(GRPC.input(name, value) for name, value in more.items())]


def text(value):
    return np.array([str(value)], np.object_)


def is_final(result):
    return result.get_response().parameters["triton_final_response"].bool_param


# Answers within `execute`.
AT_ONCE = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            response = pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.zeros(1, np.int32))])
            request.get_response_sender().send(response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


def test_the_last_response_of_a_stream_has_a_time_for_its_outputs(start_python, tmp_path):
    config = "max_batch_size: 0\nmodel_transaction_policy { decoupled: true }\n"
    config += tensor("input", "N", "INT32", 1) + tensor("output", "OUT", "INT32", 1)
    plugins.python_model(tmp_path / "models", "at_once", text=AT_ONCE, config=config)
    server = start_python(tmp_path / "models").wait_until_ready()
    answer = requests.post(f"http://{server.http}/v2/models/at_once/generate_stream", json={"N": 1}, timeout=PATIENCE)
    assert answer.status_code == 200, answer.text
    with GRPC.connect(server) as client:
        # A plug-in may report its times after the answer.
        eventually(
            lambda: GRPC.statistics(client, "at_once")["inference_stats"]["compute_output"].get("ns", 0) > 0,
            "a time for the outputs",
        )


def test_every_number_comes_in_its_turn_and_then_the_end(grpc, answers):
    grpc.async_stream_infer("streamer", count_to(5), request_id="five", enable_empty_final_response=True)
    results = [answers.get(timeout=PATIENCE) for _ in range(6)]
    assert [error for _, error in results] == [None] * 6
    results = [result for result, _ in results]
    assert [result.as_numpy("OUT").item() for result in results[:-1]] == [0, 1, 2, 3, 4]
    assert [is_final(result) for result in results] == [False] * 5 + [True]
    assert not results[-1].get_response().outputs
    assert {result.get_response().id for result in results} == {"five"}


def test_a_request_may_have_no_answer_but_its_end(grpc, answers):
    grpc.async_stream_infer("streamer", count_to(0), request_id="none", enable_empty_final_response=True)
    result, error = answers.get(timeout=PATIENCE)
    assert error is None and is_final(result) and not result.get_response().outputs


def test_many_requests_share_a_stream(grpc, answers):
    for n in range(1, 21):
        grpc.async_stream_infer("streamer", count_to(n), request_id=str(n))
    seen = {str(n): [] for n in range(1, 21)}
    for _ in range(sum(range(1, 21))):
        result, error = answers.get(timeout=PATIENCE)
        assert error is None
        seen[result.get_response().id].append(result.as_numpy("OUT").item())
    assert seen == {str(n): list(range(n)) for n in range(1, 21)}


def test_an_error_may_come_after_some_numbers(grpc, answers):
    grpc.async_stream_infer("streamer", count_to(-2))
    numbers = [answers.get(timeout=PATIENCE)[0].as_numpy("OUT").item() for _ in range(2)]
    result, error = answers.get(timeout=PATIENCE)
    assert numbers == [0, 1] and result is None
    assert error.message() == "no more numbers"


def test_generate_stream_makes_an_event_of_each_number(python_server):
    answer = requests.post(
        f"http://{python_server.http}/v2/models/streamer/generate_stream", json={"N": 3}, timeout=PATIENCE
    )
    *events, rest = answer.text.split("\n\n")
    events = [json.loads(event.removeprefix("data: ")) for event in events]
    assert (answer.status_code, rest) == (200, "")
    assert events == [{"model_name": "streamer", "model_version": "1", "OUT": number} for number in range(3)]


def test_generate_wants_one_answer(python_server):
    ask = f"http://{python_server.http}/v2/models/streamer/generate"
    answer = requests.post(ask, json={"N": 1}, timeout=PATIENCE)
    assert (answer.status_code, answer.json()["OUT"]) == (200, 0)
    assert requests.post(ask, json={"N": 2}, timeout=PATIENCE).status_code == 400


def test_a_decoupled_model_sees_that_its_stream_was_cancelled(grpc, tmp_path):
    told = tmp_path / "told"
    answers = queue.Queue()
    grpc.start_stream(lambda result, error: answers.put((result, error)))
    grpc.async_stream_infer("streamer", count_to(0, TELL=text(told)))
    for number in range(3):
        assert answers.get(timeout=PATIENCE)[0].as_numpy("OUT").item() == number
    assert not told.exists()
    grpc.stop_stream(cancel_requests=True)
    eventually(told.exists, "the model to see the cancellation")


def test_a_model_sees_that_a_request_was_cancelled(grpc, tmp_path):
    told = tmp_path / "told"
    failed = queue.Queue()
    call = grpc.async_infer(
        "patient", [GRPC.input("TELL", text(told))], callback=lambda result, error: failed.put(error)
    )
    eventually(plugins.begun(told), "the model to wait")
    assert not told.exists()
    call.cancel()
    assert failed.get(timeout=PATIENCE).status() == "StatusCode.CANCELLED"
    eventually(told.exists, "the model to see the cancellation")


def test_a_model_sees_that_a_client_of_http_has_gone(python_server, tmp_path):
    told = tmp_path / "told"
    body = json.dumps({"inputs": [{"name": "TELL", "datatype": "BYTES", "shape": [1], "data": [str(told)]}]})
    with contextlib.closing(http.client.HTTPConnection(python_server.http, timeout=PATIENCE)) as impatient:
        impatient.request("POST", "/v2/models/patient/infer", body)
        eventually(plugins.begun(told), "the model to wait")
        assert not told.exists()
        reset(impatient)
    eventually(told.exists, "the model to see the cancellation")


def ask_through(client, protocol, model, how, x):
    inputs = [protocol.input("X", np.asarray(x, np.float32))]
    inputs += [protocol.input("MODEL", text(model)), protocol.input("HOW", text(how))]
    return client.infer("caller", inputs).as_numpy("OUT").tolist()


CALLS = {
    "a model in Python": ("waiter", "exec", [1.5], [3.0]),
    "a model in Python, three times at once": ("waiter", "async_exec", [1.5], [3.0] * 3),
    "a model of another backend": ("identity_fp32", "exec", [1, 2, 3], [1, 2, 3]),
    "a model of another backend, three times at once": ("identity_fp32", "async_exec", [1, 2], [1, 2] * 3),
    "a decoupled model": ("streamer", "decoupled", [4], [0, 1, 2, 3]),
    "a decoupled model, asynchronously": ("streamer", "decoupled async_exec", [4], [0, 1, 2, 3]),
    "a model with one answer as if it were decoupled": ("identity_fp32", "decoupled", [1, 2], [1, 2]),
}


@pytest.mark.parametrize("what", CALLS)
def test_a_model_asks(client, protocol, what):
    model, how, x, wanted = CALLS[what]
    assert ask_through(client, protocol, model, how, x) == wanted


REFUSALS = {
    "nobody": "Request for unknown model: 'nobody' is not found",
    "streamer": "Model streamer is using the decoupled. The current BLS request call doesn't support models using the decoupled",
}


@pytest.mark.parametrize("model", REFUSALS)
@pytest.mark.parametrize("how", ["exec", "async_exec"])
def test_a_model_that_cannot_be_asked_is_an_error_that_the_model_may_pass_on(
    client, protocol, python_backend, model, how
):
    with pytest.raises(InferenceServerException) as failed:
        ask_through(client, protocol, model, how, [1])
    words = REFUSALS[model]
    if model == "nobody":
        words = python_backends.refusal_of_unknown(python_backend, model, words)
    assert failed.value.message().startswith(f"Model {model} - Error when running inference: {words}")


def test_an_error_of_the_model_that_is_asked_is_passed_on(client, protocol):
    with pytest.raises(InferenceServerException) as failed:
        ask_through(client, protocol, "hearer", "exec", [1, 2])
    assert "unexpected shape for input 'X' for model 'hearer'. Expected [1], got [2]." in failed.value.message()


def test_models_that_ask_do_not_disturb_each_other(python_server, threads):
    def ask(x):
        protocol = (HTTP, GRPC)[x % 2]
        with protocol.connect(python_server) as client:
            return [ask_through(client, protocol, "waiter", "async_exec", [x]) for _ in range(5)]

    answers = [threads.submit(ask, x) for x in range(16)]
    assert [answer.result(PATIENCE) for answer in answers] == [[[2 * x] * 3] * 5 for x in range(16)]


def test_the_load_generator_counts_what_comes_before_an_error(python_server, tmp_path):
    file = tmp_path / "input.json"
    file.write_text(json.dumps({"data": [{"N": [3]}, {"N": [-2]}, {"N": [0]}]}))
    options = ["-m", "streamer", *where(python_server, "http"), "--streaming", "--input-data", file]
    report = perf_report(*options, "--warm-up", 0, "--request-count", 30, "--concurrency", 1)
    assert "Request count: 20\n" in report and "Responses: 50 (" in report
    assert "[ERROR] 10 times: " in report
