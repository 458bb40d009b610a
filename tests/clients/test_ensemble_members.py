"""Ensembles and their members: who is loaded with whom, what a change of a member does, and what unloads members.

The members add a number each, so the answer of an ensemble tells which copies of which members have computed it.
"""

import re
import shutil

import ensembles
import onnx
import pytest
import repository as models
from adders import EXPLICIT, READY, adds, answer, index, is_unloaded, loads, refusal, write_adder
from callers import Callers
from ensembles import NO_BATCHES, step
from repository import tensor
from serving import eventually

TENSORS = NO_BATCHES + tensor("input", "X", "FP32", 1) + tensor("output", "Y", "FP32", 1)
UNAVAILABLE = [("1", "UNAVAILABLE", "unloaded")]


def write_chain(repository, name, *members, version=-1, more=""):
    """An ensemble that adds what its members add."""
    tensors = ["X", *(f"after_{number}" for number in range(1, len(members))), "Y"]
    steps = [step(member, {"X": tensors[number]}, {"Y": tensors[number + 1]}, version) for number, member in enumerate(members)]
    ensembles.write(repository, name, TENSORS, *steps, more=more)


@pytest.fixture
def folder(tmp_path):
    """A repository: `e` adds 1 with `a` and 20 with `b`; `outer` adds 300 with `c` to that."""
    folder = tmp_path / "models"
    folder.mkdir()
    for name, number in {"a": 1, "b": 20, "c": 300}.items():
        write_adder(folder, name, number)
    write_chain(folder, "e", "a", "b")
    write_chain(folder, "outer", "e", "c")
    return folder


@pytest.fixture
def explicit(start, folder):
    return start(folder, EXPLICIT)


@pytest.fixture
def client(protocol, explicit):
    with protocol.connect(explicit) as client:
        yield client


@pytest.fixture
def gives(protocol, client):
    return lambda name: answer(protocol, client, name)


@pytest.fixture
def becomes(protocol, client):
    """Waits until a model adds a number."""
    return lambda name, number: eventually(lambda: adds(protocol, client, name, number), f"{name} to add {number}")


@pytest.fixture
def is_gone(protocol, client):
    """Waits until a model is unloaded."""
    return lambda name: eventually(lambda: is_unloaded(protocol, client, name), f"{name} to be unloaded")


@pytest.fixture
def ready(protocol, client):
    """The names of the models that serve."""
    return lambda: {name for name, lines in index(protocol, client).items() if lines == READY}


# ---- Loading ----


def test_loading_an_ensemble_loads_its_members(client, explicit, ready, gives):
    client.load_model("e")
    assert ready() == {"a", "b", "e"} and gives("e") == 21
    assert [loads(explicit, name) for name in "ab"] == [1, 1]


def test_loading_an_ensemble_of_ensembles_loads_all_members(client, ready, gives):
    client.load_model("outer")
    assert ready() == {"a", "b", "c", "e", "outer"} and gives("outer") == 321


def test_members_that_serve_and_have_not_changed_are_not_loaded_again(client, explicit, gives):
    client.load_model("a")
    client.load_model("e")
    client.load_model("outer")
    assert gives("outer") == 321
    assert [loads(explicit, name) for name in "abc"] == [1, 1, 1]


def test_a_member_of_two_ensembles_is_loaded_once(client, explicit, folder, gives):
    write_chain(folder, "two", "e", "a")
    client.load_model("two")
    assert gives("two") == 22 and loads(explicit, "a") == 1


def test_loading_an_ensemble_loads_members_that_have_changed(client, folder, explicit, gives):
    client.load_model("e")
    write_adder(folder, "b", 50)
    client.load_model("e")
    assert gives("e") == 51
    assert [loads(explicit, name) for name in "ab"] == [1, 2]


