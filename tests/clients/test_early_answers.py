"""Uploads that are refused before they are there: every client reads the answer. And clients that send nothing more."""

import contextlib
import http.client
import queue
import socket

import pytest
import requests
from clients_of_others import UNKNOWN_PATH, UPLOADERS_IN_PYTHON, is_refusal
from held import held_inputs, occupy
from protocols import HTTP, pending
from serving import PATIENCE, eventually

TIMES = 10
# From a body that the server reads to its end, to one that no socket holds.
SIZES = [100_000, 1_000_000, 5_000_000, 30_000_000]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("client", UPLOADERS_IN_PYTHON)
def test_a_client_reads_each_refusal(server, client, size):
    answers = list(UPLOADERS_IN_PYTHON[client](f"http://{server.http}{UNKNOWN_PATH}", bytes(size), TIMES))
    assert len(answers) == TIMES and all(is_refusal(*answer) for answer in answers), answers


@pytest.mark.parametrize("size", SIZES)
def test_http_client_reads_each_refusal_of_chunks(server, size):
    upload = bytes(size)
    with contextlib.closing(http.client.HTTPConnection(server.http, timeout=PATIENCE)) as connection:
        for _ in range(TIMES):
            pieces = (upload[start : start + 50_000] for start in range(0, len(upload), 50_000))
            connection.request("POST", UNKNOWN_PATH, pieces, encode_chunked=True, headers={"Transfer-Encoding": "chunked"})
            answer = connection.getresponse()
            assert is_refusal(answer.status, answer.read())


def test_a_connection_stays_after_a_short_upload_and_ends_after_a_long_one(server):
    with contextlib.closing(http.client.HTTPConnection(server.http, timeout=PATIENCE)) as connection:
        for size, word in ((SIZES[0], None), (SIZES[-1], "close")):
            connection.request("POST", UNKNOWN_PATH, bytes(size))
            answer = connection.getresponse()
            assert (answer.status, answer.getheader("Connection")) == (404, word)
            answer.read()


def test_a_client_that_sends_nothing_more_gets_its_answer(server, gate, grpc):
    """As `nc -N` and `socat` do."""
    answers = queue.Queue()
    hold = occupy(gate, grpc, "held_impatient", answers)
    content, json_length = HTTP.library.InferenceServerClient.generate_request_body(held_inputs(HTTP))
    head = "POST /v2/models/held_impatient/infer HTTP/1.1\r\nHost: x\r\n"
    head += f"Inference-Header-Content-Length: {json_length}\r\nContent-Length: {len(content)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.http_port), timeout=PATIENCE) as client:
        client.sendall(head.encode() + content)
        eventually(lambda: pending(server, "held_impatient") == 1, "the request to wait")
        client.shutdown(socket.SHUT_WR)
        # The server has read the end of what this client sends when it has answered others.
        for _ in range(20):
            assert requests.get(f"http://{server.http}/v2/health/live", timeout=PATIENCE).status_code == 200
        hold.release()
        answer = b"".join(iter(lambda: client.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n"), answer
    assert answers.get(timeout=PATIENCE)[1] is None
