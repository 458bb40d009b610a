"""Clients that others have made, directly and through proxies: they read every answer, and infer.

The short form refuses 2 to 5 uploads of each length, the full one (NEREID_TORTURE=full) 100.
"""

import contextlib
import functools
import json

import numpy as np
import plugins
import proxies
import pytest
import repository as models
import requests
from clients_of_others import INFERRERS, UNKNOWN_PATH, UPLOADERS, grpc_js, is_refusal
from protocols import GRPC, HTTP, add_sub_inputs
from python_backends import BUILT_IN
from serving import PATIENCE, Server, eventually, size
from test_api_keys import entry, write_keys

pytestmark = pytest.mark.others

# How many uploads there are of each length.
UPLOADS = {1_000_000: size(5, 100), 5_000_000: size(5, 100), 50_000_000: size(2, 100)}

SUMS = ",".join(str(1000 + index) for index in range(16))


@pytest.fixture(scope="module")
def own_server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("others")
    repository = folder / "models"
    repository.mkdir()
    models.add_sub(repository)
    plugins.python_model(repository, "streamer")
    with Server(folder, repository, variables=BUILT_IN.variables) as server:
        yield server.wait_until_ready()


PROXIES = {
    "directly": lambda _, server: contextlib.nullcontext(server),
    "nginx": proxies.nginx,
    "nginx-unbuffered": functools.partial(proxies.nginx, buffering="off"),
    "haproxy": proxies.haproxy,
}


@pytest.fixture(scope="module", params=PROXIES)
def place(request, own_server, tmp_path_factory):
    """The addresses at which clients reach the server: its own, or those of a proxy."""
    folder = tmp_path_factory.mktemp("proxy")
    with PROXIES[request.param](folder, own_server) as place:
        yield place


@pytest.mark.parametrize("length", UPLOADS)
@pytest.mark.parametrize("client", UPLOADERS)
def test_a_client_reads_each_refusal_of_an_upload(place, client, length):
    url = f"http://{place.http}{UNKNOWN_PATH}"
    # nginx that sends a request on while it comes says that the connection stays, and closes it if the answer comes first.
    count = UPLOADS[length]
    connections, times = (count, 1) if getattr(place, "closes", False) else (1, count)
    answers = [answer for _ in range(connections) for answer in UPLOADERS[client](url, bytes(length), times)]
    lost = [answer for answer in answers if not is_refusal(*answer)]
    assert not lost, f"{len(lost)} of {count}: {lost}"
    assert len(answers) == count


# Why a server refuses, with the options that make it: the path, and the status and a part of the text of each answer.
REASONS = {
    "key": (["--api-key-file=keys.json"], "/v2/models/add_sub/infer", 401, "this request needs an API key"),
    "length": (["--max-request-byte-size=100000"], "/v2/models/add_sub/infer", 400, "--max-request-byte-size"),
    "room": (["--max-inflight-bytes=100000"], "/v2/models/add_sub/infer", 503, "--max-inflight-bytes"),
    "route": ([], "/v2/no_such_route", 404, ""),
    "method": ([], "/v2/health/ready", 405, ""),
}


@pytest.fixture(params=REASONS)
def refusing(request, tmp_path, repository_folder, start):
    """A URL that refuses uploads, and what each answer has."""
    options, path, status, text = REASONS[request.param]
    write_keys(tmp_path / "keys.json", entry("user", ["*"], ["*"]), anonymous={"apis": ["health"], "models": []})
    server = start(repository_folder, *(option.replace("=keys", f"={tmp_path}/keys") for option in options))
    return f"http://{server.wait_until_ready().http}{path}", status, text


def test_clients_read_a_refusal_for_each_reason(refusing):
    url, status, text = refusing
    for client in ("http.client", "aiohttp", "axios", "fetch", "reqwest"):
        answers = list(UPLOADERS[client](url, bytes(5_000_000), UPLOADS[5_000_000]))
        lost = [answer for answer in answers if answer[0] != status or text not in answer[1]]
        assert not lost, f"{client}: {len(lost)} of {len(answers)}: {lost}"


@pytest.mark.parametrize("client", INFERRERS)
def test_a_client_infers_with_binary_tensors(place, client):
    assert INFERRERS[client](f"http://{place.http}").strip() == SUMS


def test_grpc_js_calls_and_streams(place):
    assert grpc_js(place.grpc) == [SUMS, "0", "1", "2"]


@pytest.mark.parametrize("protocol", [HTTP, GRPC], ids=lambda protocol: protocol.name)
def test_tritonclient_infers(place, protocol):
    with protocol.connect(place) as client:
        inputs, first = add_sub_inputs(protocol)
        np.testing.assert_array_equal(client.infer("add_sub", inputs).as_numpy("OUTPUT0"), first + 1000)


def test_events_come_while_the_model_sends_them_and_the_model_learns_that_the_client_has_gone(place, tmp_path):
    told = tmp_path / "told"
    url = f"http://{place.http}/v2/models/streamer/generate_stream"
    with requests.post(url, json={"N": 0, "TELL": str(told)}, stream=True, timeout=PATIENCE) as answer:
        events = (json.loads(line.removeprefix(b"data: ")) for line in answer.iter_lines() if line)
        assert [next(events)["OUT"] for _ in range(3)] == [0, 1, 2]
    eventually(told.exists, "the model to learn that its client has gone")
