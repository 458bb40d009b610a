"""Models of a server that looks for changes of its repositories.

A change counts when two looks agree on it. A test that expects that nothing happens waits for some looks: the first look
at a hidden directory writes a line to the log.
"""

import itertools
import re
import shutil
import threading
import time
from datetime import datetime, timedelta

import numpy as np
import pytest
import repository as models
from adders import ALL, READY, adder, adds, answer, index, loads, refusal, repository_of, wait_for_looks, write_adder
from held import held_inputs
from protocols import HTTP, metric
from serving import PATIENCE, eventually, size

POLL = ("--model-control-mode=poll", "--repository-poll-secs=1", "--repository-settle-ms=100")


@pytest.fixture
def folder(tmp_path):
    """A repository of the model `a`, which adds 1."""
    return repository_of(tmp_path, "a")


@pytest.fixture
def second(tmp_path):
    """A second repository."""
    second = tmp_path / "second"
    second.mkdir()
    write_adder(second, "b", 2)
    return second


@pytest.fixture
def quiet(start, folder, second, backend_option):
    """A server that looks each second, or sooner after it has seen a change."""
    return start(folder, f"--model-repository={second}", *POLL, backend_option)


@pytest.fixture
def polling(quiet, second, threads):
    """The same, which looks more often: the model `b` changes all the time, and so never counts as changed."""
    ended = threading.Event()

    def change():
        while not ended.wait(0.01):
            (second / "b" / "notes.txt").write_text(str(time.monotonic_ns()))

    changing = threads.submit(change)
    yield quiet
    ended.set()
    changing.result()


@pytest.fixture
def client(quiet):
    with HTTP.connect(quiet) as client:
        yield client


@pytest.fixture
def looks(polling, second):
    return lambda: wait_for_looks(polling, second)


def test_all_models_are_loaded_at_the_start(quiet, client):
    assert index(HTTP, client) == {"a": READY, "b": READY}
    assert client.is_server_ready()


def test_a_new_model_appears(client, folder):
    write_adder(folder, "c", 3)
    eventually(lambda: adds(HTTP, client, "c", 3), "the new model")
    assert index(HTTP, client)["c"] == READY


def test_a_model_that_changes_is_reloaded_without_a_gap(client, folder):
    write_adder(folder, "a", 2)
    eventually(lambda: answer(HTTP, client, "a") == 2, "the changed model")
    assert index(HTTP, client)["a"] == READY


def test_a_model_that_is_deleted_is_unloaded_and_forgotten(polling, client, folder):
    shutil.rmtree(folder / "a")
    eventually(lambda: not client.is_model_ready("a"), "the model to be unloaded")
    unknown = "Request for unknown model: 'a' "
    code, text = refusal(answer, HTTP, client, "a")
    assert code == "404" and text in {unknown + "has no available versions", unknown + "is not found"}
    eventually(lambda: "a" not in index(HTTP, client), "the model to be forgotten")
    assert refusal(answer, HTTP, client, "a") == ("404", unknown + "is not found")
    assert client.is_server_ready()


def test_a_model_that_comes_back_for_a_moment_is_away_anew(start, folder, second):
    server = start(folder, f"--model-repository={second}", *POLL[:2], "--repository-settle-ms=1000")
    model, elsewhere = folder / "a", folder.with_name("elsewhere")
    model.rename(elsewhere)
    wait_for_looks(server, second, 1)
    # However long this is, the settle time begins anew; it is long enough to show if it does not.
    time.sleep(0.3)
    elsewhere.rename(model)
    gone = datetime.now()
    model.rename(elsewhere)
    line = "successfully unloaded 'a' version 1"
    eventually(lambda: line in server.log(), "the model to be unloaded")
    (told,) = (words.split()[1] for words in server.log().splitlines() if line in words)
    unloaded = datetime.combine(gone, datetime.strptime(told, "%H:%M:%S.%f").time())
    # A change counts when it has been the same for the settle time.
    assert (unloaded - gone) % timedelta(days=1) >= timedelta(seconds=1)


