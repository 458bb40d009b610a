"""A client that sends what costs a server most memory, again and again, until it is ended.

Usage: worst_inputs.py KIND PROTOCOL HTTP_PORT GRPC_PORT. PROTOCOL is http or grpc. Prints a line when it has sent its share
once. KIND is one of:

unknown      an infer request of 100 MiB (JSON: 60) for a model that does not exist
numbers      four infer requests of 60 MiB of numbers that are as short as numbers can be
shapes       four infer requests whose shape has millions of dimensions
ids          1,000 requests with ids of 60 KiB to a model that does not exist, whose refusals nobody reads. They stay
tiny_inputs  four infer requests with as many inputs as fit into 16 MiB
resting      250 connections with a body of 1 MiB, of which the last byte does not come. They stay
schemas      gRPC: 1,000 calls of the reflection service whose message announces 4 MiB and has 100 bytes. HTTP: as many
             requests that announce 64 MiB. They stay
settings     four administrative requests of 60 MiB
names        200 shared-memory regions with names of 1 MiB
heads        HTTP: 250 connections with a head of 60 KiB that is not complete. gRPC: with header blocks. They stay
answers      24 answers of 16 MiB, over HTTP as text, which nobody reads. They stay
ranked       four answers that are all classes of four rows of a million floats, best first
refused      HTTP only: 200 uploads of 5 MiB at once for a model that does not exist, whose refusals are read
endless      HTTP only: 200 uploads that are refused and never end

The client rests for half a second between two rounds, and prepares all that it can: the server's work is measured. It
runs at the lowest priority, so that it takes little processor time from the other clients.
"""

import contextlib
import json
import os
import selectors
import socket
import sys
import threading
import time

import grpc
import numpy as np
from adversaries import frame, only_once, repeat
from tritonclient.grpc import service_pb2

MIB = 1 << 20
AT_ONCE, STAYING, UPLOADS = 4, 250, 200
SERVICE = "/inference.GRPCInferenceService/"
REFLECTION = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"


class Ports:
    def __init__(self, http_port, grpc_port):
        self.http, self.grpc = http_port, grpc_port

    def connect(self, port):
        return socket.create_connection(("127.0.0.1", port))

    def channel(self):
        return grpc.insecure_channel(f"127.0.0.1:{self.grpc}", options=[("grpc.use_local_subchannel_pool", 1)])


