"""Which models keep a server from being ready, and how it says so."""

import shutil

import pytest
import repository as models
import requests
from adders import EXPLICIT, answer, index, refusal, repository_of, write_adder
from protocols import HTTP
from serving import PATIENCE, eventually, run_to_end

STARTUP = "--strict-readiness-scope=startup"
TOLERANT = "--exit-on-error=false"


@pytest.fixture
def folder(tmp_path):
    """A repository of two models that add 1 and 2."""
    return repository_of(tmp_path, "a", "b")


def not_ready(server):
    """What a server says is missing; nothing if it is ready."""
    reply = requests.get(f"http://{server.http}/v2/health/ready", timeout=PATIENCE)
    if reply.status_code == 200:
        assert reply.text == ""
        return []
    body = reply.json()
    assert reply.status_code == 400 and body["error"] == "Server not ready", body
    return body["not_ready"]


def test_a_server_that_is_not_ready_names_the_models(start, folder, protocol):
    models.broken(folder)
    server = start(folder, EXPLICIT, "--load-model=a")
    with protocol.connect(server) as client:
        assert client.is_server_ready() and not_ready(server) == []
        refusal(client.load_model, "broken")
        assert not client.is_server_ready()
        assert not_ready(server) == [{"name": "broken", "version": "1", "state": "UNAVAILABLE"}]
        # Reasons may tell more than a probe should: they are in the index.
        assert "reason" not in not_ready(server)[0] and index(protocol, client)["broken"][0][2]


def test_a_model_that_has_failed_does_not_count_after_it_was_unloaded(start, folder, protocol):
    models.broken(folder)
    server = start(folder, EXPLICIT, "--load-model=a")
    with protocol.connect(server) as client:
        refusal(client.load_model, "broken")
        assert not client.is_server_ready()
        client.unload_model("broken")
        assert client.is_server_ready() and not_ready(server) == []


def test_a_server_that_is_not_ready_names_a_hundred_models(start, folder):
    for number in range(103):
        (folder / f"x{number:03}").mkdir()
        (folder / f"x{number:03}" / "config.pbtxt").write_text("nonsense")
    server = start(folder, TOLERANT)
    body = requests.get(f"http://{server.http}/v2/health/ready", timeout=PATIENCE).json()
    assert len(body["not_ready"]) == 100 and body["more"] == 3
    assert body["not_ready"][0] == {"name": "x000", "state": "UNAVAILABLE"}


def test_with_the_scope_startup_later_models_do_not_count(start, folder, protocol):
    models.broken(folder)
    server = start(folder, EXPLICIT, "--load-model=a", STARTUP)
    with protocol.connect(server) as client:
        refusal(client.load_model, "broken")
        assert client.is_server_ready() and not_ready(server) == []
        client.unload_model("a")
        assert client.is_server_ready()


def test_with_the_scope_startup_a_missing_model_counts_until_it_is_there(start, folder, protocol):
    server = start(folder, EXPLICIT, "--load-model=a", "--load-model=late", STARTUP, TOLERANT)
    with protocol.connect(server) as client:
        assert not client.is_server_ready() and not_ready(server) == [{"name": "late"}]
        write_adder(folder, "late", 5)
        client.load_model("late")
        assert client.is_server_ready() and answer(protocol, client, "late") == 5


def test_with_the_scope_startup_a_missing_model_counts_until_a_client_unloads_it(start, folder, protocol):
    server = start(folder, EXPLICIT, "--load-model=late", STARTUP, TOLERANT)
    with protocol.connect(server) as client:
        assert not client.is_server_ready()
        client.unload_model("late")
        assert client.is_server_ready()


def test_by_default_a_missing_model_does_not_count(start, folder, protocol):
    server = start(folder, EXPLICIT, "--load-model=late", TOLERANT)
    with protocol.connect(server) as client:
        assert client.is_server_ready()


def test_with_the_scope_startup_a_polled_model_counts_while_its_directory_is_there(start, folder):
    polled = ("--model-control-mode=poll", "--repository-poll-secs=1", "--repository-settle-ms=0")
    models.broken(folder)
    server = start(folder, *polled, STARTUP, TOLERANT)
    with HTTP.connect(server) as client:
        assert [missing["name"] for missing in not_ready(server)] == ["broken"]
        models.broken(folder, "later")
        eventually(lambda: "later" in index(HTTP, client), "the other broken model to be seen")
        assert [missing["name"] for missing in not_ready(server)] == ["broken"]
        shutil.rmtree(folder / "broken")
        eventually(lambda: not_ready(server) == [], "the deleted model to be forgotten")


def test_a_scope_that_does_not_exist_is_refused(folder):
    ended = run_to_end(f"--model-repository={folder}", "--strict-readiness-scope=some")
    assert ended.returncode == 1 and "invalid argument for --strict-readiness-scope" in ended.stderr