def test_versions_come_and_go(polling, client, folder, threads, gate):
    """A request that runs on a version that is deleted is answered."""
    gate.write(folder, "held", f"max_batch_size: 1\n{ALL}")
    (folder / "held" / "2").mkdir()
    eventually(lambda: client.is_model_ready("held", "2"), "the held model")
    hold = gate.hold()

    def ask():
        with HTTP.connect(polling) as own:
            return own.infer("held", held_inputs(HTTP, hold, 3)).as_numpy("OUTPUT0").item()

    running = threads.submit(ask)
    hold.wait_until_running()
    (folder / "held" / "2").rmdir()
    eventually(lambda: not client.is_model_ready("held", "2"), "version 2 to be unloaded")
    assert client.is_model_ready("held") and not running.done()
    hold.release()
    assert running.result(PATIENCE) == 3
    eventually(lambda: index(HTTP, client)["held"][0] == ("1", "READY", None), "version 1")
    eventually(lambda: client.is_server_ready(), "readiness")


def test_the_largest_version_is_the_default(polling, client, folder):
    write_adder(folder, "a", 11, 11)
    eventually(lambda: adds(HTTP, client, "a", 11), "version 11")
    shutil.rmtree(folder / "a" / "11")
    eventually(lambda: adds(HTTP, client, "a", 1), "version 1")
    code, text = refusal(answer, HTTP, client, "a", "11")
    assert (code, text.replace("is not found", "is not at ready state")) in {
        (code, "Request for unknown model: 'a' version 11 is not at ready state") for code in ("404", "503")
    }


def test_a_deleted_label_file_is_noticed(polling, client, folder):
    models.classifier(folder)
    eventually(lambda: client.is_model_ready("classifier"), "the classifier")
    (folder / "classifier" / "labels.txt").unlink()
    line = "failed to load 'classifier' version 1: Internal: failed to open text file for read"
    eventually(lambda: line in polling.log(), "the missing label file to be noticed")
    inputs = [HTTP.input("FEATURES", np.ones((1, 4), np.float32))]
    assert client.infer("classifier", inputs).as_numpy("PROBABILITIES") is not None
    (folder / "classifier" / "labels.txt").write_text("one\ntwo\nthree\n")
    eventually(lambda: set(labels(client)) == {"one", "two", "three"}, "the new labels")


def test_a_label_file_comes_and_goes_with_its_name(polling, client, folder):
    name = 'label_filename: "labels.txt"'
    models.classifier(folder)
    config, file = folder / "classifier" / "config.pbtxt", folder / "classifier" / "labels.txt"
    eventually(lambda: client.is_model_ready("classifier"), "the classifier")
    assert labels(client)
    # A look between the two changes finds a file that nothing names.
    config.write_text(config.read_text().replace(name, ""))
    file.unlink()
    eventually(lambda: not labels(client), "the model without labels")
    file.write_text("one\ntwo\nthree\n")
    config.write_text(config.read_text().replace("dims: [3]", f"dims: [3] {name}"))
    eventually(lambda: set(labels(client)) == {"one", "two", "three"}, "the new labels")
    assert "failed to load 'classifier'" not in polling.log()


def labels(client):
    """The labels of the classes, of which each has one or none has."""
    inputs = [HTTP.input("FEATURES", np.ones((1, 4), np.float32))]
    output = HTTP.output("PROBABILITIES", class_count=3)
    told = client.infer("classifier", inputs, outputs=[output]).as_numpy("PROBABILITIES")
    return [label for row in told.flatten() for label in row.decode().split(":")[2:]]


@pytest.mark.parametrize("path", ["config.pbtxt", "1/model.onnx"])
def test_a_broken_update_keeps_the_old_copy_and_is_logged_once(polling, client, folder, looks, path):
    (folder / "a" / path).write_text("max_batch_size: many")
    line = {
        "config.pbtxt": "Poll failed for model directory 'a': ",
        "1/model.onnx": "failed to load 'a' version 1: ",
    }[path]
    eventually(lambda: line in polling.log(), "the failure")
    looks()
    assert polling.log().count(line) == 1
    assert answer(HTTP, client, "a") == 1 and index(HTTP, client)["a"] == READY
    assert client.is_server_ready()
    write_adder(folder, "a", 2)
    eventually(lambda: adds(HTTP, client, "a", 2), "the repaired model")


def test_a_broken_new_model_that_is_deleted_is_forgotten(polling, client, folder):
    models.broken(folder)
    eventually(lambda: "failed to load 'broken' version 1: " in polling.log(), "the failure")
    assert not client.is_server_ready()
    shutil.rmtree(folder / "broken")
    eventually(lambda: client.is_server_ready(), "readiness")
    assert "broken" not in index(HTTP, client)


