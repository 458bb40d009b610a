"""Models that change while they are served: failed loads, configurations and files of clients, versions, and requests that
run meanwhile.
"""

import re
import shutil

import adders
import numpy as np
import pytest
import repository as models
from adders import EXPLICIT, READY, answer, index, loads, refusal, repository_of, write_adder
from held import held_inputs
from protocols import pending
from serving import PATIENCE, eventually

NOT_POLLED = "failed to load 'a', failed to poll from model repository"


@pytest.fixture
def folder(tmp_path):
    """A repository of the model `a`, which adds 1."""
    return repository_of(tmp_path, "a")


@pytest.fixture
def temporary(tmp_path):
    """The server's directory of temporary files."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    return temporary


@pytest.fixture
def explicit(start, folder, temporary, backend_option):
    return start(folder, EXPLICIT, "--load-model=a", backend_option, variables={"TMPDIR": str(temporary)})


@pytest.fixture
def client(protocol, explicit):
    with protocol.connect(explicit) as client:
        yield client


@pytest.fixture
def file(tmp_path):
    """The content of a model file that adds 100."""
    return adders.adder(100).SerializeToString()


def private_directories(temporary):
    return list(temporary.glob("nereid-model-*"))


BREAKS = {
    "configuration": ("config.pbtxt", "max_batch_size: many", "INTERNAL", f"{NOT_POLLED}: .*max_batch_size.*"),
    "file": (
        "1/model.onnx",
        "this is no model",
        "INVALID_ARGUMENT",
        r"load failed for model 'a': version 1 is at UNAVAILABLE state: .*onnx runtime error.*;\n",
    ),
}


@pytest.mark.parametrize("what", BREAKS)
def test_a_reload_that_fails_leaves_the_old_copy_in_service(protocol, explicit, client, folder, what):
    path, content, code, expected = BREAKS[what]
    (folder / "a" / path).write_text(content)
    for _ in range(2):
        status, text = refusal(client.load_model, "a")
        assert status == protocol.status(code) and re.fullmatch(expected, text, re.DOTALL), text
        assert answer(protocol, client, "a") == 1
        assert index(protocol, client)["a"] == READY
        assert client.is_model_ready("a") and client.is_server_ready()
    write_adder(folder, "a", 2)
    client.load_model("a")
    assert answer(protocol, client, "a") == 2


def test_a_model_whose_directory_is_gone_stays_in_service(protocol, client, folder):
    shutil.rmtree(folder / "a")
    status, text = refusal(client.load_model, "a")
    assert status == protocol.status("INTERNAL") and text.startswith(NOT_POLLED), text
    assert answer(protocol, client, "a") == 1
    client.unload_model("a")
    eventually(lambda: "a" not in index(protocol, client), "the model to be forgotten")


def test_a_given_configuration_stays_until_the_files_change(protocol, explicit, client, folder):
    given = adders.JSON_CONFIG.replace('"max_batch_size": 0', '"max_batch_size": 0, "version_policy": {"all": {}}')
    write_adder(folder, "a", 2, 2)
    client.load_model("a", config=given)
    both = [("1", "READY", None), ("2", "READY", None)]
    assert index(protocol, client)["a"] == both
    client.load_model("a")
    assert index(protocol, client)["a"] == both
    config = folder / "a" / "config.pbtxt"
    config.write_text(config.read_text() + "\n")
    client.load_model("a")
    eventually(lambda: adders.is_unloaded(protocol, client, "a"), "version 1 to be unloaded")
    assert answer(protocol, client, "a") == 2


def test_a_given_configuration_goes_with_the_model(protocol, client):
    given = adders.JSON_CONFIG.replace("{", '{"parameters": {"own": {"string_value": "x"}}, ', 1)
    client.load_model("a", config=given)
    assert "own" in parameters(protocol, client)
    client.unload_model("a")
    client.load_model("a")
    assert "own" not in parameters(protocol, client)


def parameters(protocol, client):
    config = protocol.json(client.get_model_config, "a")
    return config.get("config", config).get("parameters", {})


BAD_CONFIGS = {
    "another name": (
        adders.JSON_CONFIG.replace("{", '{"name": "other", ', 1),
        "unexpected directory name 'a' for model 'other', directory name must equal model name",
    ),
    "no JSON": ("{", r".*JSON.*"),
    "an unknown field": ('{"nonsense": 1}', ".*nonsense.*"),
}


@pytest.mark.parametrize("what", BAD_CONFIGS)
def test_a_bad_given_configuration_changes_nothing(protocol, explicit, client, what):
    config, reason = BAD_CONFIGS[what]
    status, text = refusal(client.load_model, "a", config=config)
    assert status == protocol.status("INTERNAL")
    assert re.fullmatch(f"{NOT_POLLED}: {reason}", text), text
    assert answer(protocol, client, "a") == 1 and index(protocol, client)["a"] == READY
    assert client.is_server_ready()


def test_each_reason_of_a_failure_is_logged(protocol, explicit, client):
    for config, _ in BAD_CONFIGS.values():
        refusal(client.load_model, "a", config=config)
    lines = re.findall(r'"Poll failed for model directory \'a\': (.*)"', explicit.log())
    assert len(lines) == len(BAD_CONFIGS)


def test_given_files_replace_a_model_until_the_next_load(protocol, client, temporary, file):
    client.load_model("a", config=adders.JSON_CONFIG, files={"file:1/model.onnx": file})
    assert answer(protocol, client, "a") == 100
    assert index(protocol, client)["a"] == READY
    assert len(private_directories(temporary)) == 1
    client.load_model("a")
    assert answer(protocol, client, "a") == 1
    eventually(lambda: not private_directories(temporary), "the given files to be removed")


def test_given_files_may_have_another_version(protocol, client, file):
    client.load_model("a", config=adders.JSON_CONFIG, files={"file:7/model.onnx": file})
    assert answer(protocol, client, "a") == answer(protocol, client, "a", "7") == 100
    code, text = refusal(answer, protocol, client, "a", "1")
    expected = "Request for unknown model: 'a' version 1 is not at ready state"
    assert (code, text) == (protocol.status("UNAVAILABLE"), expected)


def test_given_files_make_a_model_that_no_repository_has(protocol, client, temporary, file):
    client.load_model("given", config=adders.JSON_CONFIG, files={"file:1/model.onnx": file})
    assert answer(protocol, client, "given") == 100
    assert client.is_model_ready("given") and client.is_server_ready()
    assert index(protocol, client)["given"] == READY
    code, text = refusal(client.load_model, "given")
    assert code == protocol.status("INTERNAL")
    assert text.startswith("failed to load 'given', failed to poll from model repository"), text
    assert answer(protocol, client, "given") == 100
    client.unload_model("given")
    eventually(lambda: not private_directories(temporary), "the given files to be removed")


OUTSIDE = "Invalid file parameter '{}' with normalized path '.*' must stay within model directory\\."

# The configuration, the file and the reason.
BAD_FILES = {
    "no configuration": (None, "file:1/model.onnx", "Load parameter 'config' must be specified for model file override"),
    "a path above": (adders.JSON_CONFIG, "file:../x", OUTSIDE.format("file:../x")),
    "a longer path above": (adders.JSON_CONFIG, "file:1/../../x/y", OUTSIDE.format("file:1/../../x/y")),
    "the directory": (adders.JSON_CONFIG, "file:1/..", "Invalid file parameter 'file:1/..', .*"),
}


@pytest.mark.parametrize("what", BAD_FILES)
@pytest.mark.parametrize("name", ["a", "given"])
def test_bad_given_files_change_nothing(protocol, client, temporary, tmp_path, file, what, name):
    config, path, reason = BAD_FILES[what]
    status, text = refusal(client.load_model, name, config=config, files={path: file})
    assert status == protocol.status("INTERNAL")
    assert re.fullmatch(f"failed to load '{name}', failed to poll from model repository: {reason}", text), text
    assert answer(protocol, client, "a") == 1
    assert not private_directories(temporary) and not list(tmp_path.rglob("x"))


def test_a_path_that_leaves_the_directory_is_told_whole(protocol, client, file):
    path = "file:1/../../x/y"
    reason = f"Invalid file parameter '{path}' with normalized path '../x/y' must stay within model directory."
    _, text = refusal(client.load_model, "a", config=adders.JSON_CONFIG, files={path: file})
    assert text == f"{NOT_POLLED}: {reason}"


def test_an_absolute_path_of_a_given_file_begins_at_the_model(protocol, client, file):
    client.load_model("a", config=adders.JSON_CONFIG, files={"file:/1/model.onnx": file, "file:empty": b""})
    assert answer(protocol, client, "a") == 100


def test_failing_given_files_leave_the_old_copy_in_service(protocol, client, temporary):
    files = {"file:1/model.onnx": b"this is no model"}
    status, text = refusal(client.load_model, "a", config=adders.JSON_CONFIG, files=files)
    assert status == protocol.status("INVALID_ARGUMENT")
    assert text.startswith("load failed for model 'a': version 1 is at UNAVAILABLE state: "), text
    assert answer(protocol, client, "a") == 1 and index(protocol, client)["a"] == READY
    eventually(lambda: not private_directories(temporary), "the given files to be removed")


def version_states(protocol, client):
    return {version: state for version, state, _ in index(protocol, client)["a"]}


def test_versions_come_and_go_and_the_largest_is_the_default(protocol, explicit, client, folder):
    def reload():
        client.load_model("a")
        return answer(protocol, client, "a")

    write_adder(folder, "a", 2, 2, adders.ALL)
    assert reload() == 2 and answer(protocol, client, "a", "1") == 1
    write_adder(folder, "a", 10, 10, adders.ALL)
    assert reload() == 10 and answer(protocol, client, "a", "2") == 2
    assert version_states(protocol, client) == {"1": "READY", "2": "READY", "10": "READY"}
    shutil.rmtree(folder / "a" / "10")
    assert reload() == 2
    text = "Request for unknown model: 'a' version 10 is not "
    code, told = refusal(answer, protocol, client, "a", "10")
    assert (code, told) in {
        (protocol.status("UNAVAILABLE"), text + "at ready state"),
        (protocol.status("NOT_FOUND"), text + "found"),
    }
    eventually(lambda: "10" not in version_states(protocol, client), "version 10 to be forgotten")
    assert (protocol.status("NOT_FOUND"), text + "found") == refusal(answer, protocol, client, "a", "10")
    # The versions that stayed were never loaded again.
    assert loads(explicit, "a", 2) == 1


POLICIES = {
    "version_policy { latest { num_versions: 2 } }\n": {"2", "3"},
    "version_policy { all {} }\n": {"1", "2", "3"},
    "version_policy { specific { versions: [1, 9] } }\n": {"1"},
    "": {"3"},
}


def test_a_changed_policy_loads_and_unloads_versions(protocol, client, folder):
    for version in (2, 3):
        write_adder(folder, "a", version, version)
    for policy, expected in POLICIES.items():
        write_adder(folder, "a", 3, 3, policy)
        client.load_model("a")
        ready = {version for version, state in version_states(protocol, client).items() if state == "READY"}
        assert ready == expected, policy
        assert answer(protocol, client, "a") == int(max(expected))


def test_a_changed_policy_leaves_versions_that_stay_alone(protocol, explicit, client, folder):
    write_adder(folder, "a", 2, 2)
    client.load_model("a")
    config = folder / "a" / "config.pbtxt"
    config.write_text(config.read_text() + adders.ALL)
    client.load_model("a")
    assert version_states(protocol, client) == {"1": "READY", "2": "READY"}
    assert loads(explicit, "a", 2) == 1


def test_a_label_file_that_changes_is_read_again(protocol, client, folder):
    models.classifier(folder)
    client.load_model("classifier")
    assert top_label(protocol, client) in models.LABELS
    (folder / "classifier" / "labels.txt").write_text("one\ntwo\nthree\n")
    client.load_model("classifier")
    assert top_label(protocol, client) in {"one", "two", "three"}


def top_label(protocol, client):
    inputs = [protocol.input("FEATURES", np.ones((1, 4), np.float32))]
    output = protocol.output("PROBABILITIES", class_count=1)
    told = client.infer("classifier", inputs, outputs=[output]).as_numpy("PROBABILITIES")
    return told.item().decode().split(":")[2]


@pytest.fixture
def held(folder, gate, client):
    """A held model that is served."""
    gate.write(folder, "held", "max_batch_size: 1\ndynamic_batching {}\n")
    client.load_model("held")


def ask_held(protocol, server, hold, x):
    with protocol.connect(server) as client:
        return client.infer("held", held_inputs(protocol, hold, x)).as_numpy("OUTPUT0").item()


def test_an_unload_lets_accepted_requests_finish(protocol, explicit, client, held, threads, gate):
    hold = gate.hold()
    running = threads.submit(ask_held, protocol, explicit, hold, 0)
    hold.wait_until_running()
    waiting = [threads.submit(ask_held, protocol, explicit, hold, x) for x in range(1, 6)]
    eventually(lambda: pending(explicit, "held") == 5, "five waiting requests")

    client.unload_model("held")
    assert index(protocol, client)["held"] == [("1", "UNLOADING", None)]
    assert not client.is_model_ready("held")
    unknown = "Request for unknown model: 'held' "
    for version, code, text in [
        ("", "NOT_FOUND", "has no available versions"),
        ("1", "UNAVAILABLE", "version 1 is not at ready state"),
    ]:
        asked = refusal(client.infer, "held", held_inputs(protocol), model_version=version)
        assert asked == (protocol.status(code), unknown + text)
    assert not any(request.done() for request in [running, *waiting])

    hold.release()
    assert [request.result(PATIENCE) for request in [running, *waiting]] == list(range(6))
    eventually(lambda: adders.is_unloaded(protocol, client, "held"), "the model to be unloaded")


def test_a_model_that_is_being_unloaded_can_be_loaded_again(protocol, explicit, client, held, threads, gate):
    hold = gate.hold()
    running = threads.submit(ask_held, protocol, explicit, hold, 7)
    hold.wait_until_running()
    client.unload_model("held")
    client.load_model("held")
    assert index(protocol, client)["held"] == READY
    assert ask_held(protocol, explicit, None, 8) == 8
    assert not running.done()
    hold.release()
    assert running.result(PATIENCE) == 7


def test_a_reload_lets_accepted_requests_finish_on_the_old_copy(protocol, explicit, client, held, threads, gate, folder):
    hold = gate.hold()
    running = threads.submit(ask_held, protocol, explicit, hold, 0)
    hold.wait_until_running()
    waiting = [threads.submit(ask_held, protocol, explicit, hold, x) for x in range(1, 4)]
    eventually(lambda: pending(explicit, "held") == 3, "three waiting requests")
    config = folder / "held" / "config.pbtxt"
    config.write_text(config.read_text() + 'parameters { key: "new" value: { string_value: "yes" } }\n')
    client.load_model("held")
    assert index(protocol, client)["held"] == READY and client.is_server_ready()
    # The new copy answers although the old copy still runs.
    assert ask_held(protocol, explicit, None, 9) == 9
    assert not any(request.done() for request in [running, *waiting])
    hold.release()
    assert [request.result(PATIENCE) for request in [running, *waiting]] == list(range(4))


def test_a_version_that_is_deleted_answers_what_it_has_accepted(protocol, explicit, client, folder, threads, gate):
    gate.write(folder, "held", f"max_batch_size: 1\n{adders.ALL}")
    (folder / "held" / "2").mkdir()
    client.load_model("held")
    hold = gate.hold()
    running = threads.submit(ask_held, protocol, explicit, hold, 3)
    hold.wait_until_running()
    (folder / "held" / "2").rmdir()
    client.load_model("held")
    assert ("1", "READY", None) in index(protocol, client)["held"]
    # Version 1 serves now.
    assert ask_held(protocol, explicit, None, 4) == 4
    assert protocol.statistics(client, "held")["version"] == "1"
    assert not running.done()
    hold.release()
    assert running.result(PATIENCE) == 3


def instances(client, protocol, name):
    """The counts of the instance groups, as clients see them."""
    config = protocol.json(client.get_model_config, name)
    groups = config.get("config", config)["instance_group"]
    return [group["count"] for group in groups]


def test_instances_change_in_place(protocol, explicit, client, folder):
    for count in (3, 1, 2):
        write_adder(folder, "a", 1, config=f"instance_group {{ count: {count} kind: KIND_CPU }}\n")
        # The file of the version is new, so this is a reload.
        client.load_model("a")
        (folder / "a/config.pbtxt").write_text(
            adders.CONFIG + f"instance_group {{ count: {count + 1} kind: KIND_CPU }}\n"
        )
        client.load_model("a")
        assert instances(client, protocol, "a") == [count + 1]
        assert answer(protocol, client, "a") == 1
    assert explicit.log().count("\"updating the instances of 'a' version 1\"") == 3
    client.unload_model("a")
    client.load_model("a")
    assert answer(protocol, client, "a") == 1
