"""Who has an answer finds it counted: in statistics, in metrics and in the response cache, at once and over other connections."""

import json
import re
import socket

import numpy as np
import pytest
import repository as models
from protocols import HTTP
from repository import tensor
from serving import PATIENCE, size

REQUESTS = size(500, 1_000_000)
# How often the longer answers are read, too.
SELDOM = 100


class RawConnection:
    """A connection over HTTP/1.1 that takes little time: what it sends is ready, and of an answer it reads the body."""

    def __init__(self, server):
        self.socket = socket.create_connection(("127.0.0.1", server), timeout=PATIENCE)
        self.received = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def ask(self, request):
        self.socket.sendall(request)
        while b"\r\n\r\n" not in self.received:
            self.receive()
        head, _, self.received = self.received.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 "), head
        length = int(re.search(rb"(?i)\r\ncontent-length: (\d+)", head)[1])
        while len(self.received) < length:
            self.receive()
        body, self.received = self.received[:length], self.received[length:]
        return body

    def receive(self):
        received = self.socket.recv(1 << 16)
        assert received, "the server has closed the connection"
        self.received += received


def get(path):
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


def inference(model, number):
    """A request for a model whose only element is a number."""
    inputs = [HTTP.input("INPUT", np.array([number], np.float32))]
    content, json_length = HTTP.library.InferenceServerClient.generate_request_body(inputs)
    head = f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: {json_length}\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


def value(metrics, name, model):
    """The value of a series of version 1."""
    return float(re.search(rf'^{name}{{model="{model}",version="1"}} (\S+)$', metrics.decode(), re.MULTILINE)[1])


@pytest.fixture
def server(start, tmp_path):
    folder = tmp_path / "models"
    models.identity(folder, "FP32")
    graph = models.graph("cached (float[n] INPUT) => (float[n] OUTPUT) { OUTPUT = Identity(INPUT) }")
    tensors = tensor("input", "INPUT", "FP32", -1) + tensor("output", "OUTPUT", "FP32", -1)
    models.write(folder, "cached", graph, "max_batch_size: 0\nresponse_cache { enable: true }\n" + tensors)
    return start(folder, "--cache-config=local,size=1048576").wait_until_ready()


@pytest.mark.timeout(size(120, 3600))
def test_an_answer_is_counted_before_its_client_has_it(server):
    http, metrics_port = server.http_port, int(re.search(r":(\d+)/", server.metrics)[1])
    request, statistics = inference("identity_fp32", 1), get("/v2/models/identity_fp32/stats")
    with RawConnection(http) as asking, RawConnection(http) as looking, RawConnection(metrics_port) as scraping:
        for number in range(1, REQUESTS + 1):
            asking.ask(request)
            (seen,) = json.loads(looking.ask(statistics))["model_stats"]
            counts = seen["inference_count"], seen["execution_count"], seen["inference_stats"]["success"]["count"]
            assert counts == (number, number, number)
            if number % SELDOM == 0:
                page = scraping.ask(get("/metrics"))
                assert value(page, "nv_inference_request_success", "identity_fp32") == number
                assert value(page, "nv_inference_count", "identity_fp32") == number


@pytest.mark.timeout(size(120, 3600))
def test_an_answer_is_in_the_cache_before_its_client_has_it(server):
    with RawConnection(server.http_port) as first, RawConnection(server.http_port) as second:
        for number in range(1, REQUESTS // 2 + 1):
            request = inference("cached", number)
            assert first.ask(request)[-4:] == second.ask(request)[-4:]
            (seen,) = json.loads(second.ask(get("/v2/models/cached/stats")))["model_stats"]
            of_cache = seen["inference_stats"]["cache_hit"]["count"], seen["inference_stats"]["cache_miss"]["count"]
            assert of_cache == (number, number)
