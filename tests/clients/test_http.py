"""What only HTTP has: tensors as JSON, and bodies that no library would send."""

import contextlib
import gzip
import http.client
import json
import queue
import zlib

import numpy as np
import pytest
import requests
from held import held_inputs, occupy
from protocols import HTTP, add_sub_inputs, canceled, pending
from repository import DATATYPES
from serving import PATIENCE, eventually, reset
from test_infer import values
from tritonclient.utils import InferenceServerException

IN_JSON = [datatype for datatype in DATATYPES if datatype not in ("FP16", "BF16")]


def json_identity(http, array, datatype):
    tensor = HTTP.library.InferInput("INPUT", list(array.shape), datatype)
    tensor.set_data_from_numpy(array, binary_data=False)
    wanted = [HTTP.output("OUTPUT", binary_data=False)]
    return http.infer(f"identity_{datatype.lower()}", [tensor], outputs=wanted)


@pytest.mark.parametrize("datatype", IN_JSON)
def test_every_datatype_that_json_can_carry_comes_back_as_it_was_sent(http, datatype):
    sent = values(datatype)
    if datatype == "BYTES":
        sent = np.array(['text with "quotes"', "", "größer\n"], dtype=object)
    result = json_identity(http, sent, datatype)
    assert "data" in result.get_output("OUTPUT")
    received = result.as_numpy("OUTPUT")
    if datatype == "BYTES":
        assert [text if isinstance(text, str) else text.decode() for text in received] == list(sent)
    else:
        np.testing.assert_array_equal(received, sent)


@pytest.mark.parametrize("datatype", ["FP16", "BF16"])
def test_halves_cannot_be_answered_in_json(http, datatype):
    tensor = HTTP.input("INPUT", values(datatype), datatype)
    with pytest.raises(InferenceServerException) as refusal:
        http.infer(f"identity_{datatype.lower()}", [tensor], outputs=[HTTP.output("OUTPUT", binary_data=False)])
    assert f"sending {datatype} data via JSON is not supported" in refusal.value.message()
    assert refusal.value.status() == "400"


def test_what_is_no_number_and_infinity_are_bare_words_in_json(server):
    body = '{"inputs": [{"name": "INPUT", "datatype": "FP32", "shape": [3], "data": [NaN, Infinity, -Infinity]}]}'
    answer = requests.post(f"http://{server.http}/v2/models/identity_fp32/infer", body, timeout=60)
    assert answer.status_code == 200
    data = json.loads(answer.text)["outputs"][0]["data"]
    np.testing.assert_array_equal(data, [np.nan, np.inf, -np.inf])


def test_one_output_may_be_binary_and_another_json(http):
    inputs, first = add_sub_inputs(HTTP)
    wanted = [HTTP.output("OUTPUT0", binary_data=True), HTTP.output("OUTPUT1", binary_data=False)]
    result = http.infer("add_sub", inputs, outputs=wanted)
    assert "data" not in result.get_output("OUTPUT0") and "data" in result.get_output("OUTPUT1")
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), first + 1000)
    np.testing.assert_array_equal(result.as_numpy("OUTPUT1"), first - 1000)


def body(inputs):
    """What the library would send, and its headers."""
    content, json_length = HTTP.library.InferenceServerClient.generate_request_body(inputs)
    return content, {"Inference-Header-Content-Length": str(json_length)} if json_length else {}


def post(server, model, content, headers):
    return requests.post(f"http://{server.http}/v2/models/{model}/infer", content, headers=headers, timeout=60)


@pytest.mark.parametrize("algorithm, decompress", [("gzip", gzip.decompress), ("deflate", zlib.decompress)])
def test_a_compressed_response_says_so(server, algorithm, decompress):
    content, headers = body([HTTP.input("INPUT", np.zeros((256, 256), np.float32))])
    headers["Accept-Encoding"] = algorithm
    with requests.post(
        f"http://{server.http}/v2/models/matrix/infer", content, headers=headers, stream=True, timeout=60
    ) as answer:
        assert answer.headers["Content-Encoding"] == algorithm
        raw = answer.raw.read(decode_content=False)
    assert len(raw) == int(answer.headers["Content-Length"]) < 10_000
    whole = decompress(raw)
    assert len(whole) == int(answer.headers["Inference-Header-Content-Length"]) + 256 * 256 * 4


def test_an_unknown_compression_is_refused_with_those_that_are_known(server):
    content, headers = body(add_sub_inputs(HTTP)[0])
    answer = post(server, "add_sub", content, headers | {"Content-Encoding": "br"})
    assert (answer.status_code, answer.json()) == (501, {"error": "Unsupported compression type"})
    assert answer.headers["Accept-Encoding"] == "gzip, deflate"