def test_a_model_that_fails_is_tried_again_after_growing_pauses(quiet, folder):
    (folder / "a" / "1" / "model.onnx").write_text("this is no model")
    attempts = size(3, 4)
    eventually(lambda: loads(quiet, "a") == 1 + attempts, "further attempts")
    times = re.findall(r'^I\d{4} (\d+):(\d+):(\S+) .*"loading: a:1"', quiet.log(), re.MULTILINE)
    seconds = [int(hours) * 3600 + int(minutes) * 60 + float(rest) for hours, minutes, rest in times]
    pauses = [(later - earlier) % 86400 for earlier, later in itertools.pairwise(seconds[1:])]
    assert all(pause >= 0.99 * 2**number for number, pause in enumerate(pauses)), pauses
    assert quiet.log().count("failed to load 'a' version 1: ") == 1


def test_a_version_that_is_deleted_is_forgotten(polling, client, folder):
    write_adder(folder, "a", 2, 2)
    eventually(lambda: adds(HTTP, client, "a", 2), "version 2")
    shutil.rmtree(folder / "a" / "2")
    eventually(lambda: adds(HTTP, client, "a", 1), "version 1")
    # Its copy may still end when version 1 serves.
    eventually(lambda: index(HTTP, client)["a"] == READY, "version 2 to be forgotten")


def test_a_broken_new_version_that_is_deleted_is_forgotten(polling, client, folder):
    write_adder(folder, "a", 2, 2)
    (folder / "a" / "2" / "model.onnx").write_text("this is no model")
    eventually(lambda: "failed to load 'a' version 2: " in polling.log(), "the failure")
    assert not client.is_server_ready() and answer(HTTP, client, "a") == 1
    shutil.rmtree(folder / "a" / "2")
    eventually(client.is_server_ready, "readiness")


def test_a_repository_that_is_moved_away_unloads_nothing(polling, client, folder, looks):
    elsewhere = folder.with_name("elsewhere")
    folder.rename(elsewhere)
    looks()
    assert index(HTTP, client) == {"a": READY, "b": READY}
    assert answer(HTTP, client, "a") == 1 and client.is_server_ready()
    assert metric(polling, "nereid_repository_readable", repository=folder) == 0
    elsewhere.rename(folder)
    looks()
    assert metric(polling, "nereid_repository_readable", repository=folder) == 1
    assert polling.log().count("the models of a repository stay as they are: ") == 1
    assert answer(HTTP, client, "a") == 1 and loads(polling, "a") == 1


BY_PRODUCTS = ["__pycache__/model.cpython-311.pyc", ".config.pbtxt.swp", "config.pbtxt~", "4913", "1/.model.swx", "x.tmp"]


def test_by_products_of_editors_and_of_python_cause_no_reload(polling, folder, looks):
    for path in BY_PRODUCTS:
        file = folder / "a" / path
        file.parent.mkdir(exist_ok=True)
        file.write_text("x")
    looks()
    for path in BY_PRODUCTS:
        (folder / "a" / path).unlink()
    looks()
    assert loads(polling, "a") == 1


def test_other_new_files_cause_a_reload(polling, folder):
    (folder / "a" / "notes.txt").write_text("x")
    eventually(lambda: loads(polling, "a") == 2, "a reload")


def test_a_model_that_is_not_complete_is_not_loaded(polling, client, folder, looks):
    model = folder / "c"
    model.mkdir()
    (model / ".triton_incomplete").touch()
    write_adder(folder, "c", 3)
    looks()
    assert loads(polling, "c") == 0 and client.is_server_ready()
    (model / ".triton_incomplete").unlink()
    eventually(lambda: adds(HTTP, client, "c", 3), "the complete model")
    assert loads(polling, "c") == 1


def test_a_model_that_is_written_slowly_is_loaded_once(start, folder, second, threads):
    server = start(folder, f"--model-repository={second}", *POLL[:2], "--repository-settle-ms=2000")
    target = write_adder(folder, "c", 3) / "1" / "model.onnx"
    content = target.read_bytes()
    target.write_bytes(b"")
    waiting = threads.submit(wait_for_looks, server, second, 1)
    while not waiting.done():
        with target.open("ab") as file:
            file.write(b"x")
    waiting.result()
    target.write_bytes(content)
    with HTTP.connect(server) as client:
        eventually(lambda: adds(HTTP, client, "c", 3), "the whole model")
    assert loads(server, "c") == 1 and "failed to load" not in server.log()