def varint(value):
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(0x80 | value & 0x7F)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def field(number, content):
    """A field of a message with this content, as gRPC writes it."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def post(path, body, more=b""):
    return b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%s\r\n" % (path.encode(), len(body), more) + body


def infer_path(model):
    return f"/v2/models/{model}/infer"


def at_once(count, one):
    """Does something several times at the same time, and waits for the last."""
    threads = [threading.Thread(target=one, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def answered(ports, request):
    """Sends a request over HTTP and reads the status of its answer, and the rest."""

    def one():
        with ports.connect(ports.http) as connection, contextlib.suppress(OSError):
            connection.sendall(request)
            status = connection.recv(12)
            assert status[9:12] in (b"200", b"400", b"404", b"500", b"501", b"503"), status
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(MIB):
                pass

    return one


def called(ports, method, message):
    """Sends a message over gRPC and waits for its answer."""
    channels = [ports.channel() for _ in range(AT_ONCE)]

    def one():
        channel = channels.pop()
        with contextlib.suppress(grpc.RpcError):
            channel.unary_unary(SERVICE + method)(message)
        channels.append(channel)

    return one


def connect_as(index, port):
    """One address may have only a quarter of the connections."""
    return socket.create_connection(("127.0.0.1", port), None, (f"127.0.1.{1 + index % 8}", 0))


def staying(ports, port, texts):
    """Connections that send these bytes and stay."""

    def first():
        connections = []
        for index, text in enumerate(texts):
            connection = connect_as(index, port)
            connection.settimeout(5)
            # The server may take less than it is sent.
            with contextlib.suppress(OSError):
                connection.sendall(text)
            connections.append(connection)
        return connections

    return only_once(first)


def infer_message(model, datatype, shape, contents):
    dims = b"".join(map(varint, shape))
    tensor = field(1, b"INPUT0") + field(2, datatype) + field(3, dims) + field(5, contents)
    return field(1, model) + field(5, tensor)


def infer_text(datatype, shape, data):
    head = b'{"inputs":[{"name":"INPUT0","datatype":"%s","shape":[%s],"data":[' % (datatype, shape)
    return head + data + b"]}]}"


def post_bytes(model, shape, values, **asked):
    """An infer request with an input in bytes. `asked` are the parameters of the output."""
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": shape, "parameters": {"binary_data_size": len(values)}}
    head = json.dumps({"inputs": [tensor], "outputs": [{"name": "OUTPUT0", "parameters": asked}]}).encode()
    more = b"Inference-Header-Content-Length: %d\r\n" % len(head)
    return post(infer_path(model), head + values, more)


def short_numbers(size):
    return b"1," * (size // 2) + b"1"


def unknown(protocol, ports):
    if protocol == "http":
        numbers = short_numbers(60 * MIB)
        request = post(infer_path("none"), infer_text(b"INT64", b"%d" % (30 * MIB + 1), numbers))
        return answered(ports, request)
    # Packed integers of one byte each.
    message = infer_message(b"none", b"INT64", [100 * MIB], field(3, b"\x01" * (100 * MIB)))
    return called(ports, "ModelInfer", message)


def numbers(protocol, ports):
    if protocol == "http":
        request = post(infer_path("tiny"), infer_text(b"FP32", b"%d" % (30 * MIB + 1), short_numbers(60 * MIB)))
        one = answered(ports, request)
    else:
        one = called(ports, "ModelInfer", infer_message(b"tiny", b"INT64", [60 * MIB], field(3, b"\x01" * (60 * MIB))))
    return lambda: at_once(AT_ONCE, one)


def shapes(protocol, ports):
    if protocol == "http":
        one = answered(ports, post(infer_path("tiny"), infer_text(b"FP32", short_numbers(16 * MIB), b"1")))
    else:
        dims = field(3, b"\x01" * (16 * MIB))
        tensor = field(1, b"INPUT0") + field(2, b"FP32") + dims
        one = called(ports, "ModelInfer", field(1, b"tiny") + field(5, tensor))
    return lambda: at_once(AT_ONCE, one)


def ids(protocol, ports):
    name = b"i" * 60_000
    if protocol == "http":
        text = post(infer_path("none"), b'{"id":"%s","inputs":[]}' % name)
        return staying(ports, ports.http, [text * 20] * 50)
    message = field(1, b"none") + field(3, name)
    channel = ports.channel()
    over = threading.Event()

    def messages():
        for _ in range(1000):
            yield message
        over.wait()

    def first():
        call = channel.stream_stream(SERVICE + "ModelStreamInfer")(messages())
        next(call)
        return call

    return only_once(first)


def tiny_inputs(protocol, ports):
    if protocol == "http":
        inputs = b",".join([b'{"name":"A","shape":[],"datatype":"BOOL","data":[]}'] * (16 * MIB // 52))
        one = answered(ports, post(infer_path("tiny"), b'{"inputs":[%s]}' % inputs))
    else:
        one = called(ports, "ModelInfer", field(1, b"tiny") + field(5, b"") * (8 * MIB))
    return lambda: at_once(AT_ONCE, one)


def literal(name, value):
    """A header field without an index."""
    length = bytes([len(value)]) if len(value) < 127 else b"\x7f" + varint(len(value) - 127)
    return b"\x00" + bytes([len(name)]) + name + length + value


def call_head(path):
    """The header fields of a call. The first two are of the static table: POST and http."""
    fields = [(b":path", path.encode()), (b"content-type", b"application/grpc"), (b"te", b"trailers")]
    return b"\x83\x86" + b"".join(literal(*pair) for pair in fields)


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"")


def resting(protocol, ports):
    body = bytes(MIB - 1)
    if protocol == "http":
        head = b"POST /v2/models/tiny/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % MIB
        return staying(ports, ports.http, [head + body] * STAYING)
    # As much as the first windows permit.
    message = b"\x00" + MIB.to_bytes(4, "big") + body
    text = PREFACE + frame(1, 4, 1, call_head(SERVICE + "ModelInfer"))
    for start in range(0, 64 << 10, 16 << 10):
        text += frame(0, 0, 1, message[start : start + (16 << 10) - 1])
    return staying(ports, ports.grpc, [text] * STAYING)


def schemas(protocol, ports):
    if protocol == "http":
        head = b"POST /v2/models/tiny/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (64 * MIB)
        return staying(ports, ports.http, [head + bytes(100)] * 1000)
    text = PREFACE
    for stream in range(1, 20, 2):
        text += frame(1, 4, stream, call_head(REFLECTION))
        text += frame(0, 0, stream, b"\x00" + (4 * MIB).to_bytes(4, "big") + bytes(100))
    return staying(ports, ports.grpc, [text] * 100)


def settings(protocol, ports):
    if protocol == "http":
        one = answered(ports, post("/v2/logging", b'{"x":[%s]}' % short_numbers(60 * MIB)))
    else:
        one = called(ports, "LogSettings", field(1, b"") * (30 * MIB))
    return lambda: at_once(AT_ONCE, one)


def names(protocol, ports):
    long = "n" * MIB
    if protocol == "http":
        body = b'{"key":"%s","offset":0,"byte_size":1}' % long.encode()
        one = answered(ports, post("/v2/systemsharedmemory/region/r/register", body))
    else:
        message = service_pb2.SystemSharedMemoryRegisterRequest(name=long, key="/k", byte_size=1)
        one = called(ports, "SystemSharedMemoryRegister", message.SerializeToString())
    return lambda: [at_once(AT_ONCE, one) for _ in range(50)]


def heads(protocol, ports):
    if protocol == "http":
        head = b"GET /v2 HTTP/1.1\r\n" + b"".join(b"x%d: %s\r\n" % (index, b"y" * 1000) for index in range(60))
        return staying(ports, ports.http, [head] * STAYING)
    fields = call_head(SERVICE + "ModelInfer")
    fields += b"".join(literal(b"x%d" % index, b"y" * 1000) for index in range(14))
    # The block never ends.
    return staying(ports, ports.grpc, [PREFACE + frame(1, 0, 1, fields)] * STAYING)


def answers(protocol, ports):
    values = np.random.default_rng(1).random(4 * MIB, np.float32)
    if protocol == "http":
        request = post_bytes("large16", [values.size], values.tobytes())
        return staying(ports, ports.http, [request] * 24)
    tensor = field(1, b"INPUT0") + field(2, b"FP32") + field(3, varint(values.size))
    message = field(1, b"large16") + field(5, tensor) + field(7, values.tobytes())

    def first():
        calls = []
        for _ in range(24):
            over = threading.Event()

            def messages(over=over):
                yield message
                over.wait()

            # Nobody asks for its answers.
            calls.append(ports.channel().stream_stream(SERVICE + "ModelStreamInfer")(messages()))
            time.sleep(0.05)
        return calls

    return only_once(first)


def ranked(protocol, ports):
    shape = [4, 1_000_000]
    values = np.random.default_rng(1).random(shape, np.float32).tobytes()
    if protocol == "http":
        one = answered(ports, post_bytes("rows", shape, values, classification=1_000_000))
    else:
        message = service_pb2.ModelInferRequest(model_name="rows")
        message.inputs.add(name="INPUT0", datatype="FP32", shape=shape)
        message.outputs.add(name="OUTPUT0").parameters["classification"].int64_param = 1_000_000
        message.raw_input_contents.append(values)
        one = called(ports, "ModelInfer", message.SerializeToString())
    return lambda: at_once(AT_ONCE, one)


def refused(_, ports):
    one = answered(ports, post(infer_path("none"), bytes(5 * MIB)))
    return lambda: at_once(UPLOADS, one)


def endless(_, ports):
    head = b"POST /v2/models/none/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (1 << 40)
    piece = bytes(64 << 10)
    uploads = selectors.DefaultSelector()

    def begin(index):
        connection = connect_as(index, ports.http)
        connection.sendall(head)
        connection.setblocking(False)
        uploads.register(connection, selectors.EVENT_WRITE, index)

    def send():
        while True:
            for key, _ in uploads.select():
                try:
                    key.fileobj.send(piece)
                except OSError:
                    uploads.unregister(key.fileobj)
                    key.fileobj.close()
                    begin(key.data)

    def first():
        for index in range(UPLOADS):
            begin(index)
        threading.Thread(target=send, daemon=True).start()
        return uploads

    return only_once(first)


KINDS = (unknown, numbers, shapes, ids, tiny_inputs, resting, schemas, settings, names, heads, answers, ranked, refused, endless)


def main():
    os.nice(19)
    kinds = {kind.__name__: kind for kind in KINDS}
    once = kinds[sys.argv[1]](sys.argv[2], Ports(*map(int, sys.argv[3:5])))
    repeat(once)


main()