# What is changed in a good binary body, and the answer's text.
BAD_BODIES = {
    "four bytes too few": (lambda content: content[:-4], "unexpected size for input 'INPUT1', expecting 4 additional"),
    "four bytes too many": (lambda content: content + b"1234", "unexpected additional input data for model 'add_sub'"),
}


@pytest.mark.parametrize("what", BAD_BODIES)
def test_a_body_of_the_wrong_length_is_refused(server, what):
    change, text = BAD_BODIES[what]
    content, headers = body(add_sub_inputs(HTTP)[0])
    answer = post(server, "add_sub", change(content), headers)
    assert answer.status_code == 400
    assert text in answer.json()["error"]


# Status and text for the whole body of an inference request.
NOT_A_REQUEST = {
    "hello": (500, "failed to parse the request JSON buffer: Invalid value. at 0"),
    "{}": (500, "Unable to parse 'inputs': attempt to access non-existing object member 'inputs'"),
    '{"inputs":[{"name":"INPUT0","datatype":"FOO","shape":[1],"data":[1]}]}': (
        400,
        "invalid datatype for input INPUT0: 'FOO' is not a datatype, datatypes are BOOL, UINT8, UINT16, UINT32, UINT64, INT8,"
        " INT16, INT32, INT64, FP16, FP32, FP64, BYTES, BF16",
    ),
    "": (
        400,
        "[request id: <id_unknown>] Raw request must only have 1 input (found 1) to be deduced but got 2 inputs in 'add_sub'"
        " model configuration. The request has no data",
    ),
    '{"inputs":[{"name":"INPUT","datatype":"INT32","shape":[1,16],"data":[1,2]}]}': (
        500,
        "Unable to parse 'data': Shape does not match true shape of 'data' field: input 'INPUT' of shape [1,16] needs 16 values, 2 are"
        " given. Model 'add_sub' has no input 'INPUT', did you mean 'INPUT0'?",
    ),
}


@pytest.mark.parametrize("content", NOT_A_REQUEST)
def test_what_is_no_request_is_refused_and_the_connection_goes_on(server, content):
    status, text = NOT_A_REQUEST[content]
    with requests.Session() as session:
        answer = session.post(f"http://{server.http}/v2/models/add_sub/infer", content, timeout=60)
        assert (answer.status_code, answer.json()) == (status, {"error": text})
        assert session.get(f"http://{server.http}/v2/health/live", timeout=60).status_code == 200


def test_an_unknown_path_and_a_wrong_method_are_refused(server):
    assert requests.get(f"http://{server.http}/v2/nothing", timeout=60).json() == {"error": "Not Found"}
    answer = requests.post(f"http://{server.http}/v2/health/live", timeout=60)
    assert (answer.status_code, answer.json()) == (405, {"error": "Method Not Allowed"})


def test_names_in_the_path_are_decoded(server):
    answer = requests.get(f"http://{server.http}/v2/models/add%5Fsub", timeout=60)
    assert (answer.status_code, answer.json()["name"]) == (200, "add_sub")


def test_a_request_whose_client_has_gone_leaves_the_queue(server, gate, grpc):
    before = canceled(server, "held_impatient")
    answers = queue.Queue()
    hold = occupy(gate, grpc, "held_impatient", answers)
    content, json_length = HTTP.library.InferenceServerClient.generate_request_body(held_inputs(HTTP))
    headers = {"Inference-Header-Content-Length": str(json_length)}
    with contextlib.closing(http.client.HTTPConnection(server.http, timeout=PATIENCE)) as impatient:
        impatient.request("POST", "/v2/models/held_impatient/infer", content, headers)
        eventually(lambda: pending(server, "held_impatient") == 1, "the request to wait")
        reset(impatient)
    eventually(lambda: canceled(server, "held_impatient") == before + 1, "the request to be counted as canceled")
    hold.release()
    assert answers.get(timeout=PATIENCE)[1] is None


def test_an_execution_that_is_unexpectedly_long_delays_no_other_client(server, gate, grpc):
    content, json_length = HTTP.library.InferenceServerClient.generate_request_body(held_inputs(HTTP))
    headers = {"Inference-Header-Content-Length": str(json_length)}
    with requests.Session() as session:
        # Brief executions run on network threads.
        for _ in range(200):
            url = f"http://{server.http}/v2/models/held/infer"
            assert session.post(url, content, headers=headers, timeout=PATIENCE).status_code == 200
    answers = queue.Queue()
    hold = occupy(gate, grpc, "held", answers)
    for _ in range(20):
        # A new connection each time.
        assert requests.get(f"http://{server.http}/v2/health/live", timeout=PATIENCE).status_code == 200
        assert grpc.is_server_live(client_timeout=PATIENCE)
    hold.release()
    assert answers.get(timeout=PATIENCE)[1] is None