def test_an_explicit_server_starts_with_an_ensemble_and_its_members(protocol, start, folder):
    with protocol.connect(start(folder, EXPLICIT, "--load-model=e")) as client:
        assert answer(protocol, client, "e") == 21
        assert index(protocol, client)["c"] == [(None, None, None)]


def test_an_ensemble_may_want_one_version_of_a_member(protocol, client, folder, gives):
    write_adder(folder, "many", 1000, 1, "version_policy { all {} }\n")
    write_adder(folder, "many", 2000, 2, "version_policy { all {} }\n")
    write_chain(folder, "old", "many", version=1)
    write_chain(folder, "latest", "many")
    client.load_model("old")
    client.load_model("latest")
    assert (gives("old"), gives("latest")) == (1000, 2000)


def test_a_missing_member_is_told(protocol, client, folder):
    shutil.rmtree(folder / "b")
    text = "load failed for model 'e': ensemble e contains models that are not available or ambiguous: b\n"
    code, told = refusal(client.load_model, "e")
    assert code == protocol.status("INVALID_ARGUMENT") and told == text
    assert not client.is_model_ready("e")


def test_a_member_that_cannot_be_loaded_is_told_with_its_reason(protocol, client, folder):
    (folder / "b/1/model.onnx").write_bytes(b"this is no model")
    code, text = refusal(client.load_model, "e")
    start = "load failed for model 'e': ensemble 'e' depends on 'b' which has no loaded version. "
    start += "Model 'b' loading failed with error: version 1 is at UNAVAILABLE state: "
    assert code == protocol.status("INVALID_ARGUMENT") and text.startswith(start), text
    assert index(protocol, client)["a"] == READY


def test_a_member_of_a_member_that_is_missing_is_told(client, folder):
    shutil.rmtree(folder / "b")
    why = "ensemble e contains models that are not available or ambiguous: b"
    _, text = refusal(client.load_model, "outer")
    assert text == (
        f"load failed for model 'outer': ensemble 'outer' depends on 'e' which is not valid. Model 'e' failed with error: {why}\n"
    )


@pytest.mark.parametrize("first", ["e", "outer"])
def test_a_circle_of_ensembles_is_told(protocol, client, folder, first):
    write_chain(folder, "e", "a", "outer")
    code, text = refusal(client.load_model, first)
    assert code == protocol.status("INVALID_ARGUMENT")
    assert re.search(
        r"circular dependency between ensembles: (e -> \.\.\. -> outer -> e|outer -> \.\.\. -> e -> outer)", text
    ), text
    assert index(protocol, client)["c"] in (READY, [(None, None, None)])


def test_an_ensemble_that_failed_is_loaded_when_its_member_is_repaired(client, folder, gives):
    shutil.rmtree(folder / "b")
    refusal(client.load_model, "e")
    write_adder(folder, "b", 70)
    client.load_model("e")
    assert gives("e") == 71


def test_an_ensemble_that_failed_serves_as_soon_as_its_member_does(client, folder, becomes):
    (folder / "b/1/model.onnx").write_bytes(b"this is no model")
    refusal(client.load_model, "outer")
    write_adder(folder, "b", 70)
    client.load_model("b")
    becomes("e", 71)
    becomes("outer", 371)


# ---- Members that change ----


def test_unloading_a_member_makes_its_ensembles_unavailable(protocol, client, is_gone, gives):
    client.load_model("outer")
    client.unload_model("b")
    for name in ("b", "e", "outer"):
        is_gone(name)
    assert (gives("a"), gives("c")) == (1, 300)
    text = "Request for unknown model: 'e' has no available versions"
    assert refusal(answer, protocol, client, "e") == (protocol.status("NOT_FOUND"), text)
    assert client.is_server_ready()


def test_loading_a_member_again_brings_its_ensembles_back(client, is_gone, becomes):
    client.load_model("outer")
    client.unload_model("b")
    is_gone("outer")
    client.load_model("b")
    becomes("e", 21)
    becomes("outer", 321)


