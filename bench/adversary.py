"""A client that takes more than its share, again and again, until it is ended.

Usage: adversary.py KIND HTTP_PORT GRPC_PORT. Prints a line when it has taken its share once. KIND is one of:

cancelled  16,000 requests on one gRPC stream, to a model whose queue waits for more, and then the stream is given up
stopped    four event streams of 200,000 responses that nobody reads
repeated   four JSON requests of 330 KB whose input has its data 33,000 times
bombs      four bodies of 256 KB that unfold to 256 MiB, over HTTP: messages over gRPC are unfolded by the same code

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
import time

import grpc
import numpy as np
from tritonclient.grpc import InferInput, service_pb2

REST = 0.5
QUEUED, RESPONSES, AT_ONCE = 16_000, 200_000, 4
SERVICE = "/inference.GRPCInferenceService/"


def cancelled(_, grpc_port):
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


def drained(http_port, _):
    return event_streams(http_port, lambda stream: threading.Thread(target=drain, args=[stream], daemon=True).start())


def stopped(http_port, _):
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


def read(http_port, _):
    def once():
        answer = text_without_end(http_port).getresponse()
        threading.Thread(target=lambda: [None for _ in answer], daemon=True).start()

    return only_once(once)


def unread(http_port, _):
    connections = []
    return only_once(lambda: connections.append(text_without_end(http_port)))


def only_once(first):
    begun = []

    def once():
        if not begun:
            begun.append(first())

    return once


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


def repeated(http_port, _):
    data = '"data":[],' * 33_000
    body = '{"inputs":[{%s"name":"INPUT0","datatype":"FP32","shape":[1,16]}]}' % data

    def once():
        for thread in posts(http_port, body, {}, [400]):
            thread.join()

    return once


def bombs(http_port, _):
    bomb = gzip.compress(bytes(1 << 20)) * 256

    def once():
        for thread in posts(http_port, bomb, {"Content-Encoding": "gzip"}, [400, 503]):
            thread.join()

    return once


def main():
    os.nice(19)
    kinds = {kind.__name__: kind for kind in (cancelled, stopped, drained, repeated, bombs, read, unread)}
    once = kinds[sys.argv[1]](int(sys.argv[2]), int(sys.argv[3]))
    once()
    print("begun", flush=True)
    while True:
        time.sleep(REST)
        once()


main()