def test_the_period_zero_looks_once(start, folder):
    """Another server's period tells how much time has passed."""
    once = start(folder, POLL[0], "--repository-poll-secs=0", POLL[2])
    with HTTP.connect(once) as client, HTTP.connect(start(folder, *POLL)) as other:
        assert answer(HTTP, client, "a") == 1
        for number in (2, 3):
            write_adder(folder, "a", number)
            eventually(lambda number=number: adds(HTTP, other, "a", number), "the other server to reload the model")
        assert answer(HTTP, client, "a") == 1
    assert loads(once, "a") == 1


def test_a_model_in_two_repositories_is_unloaded(polling, client, folder, second):
    write_adder(second, "a", 10)
    twice = (None, "UNAVAILABLE", "model appears in two or more repositories")
    eventually(lambda: twice in index(HTTP, client)["a"], "the duplicate to be noticed")
    eventually(lambda: not client.is_model_ready("a"), "the model to be unloaded")
    assert refusal(answer, HTTP, client, "a")[0] == "404"
    shutil.rmtree(folder / "a")
    eventually(lambda: adds(HTTP, client, "a", 10), "the other model")
    line = "failed to poll model 'a': not unique across all model repositories"
    assert polling.log().count(line) == 1


def test_namespaces_are_looked_at_apart(start, folder, second):
    server = start(folder, f"--model-repository={second}", "--model-namespacing=true", *POLL)
    with HTTP.connect(server) as client:
        write_adder(second, "a", 10)
        eventually(lambda: index(HTTP, client)["a"] == READY * 2, "the second model")
        shutil.rmtree(folder / "a")
        eventually(lambda: adds(HTTP, client, "a", 10), "the first model to be gone")
        assert loads(server, f"{second}::a") == 1


SAMPLE = 'key: "X" value { data_type: TYPE_FP32 dims: [1] input_data_file: "x" }'
WARMUP = f'model_warmup {{ name: "w" batch_size: 1 inputs {{ {SAMPLE} }} }}\n'
FAILURES = {
    "config.pbtxt": "Poll failed for model directory 'a': ",
    "warmup/x": "failed to load 'a' version 1: ",
}


@pytest.mark.parametrize("path", FAILURES)
def test_a_load_that_fails_because_its_files_change_meanwhile_is_not_told(start, folder, second, gate, backend_option, path):
    """The only thread of loads is held, so that a file becomes another one after the files were listed."""
    server = start(folder, f"--model-repository={second}", *POLL, backend_option, "--model-load-thread-count=1")
    hold = gate.hold()
    gate.write(folder, "slow", "max_batch_size: 1\n", hold)
    hold.wait_until_running()
    write_adder(folder, "a", 2, config=WARMUP)
    (folder / "a" / "warmup").mkdir()
    (folder / "a" / "warmup" / "x").write_bytes(bytes(4))
    wait_for_looks(server, second)
    later = second / "later"
    later.write_text("no")
    later.rename(folder / "a" / path)
    hold.release()
    eventually(lambda: FAILURES[path] in server.log(), "the failure")
    wait_for_looks(server, second)
    assert "the files of model 'a' changed while it was loading" in server.log()
    assert server.log().count(FAILURES[path]) == 1
    with HTTP.connect(server) as client:
        assert answer(HTTP, client, "a") == 1


def test_a_file_that_appears_between_the_listing_and_the_load_is_a_change(start, folder, second, gate, backend_option):
    """The only thread of loads is held, so that the load waits after its files were listed."""
    server = start(folder, f"--model-repository={second}", *POLL, backend_option, "--model-load-thread-count=1")
    hold = gate.hold()
    gate.write(folder, "slow", "max_batch_size: 1\n", hold)
    hold.wait_until_running()
    file = folder / "a" / "1" / "model.onnx"
    file.unlink()
    # By the third look the deletion has settled.
    wait_for_looks(server, second)
    # It stands for the first half of a file that is being written.
    file.write_bytes(adder(2).SerializeToString())
    hold.release()
    changed, loaded = "the files of model 'a' changed while it was loading", "successfully loaded 'a' version 1"
    eventually(lambda: changed in server.log() or server.log().count(loaded) == 2, "the load to end")
    assert changed in server.log()