def test_an_ensemble_that_was_unloaded_itself_stays_unloaded(protocol, client, is_gone):
    client.load_model("e")
    client.unload_model("e")
    is_gone("e")
    client.unload_model("b")
    is_gone("b")
    client.load_model("b")
    assert index(protocol, client)["e"] == UNAVAILABLE


def test_a_reloaded_member_computes_for_its_ensembles(client, folder, gives):
    client.load_model("outer")
    write_adder(folder, "a", 5)
    client.load_model("a")
    assert (gives("e"), gives("outer")) == (25, 325)


def test_a_member_that_cannot_be_reloaded_goes_on_computing(client, folder, gives):
    client.load_model("e")
    (folder / "a/1/model.onnx").write_bytes(b"this is no model")
    refusal(client.load_model, "a")
    assert (gives("a"), gives("e")) == (1, 21)


def write_matrix(folder, name):
    """Replaces a member by one whose tensors have another shape."""
    config = (folder / name / "config.pbtxt").read_text()
    (folder / name / "config.pbtxt").write_text(config.replace("dims: [1]", "dims: [2]"))
    text = "adder (float[2] X) => (float[2] Y) { Y = Add(X, X) }"
    onnx.save(models.graph(text), folder / name / "1/model.onnx")


def test_a_reloaded_member_that_no_longer_fits_takes_its_ensembles_out_of_service(protocol, client, explicit, folder, becomes):
    client.load_model("outer")
    write_matrix(folder, "b")
    client.load_model("b")
    eventually(lambda: not client.is_model_ready("e") and not client.is_model_ready("outer"), "the ensembles to go")
    assert client.is_model_ready("b") and client.is_model_ready("a")
    # The table of models changes before the line is written.
    line = re.compile(r"in ensemble e, ensemble tensor \w+: inconsistent shape: \[\d\] is inferred from")
    eventually(lambda: line.search(explicit.log()), "the reason in the log")
    write_adder(folder, "b", 90)
    client.load_model("b")
    becomes("e", 91)
    becomes("outer", 391)


def test_a_new_version_of_a_member_is_used(client, folder, gives):
    client.load_model("e")
    write_adder(folder, "b", 40, version=2)
    client.load_model("b")
    assert gives("e") == 41


def test_an_ensemble_whose_version_of_a_member_goes_is_unavailable(client, folder, explicit):
    write_chain(folder, "pinned", "b", version=1)
    client.load_model("pinned")
    write_adder(folder, "b", 40, version=2)
    client.load_model("b")
    eventually(lambda: not client.is_model_ready("pinned"), "the ensemble to go")
    explicit.wait_for_log("ensemble 'pinned' depends on 'b' whose required version 1 is not loaded.")


def test_a_changed_ensemble_is_loaded_with_its_new_members(client, folder, gives):
    client.load_model("e")
    write_chain(folder, "e", "a", "b", "c")
    client.load_model("e")
    assert gives("e") == 321


def test_a_changed_ensemble_that_cannot_be_loaded_goes_on_serving(protocol, client, folder):
    client.load_model("e")
    (folder / "e/config.pbtxt").write_text("nonsense: 1")
    refusal(client.load_model, "e")
    assert answer(protocol, client, "e") == 21


def test_requests_are_answered_while_members_are_reloaded(protocol, client, explicit, folder, threads):
    client.load_model("outer")
    seen = set()

    def prepare(protocol, client):
        return lambda: seen.add(answer(protocol, client, "outer"))

    with Callers(explicit, threads, prepare, count=4) as callers:
        callers.wait_for_answers()
        for number in (2, 3, 4):
            write_adder(folder, "a", number)
            client.load_model("a")
            callers.wait_for_answers()
    assert seen == {321, 322, 323, 324}


# ---- Unloading with members ----


def test_unloading_an_ensemble_keeps_its_members(client, is_gone, ready):
    client.load_model("e")
    client.unload_model("e")
    is_gone("e")
    assert ready() == {"a", "b"}


