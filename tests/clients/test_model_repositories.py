"""Several repositories: models of one name, with and without namespaces."""

import shutil
from collections import Counter

import pytest
import repository as models
import requests
from adders import EXPLICIT, answer, index, refusal, repository_of, write_adder
from protocols import HTTP
from serving import PATIENCE, command, eventually, run_to_end

NOT_POLLED = "failed to load '{0}', failed to poll from model repository"
TWICE = "model appears in two or more repositories"


@pytest.fixture
def folder(tmp_path):
    """A repository of two models that add 1 and 2."""
    return repository_of(tmp_path, "a", "b")


@pytest.fixture
def other(tmp_path):
    """A second repository, which has a model `a`, too."""
    other = tmp_path / "other"
    other.mkdir()
    write_adder(other, "a", 10)
    return other


def test_a_model_in_two_repositories_is_not_loaded(start, folder, other, protocol):
    server = start(folder, f"--model-repository={other}", EXPLICIT)
    with protocol.connect(server) as client:
        code, text = refusal(client.load_model, "a")
        assert code == protocol.status("INTERNAL") and text.startswith(NOT_POLLED.format("a")), text
        assert "\"failed to poll model 'a': not unique across all model repositories\"" in server.log()
        shutil.rmtree(other / "a")
        client.load_model("a")
        assert answer(protocol, client, "a") == 1


def test_the_index_explains_a_model_in_two_repositories(start, folder, other, protocol):
    with protocol.connect(start(folder, f"--model-repository={other}", EXPLICIT)) as client:
        assert index(protocol, client)["a"] == [(None, "UNAVAILABLE", TWICE)]


def test_a_model_in_two_repositories_ends_a_server_that_loads_all(folder, other):
    ended = run_to_end(*command(folder, f"--model-repository={other}")[1:])
    assert ended.returncode == 1
    assert "error: creating server: Internal - failed to load all models" in ended.stderr
    assert "failed to poll model 'a': not unique across all model repositories" in ended.stderr


def test_a_model_in_two_repositories_may_be_left_out(start, folder, other, protocol):
    server = start(folder, f"--model-repository={other}", "--exit-on-error=false")
    with protocol.connect(server) as client:
        assert index(protocol, client)["a"] == [(None, "UNAVAILABLE", TWICE)]
        assert answer(protocol, client, "b") == 2
        text = f"Request for unknown model: 'a' is not found: {TWICE}"
        assert refusal(answer, protocol, client, "a") == (protocol.status("NOT_FOUND"), text)


@pytest.fixture
def namespaces(start, folder, other):
    return start(folder, f"--model-repository={other}", "--model-namespacing=true", EXPLICIT)


def test_namespaces_keep_models_of_one_name_apart(namespaces, other, protocol):
    with protocol.connect(namespaces) as client:
        client.load_model("b")
        assert answer(protocol, client, "b") == 2
        client.load_model("a")
        assert index(protocol, client)["a"] == [("1", "READY", None)] * 2
        text = (
            "There are 2 identifiers of model 'a' in global map, model namespace must be provided to resolve ambiguity."
        )
        assert refusal(answer, protocol, client, "a") == (protocol.status("INVALID_ARGUMENT"), text)
        assert f"\"successfully loaded '{other}::a' version 1\"" in namespaces.log()
        client.unload_model("a")
        unloaded = [("1", "UNAVAILABLE", "unloaded")] * 2
        eventually(lambda: index(protocol, client)["a"] == unloaded, "both models to be unloaded")


def test_a_name_that_no_namespace_has_is_not_found(namespaces, protocol):
    with protocol.connect(namespaces) as client:
        expected = protocol.status("NOT_FOUND"), "Request for unknown model: 'nope' is not found"
        assert refusal(answer, protocol, client, "nope") == expected


def test_an_unloaded_name_is_not_found(namespaces, protocol):
    with protocol.connect(namespaces) as client:
        client.load_model("a")
        client.unload_model("a")
        expected = protocol.status("NOT_FOUND"), "Identifier of model 'a' is not found in global map"
        assert refusal(answer, protocol, client, "a") == expected


def test_a_failed_load_names_the_namespace(namespaces, folder, protocol):
    models.broken(folder)
    with protocol.connect(namespaces) as client:
        _, text = refusal(client.load_model, "broken")
        assert text.startswith(f"load failed for model '{folder}::broken': version 1 is at UNAVAILABLE state: "), text


def test_metrics_of_namespaces_are_different_series(namespaces):
    with HTTP.connect(namespaces) as client:
        client.load_model("a")
    lines = requests.get(namespaces.metrics, timeout=PATIENCE).text.splitlines()
    series = Counter(line.rpartition(" ")[0] for line in lines if not line.startswith("#"))
    assert [name for name, count in series.items() if count > 1] == []


def test_the_index_tells_namespaces(namespaces, folder, other):
    with HTTP.connect(namespaces) as client:
        lines = client.get_model_repository_index()
    assert {line.get("namespace") for line in lines if line["name"] == "a"} == {str(folder), str(other)}
