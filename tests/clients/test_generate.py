"""Generate: plain JSON in, plain JSON or server-sent events out, as any HTTP library sees it."""

import contextlib
import http.client
import json
import queue

import pytest
from held import occupy
from protocols import canceled, pending
from serving import PATIENCE, eventually, reset


class Generator:
    """A connection whose answers can be compared as a whole."""

    def __init__(self, server, timeout=PATIENCE):
        self.connection = http.client.HTTPConnection(server.http, timeout=timeout)

    def ask(self, model, request, path="generate", **headers):
        body = request if isinstance(request, str) else json.dumps(request)
        self.connection.request("POST", f"/v2/models/{model}/{path}", body, headers)
        return self.connection.getresponse()

    def generate(self, model, request, **headers):
        """Status and object of an answer."""
        answer = self.ask(model, request, **headers)
        assert answer.headers["Content-Type"] == "application/json"
        return answer.status, json.loads(answer.read())

    def stream(self, model, request):
        """Status and objects of the events of an answer."""
        answer = self.ask(model, request, "generate_stream")
        assert answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        *events, rest = answer.read().decode().split("\n\n")
        assert rest == "" and all(event.startswith("data: ") for event in events)
        return answer.status, [json.loads(event.removeprefix("data: ")) for event in events]


@pytest.fixture
def generator(server):
    generator = Generator(server)
    with contextlib.closing(generator.connection):
        yield generator


def said(model, **members):
    return {"model_name": model, "model_version": "1", **members}


def error(status, text):
    return status, {"error": text}


def test_a_text_comes_back_as_a_text_and_texts_as_texts(generator):
    texts = ["größer", "", 'with "quotes"\n']
    assert generator.generate("identity_bytes", {"INPUT": texts[0]}) == (
        200,
        said("identity_bytes", OUTPUT=texts[0]),
    )
    assert generator.generate("identity_bytes", {"INPUT": texts, "id": "7"}) == (
        200,
        said("identity_bytes", OUTPUT=texts, id="7"),
    )
    assert generator.generate("identity_bytes", {"INPUT": []}) == (200, said("identity_bytes", OUTPUT=[]))


@pytest.mark.parametrize(
    "model, values",
    [
        ("identity_bool", [True, False]),
        ("identity_int64", [-(2**63), 2**63 - 1]),
        ("identity_uint64", [0, 2**64 - 1]),
        ("identity_fp32", [0.1, -1.5]),
        ("identity_fp64", [0.1, 1e300]),
    ],
)
def test_numbers_come_back_as_they_were_sent(generator, model, values):
    for value in (values, values[0]):
        assert generator.generate(model, {"INPUT": value}) == (200, said(model, OUTPUT=value))


def test_an_answer_is_chunked(generator):
    answer = generator.ask("identity_int32", {"INPUT": 1})
    assert answer.headers["Transfer-Encoding"] == "chunked" and "Content-Length" not in answer.headers
    answer.read()


def test_a_stream_is_the_same_answer_as_an_event(generator):
    assert generator.stream("identity_bytes", {"INPUT": "hi"}) == (200, [said("identity_bytes", OUTPUT="hi")])


def test_a_flat_array_is_spread_over_the_dimensions_and_a_nested_one_defines_them(generator):
    row = list(range(16))
    request = {"INPUT0": row * 2, "INPUT1": [1] * 32}
    total = [value + 1 for value in row]
    for first in (row * 2, [row, row]):
        status, answer = generator.generate("add_sub", request | {"INPUT0": first})
        assert (status, answer["OUTPUT0"]) == (200, total * 2)
    assert generator.generate("add_sub", request | {"INPUT0": row[:15]}) == error(
        400, "The schema can not convert input 'INPUT0' to tensor with proper shape"
    )
    status, answer = generator.generate("matrix", {"INPUT": [[1, 2, 3], [4, 5, 6]]})
    assert (status, answer["OUTPUT"]) == (200, [1, 2, 3, 4, 5, 6])
    status, answer = generator.generate("matrix", {"INPUT": [[1, 2, 3], [4, 5]]})
    assert status == 400 and "its arrays differ in length or depth" in answer["error"]