def test_unloading_an_ensemble_with_its_members(client, is_gone, ready):
    client.load_model("outer")
    client.unload_model("outer", unload_dependents=True)
    for name in ("outer", "e", "a", "b", "c"):
        is_gone(name)
    assert not ready()


def test_members_that_were_loaded_by_name_are_kept(client, is_gone, ready):
    client.load_model("b")
    client.load_model("e")
    client.unload_model("e", unload_dependents=True)
    is_gone("e")
    is_gone("a")
    assert ready() == {"b"}


def test_a_member_that_served_already_when_it_was_loaded_by_name_is_not_kept(client, is_gone, ready):
    client.load_model("e")
    client.load_model("b")
    client.unload_model("e", unload_dependents=True)
    is_gone("e")
    is_gone("a")
    is_gone("b")
    assert not ready()


def test_members_of_other_ensembles_are_kept(client, folder, is_gone, ready, gives):
    write_chain(folder, "other", "b", "c")
    client.load_model("e")
    client.load_model("other")
    client.unload_model("e", unload_dependents=True)
    is_gone("e")
    is_gone("a")
    assert ready() == {"b", "c", "other"} and gives("other") == 320


def test_a_member_that_is_an_ensemble_and_was_loaded_by_name_keeps_its_members(client, is_gone, ready, gives):
    client.load_model("e")
    client.load_model("outer")
    client.unload_model("outer", unload_dependents=True)
    is_gone("outer")
    is_gone("c")
    assert ready() == {"a", "b", "e"} and gives("e") == 21


def test_unloading_a_member_with_its_members_does_not_unload_the_others(client, is_gone, ready):
    client.load_model("outer")
    client.unload_model("e", unload_dependents=True)
    for name in ("outer", "e", "a", "b"):
        is_gone(name)
    assert ready() == {"c"}


def test_an_ensemble_is_loaded_again_with_members_that_were_unloaded_with_it(client, is_gone, gives):
    client.load_model("e")
    client.unload_model("e", unload_dependents=True)
    is_gone("a")
    client.load_model("e")
    assert gives("e") == 21


# ---- Repositories that are polled ----


@pytest.fixture
def polling(start, folder):
    return start(folder, "--model-control-mode=poll", "--repository-poll-secs=1")


@pytest.fixture
def watcher(protocol, polling):
    with protocol.connect(polling) as client:
        yield client


def test_a_server_starts_with_all_ensembles_and_their_members(protocol, watcher):
    assert answer(protocol, watcher, "outer") == 321
    assert set(index(protocol, watcher)) == {"a", "b", "c", "e", "outer"}


def test_a_member_that_is_deleted_takes_its_ensembles_along_until_it_is_back(protocol, watcher, folder):
    shutil.rmtree(folder / "b")
    eventually(lambda: not watcher.is_model_ready("e") and not watcher.is_model_ready("outer"), "the ensembles to go")
    write_adder(folder, "b", 60)
    eventually(lambda: adds(protocol, watcher, "outer", 361), "the ensembles to come back")


def test_an_ensemble_and_members_that_are_added_together_come_into_service(protocol, watcher, folder):
    write_chain(folder, "late", "early", "a")
    write_adder(folder, "early", 7000)
    eventually(lambda: adds(protocol, watcher, "late", 7001), "the new ensemble")


def test_a_changed_member_computes_for_its_ensembles(protocol, watcher, folder):
    write_adder(folder, "c", 500)
    eventually(lambda: adds(protocol, watcher, "outer", 521), "the changed member")


def test_an_ensemble_is_deleted_with_all_of_its_members(protocol, watcher, folder):
    for name in ("outer", "e", "a", "b"):
        shutil.rmtree(folder / name)
    eventually(lambda: set(index(protocol, watcher)) == {"c"}, "the ensembles to be forgotten")
    eventually(watcher.is_server_ready, "readiness")
    assert answer(protocol, watcher, "c") == 300
