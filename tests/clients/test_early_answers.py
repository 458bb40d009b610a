"""Uploads that are refused before they are there: every client reads the answer. And clients that send nothing more."""

import asyncio
import contextlib
import http.client
import json
import queue
import socket

import aiohttp
import numpy as np
import pytest
import requests
import tritonclient.http.aio
import urllib3
from held import held_inputs, occupy
from protocols import HTTP, pending
from serving import PATIENCE, eventually
from tritonclient.utils import InferenceServerException

MODEL = "no_such_model"
PATH = f"/v2/models/{MODEL}/infer"
TEXT = f"Request for unknown model: '{MODEL}' is not found"
TIMES = 10
# From a body that the server reads to its end, to one that no socket holds.
SIZES = [100_000, 1_000_000, 5_000_000, 30_000_000]


@pytest.fixture(params=SIZES)
def upload(request):
    return bytes(request.param)


def assert_refused(status, text):
    assert (status, json.loads(text)["error"]) == (404, TEXT)


def test_requests_reads_each_refusal(server, upload):
    with requests.Session() as session:
        for _ in range(TIMES):
            answer = session.post(f"http://{server.http}{PATH}", upload, timeout=PATIENCE)
            assert_refused(answer.status_code, answer.text)


def test_urllib3_reads_each_refusal(server, upload):
    with urllib3.PoolManager() as pool:
        for _ in range(TIMES):
            answer = pool.request("POST", f"http://{server.http}{PATH}", body=upload, retries=False)
            assert_refused(answer.status, answer.data)


def test_http_client_reads_each_refusal(server, upload):
    with contextlib.closing(http.client.HTTPConnection(server.http, timeout=PATIENCE)) as connection:
        for _ in range(TIMES):
            connection.request("POST", PATH, upload)
            answer = connection.getresponse()
            assert_refused(answer.status, answer.read())


def test_http_client_reads_each_refusal_of_chunks(server, upload):
    with contextlib.closing(http.client.HTTPConnection(server.http, timeout=PATIENCE)) as connection:
        for _ in range(TIMES):
            pieces = (upload[start : start + 50_000] for start in range(0, len(upload), 50_000))
            connection.request("POST", PATH, pieces, encode_chunked=True, headers={"Transfer-Encoding": "chunked"})
            answer = connection.getresponse()
            assert_refused(answer.status, answer.read())


def test_aiohttp_reads_each_refusal(server, upload):
    async def ask():
        async with aiohttp.ClientSession() as session:
            for _ in range(TIMES):
                async with session.post(f"http://{server.http}{PATH}", data=upload) as answer:
                    assert_refused(answer.status, await answer.text())

    asyncio.run(ask())


def tensor(upload):
    return [HTTP.input("INPUT", np.frombuffer(upload, np.uint8))]


def test_the_client_of_triton_reads_each_refusal(server, upload):
    with HTTP.connect(server) as client:
        for _ in range(TIMES):
            with pytest.raises(InferenceServerException) as refusal:
                client.infer(MODEL, tensor(upload))
            assert (refusal.value.status(), refusal.value.message()) == ("404", TEXT)


def test_the_asynchronous_client_of_triton_reads_each_refusal(server, upload):
    async def ask():
        async with tritonclient.http.aio.InferenceServerClient(server.http) as client:
            for _ in range(TIMES):
                with pytest.raises(InferenceServerException) as refusal:
                    await client.infer(MODEL, tensor(upload))
                assert refusal.value.message() == TEXT

    asyncio.run(ask())


def test_a_connection_stays_after_a_short_upload_and_ends_after_a_long_one(server):
    with contextlib.closing(http.client.HTTPConnection(server.http, timeout=PATIENCE)) as connection:
        for size, word in ((SIZES[0], None), (SIZES[-1], "close")):
            connection.request("POST", PATH, bytes(size))
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