def test_inputs_may_stand_in_the_parameters(generator):
    request = {"parameters": {"INPUT": "hi", "temperature": 0.5}, "max_tokens": 5}
    assert generator.generate("identity_bytes", request) == (200, said("identity_bytes", OUTPUT="hi"))


def test_large_arrays_are_inputs_like_others(generator):
    values = list(range(200_000))
    status, answer = generator.generate("identity_int32", {"INPUT": values})
    assert (status, answer["OUTPUT"]) == (200, values)


def test_what_does_not_reach_the_model_is_refused_as_json_on_both_endpoints(generator):
    for path in ("generate", "generate_stream"):
        for model, request, status, text in [
            ("none", {}, 404, "Request for unknown model: 'none' is not found"),
            (
                "identity_bytes",
                "{",
                500,
                "failed to parse the request JSON buffer: Missing a name for object member. at 1",
            ),
            (
                "identity_bytes",
                {"INPUT": 1},
                500,
                "Unable to parse JSON bytes array: attempt to access JSON non-string as string: input 'INPUT' has a number"
                " of another kind at [0], where BYTES is needed",
            ),
            (
                "identity_bytes",
                {"inptu": "x"},
                400,
                "[request id: <id_unknown>] expected 1 inputs but got 0 inputs for model 'identity_bytes'. Got input(s) [], but"
                " missing required input(s) ['INPUT']. Please provide all required input(s). The parameter 'inptu' is no input"
                " of the model, did you mean 'INPUT'?",
            ),
            ("identity_byte", {}, 404, "Request for unknown model: 'identity_byte' is not found, did you mean 'identity_bytes'?"),
            (
                "identity_fp16",
                {"INPUT": 1},
                400,
                "receiving FP16 data via JSON is not supported. Please use the binary data format for input INPUT",
            ),
        ]:
            answer = generator.ask(model, request, path)
            assert (answer.status, answer.headers["Content-Type"]) == (status, "application/json")
            assert json.loads(answer.read()) == {"error": text}
    headers = {"Content-Encoding": "gzip"}
    assert generator.generate("identity_bytes", "{}", **headers) == error(
        400, "Unsupported content-encoding, only 'identity' is supported."
    )


def test_an_error_of_the_model_has_its_status_on_both_endpoints(generator):
    status, answer = generator.generate("picky", {"INDEX": 7})
    assert status == 500 and "idx=7" in answer["error"]
    status, events = generator.stream("picky", {"INDEX": [7]})
    assert (status, events) == (500, [answer])


def test_a_timeout_in_the_request_is_that_of_the_queue(gate, grpc, generator):
    answers = queue.Queue()
    hold = occupy(gate, grpc, "held_impatient", answers)
    request = {"INPUT0": 1.5, "HOLD": 0, "timeout": 1000}
    assert generator.generate("held_impatient", request) == error(503, "Request timeout expired")
    assert generator.stream("held_impatient", request)[0] == 503
    hold.release()
    assert answers.get(timeout=PATIENCE)[1] is None


def test_a_sequence_goes_on_where_its_last_request_ended(generator):
    def step(value, **flags):
        status, answer = generator.generate("accumulate_direct", {"X": value, "sequence_id": 77, **flags})
        return status, answer.get("SUM", answer)

    assert step(1, sequence_start=True) == (200, 1)
    assert step(2) == (200, 3)
    assert step(3, sequence_end=True) == (200, 6)
    status, answer = step(4)
    assert status == 400 and "must specify the START flag" in answer["error"]


@pytest.mark.parametrize("path", ["generate", "generate_stream"])
def test_a_request_whose_client_has_gone_leaves_the_queue(server, gate, grpc, path):
    before = canceled(server, "held_impatient")
    answers = queue.Queue()
    hold = occupy(gate, grpc, "held_impatient", answers)
    with contextlib.closing(Generator(server).connection) as impatient:
        impatient.request("POST", f"/v2/models/held_impatient/{path}", json.dumps({"INPUT0": 1.5, "HOLD": 0}))
        eventually(lambda: pending(server, "held_impatient") == 1, "the request to wait")
        reset(impatient)
    eventually(lambda: canceled(server, "held_impatient") == before + 1, "the request to be counted as canceled")
    hold.release()
    assert answers.get(timeout=PATIENCE)[1] is None
