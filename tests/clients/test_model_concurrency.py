"""Requests that meet a reload or an unload: clients that ask all the time, and requests that are sent slowly."""

import json
import socket

import pytest
from adders import EXPLICIT, answer, write_adder
from callers import Callers
from protocols import HTTP
from serving import PATIENCE


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    return folder


def growing(protocol, client):
    """Each answer must be one that the model may give by then: nobody meets an older copy again."""
    latest = 0

    def ask():
        nonlocal latest
        told = answer(protocol, client, "a")
        assert told >= latest, (told, latest)
        latest = told

    return ask


@pytest.mark.parametrize("by", ["files", "versions"])
def test_no_request_fails_while_a_model_is_reloaded(start, folder, threads, by):
    """The model is replaced, or its versions are; each caller sees the numbers grow."""
    write_adder(folder, "a", 1)
    server = start(folder, EXPLICIT, "--load-model=a")
    with HTTP.connect(server) as client, Callers(server, threads, growing) as callers:
        for number in range(2, 22):
            callers.wait_for_answers()
            write_adder(folder, "a", number, version=1 if by == "files" else number)
            client.load_model("a")
            assert answer(HTTP, client, "a") == number
    print(dict(callers.answers))


class SlowRequest:
    """A request for the model `a` whose header the server has read and whose body is still to come."""

    def __init__(self, server):
        tensor = {"name": "X", "datatype": "FP32", "shape": [1], "data": [0]}
        self.body = json.dumps({"inputs": [tensor]}).encode()
        self.connection = socket.create_connection(("127.0.0.1", server.http_port), timeout=PATIENCE)
        head = f"Host: localhost\r\nExpect: 100-continue\r\nConnection: close\r\nContent-Length: {len(self.body)}"
        self.connection.sendall(f"POST /v2/models/a/infer HTTP/1.1\r\n{head}\r\n\r\n".encode())
        told = self.connection.recv(1024)
        assert told.startswith(b"HTTP/1.1 100 "), told

    def finish(self):
        """Sends the body. Returns the status and what was answered: a number, or the text of an error."""
        with self.connection, self.connection.makefile("rb") as answer:
            self.connection.sendall(self.body)
            head, _, body = answer.read().partition(b"\r\n\r\n")
        told = json.loads(body)
        return int(head.split()[1]), told.get("error") or told["outputs"][0]["data"][0]


@pytest.fixture
def slow(start, folder):
    """A server with a model that adds 1, a client, and a request whose body is still to come."""
    write_adder(folder, "a", 1)
    server = start(folder, EXPLICIT, "--load-model=a")
    with HTTP.connect(server) as client:
        yield client, SlowRequest(server)


def test_a_request_that_is_sent_during_reloads_is_answered(slow, folder):
    client, request = slow
    for number in (2, 3, 4):
        write_adder(folder, "a", number)
        client.load_model("a")
    status, told = request.finish()
    assert status == 200 and told in {1, 2, 3, 4}, told


def test_a_request_that_is_sent_while_the_default_version_changes_is_answered(slow, folder):
    client, request = slow
    write_adder(folder, "a", 2, version=2)
    client.load_model("a")
    status, told = request.finish()
    assert status == 200 and told in {1, 2}, told


def test_a_request_that_is_sent_while_the_model_is_unloaded_and_loaded_is_answered(slow):
    client, request = slow
    client.unload_model("a")
    client.load_model("a")
    assert request.finish() == (200, 1)


def test_a_request_that_is_sent_while_the_model_is_unloaded_is_answered_or_has_the_text_of_such_models(slow):
    client, request = slow
    client.unload_model("a")
    # The old copy may still take a request for a moment after the unload.
    refused = (404, "Request for unknown model: 'a' has no available versions")
    assert request.finish() in [refused, (200, 1)]
