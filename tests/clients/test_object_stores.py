"""Repositories in object stores: S3 (moto), Azure (azurite), and a small server that stands for S3 and Google."""

import base64
import json
import os
import signal
import sys

import processes
import pytest
from adders import (
    ALL,
    EXPLICIT,
    JSON_CONFIG,
    READY,
    adder,
    answer,
    index,
    is_unloaded,
    loads,
    refusal,
    repository_of,
    write_adder,
)
from held import held_inputs
from object_servers import BUCKET, Azurite, GoogleStore, SmallStore, azurite, copies, moto
from protocols import GRPC, HTTP
from serving import BINARY, PATIENCE, ROOT, command, environment, eventually, http_status
from tritonclient.utils import InferenceServerException

LIBRARY = BINARY.with_name("libtritonserver.so")
POLL = ("--model-control-mode=poll", "--repository-poll-secs=1", "--repository-settle-ms=100")


@pytest.fixture
def small():
    store = SmallStore()
    yield store
    store.stop()


@pytest.fixture(params=[*(pytest.param(name, marks=pytest.mark.stores) for name in ("moto", "azurite")), "google"])
def store(request, tmp_path):
    """A store of each kind."""
    match request.param:
        case "moto":
            with moto() as server:
                yield server
        case "azurite":
            with azurite(tmp_path / "azurite") as server:
                yield server
        case "google":
            server = GoogleStore(tmp_path)
            yield server
            server.stop()


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def folder(tmp_path):
    """What is uploaded: the model `a`, which adds 1."""
    return repository_of(tmp_path, "a")


@pytest.fixture
def serve(start, cache):
    """Starts a server with the models of a store."""

    def serve(store, *options, **named):
        variables = store.variables | {"AWS_EC2_METADATA_DISABLED": "true"}
        return start(f"{store.url}/models", option(cache), *options, variables=variables, **named)

    return serve


def option(cache):
    return f"--model-repository-cache-directory={cache}"


def run(store, url, cache, *options, variables=None):
    """A server that is expected to end by itself."""
    line = command(url, option(cache), *options)
    known = environment() | store.variables | {"AWS_EC2_METADATA_DISABLED": "true"} | (variables or {})
    return processes.run(line, env=known)


def adds(client, name, number, version=""):
    """Whether a model adds this number now."""
    try:
        return answer(HTTP, client, name, version) == number
    except InferenceServerException:
        return False


def test_all_models_are_served_and_stay_as_they_are(store, serve, folder, tmp_path):
    """Beside a repository in a directory."""
    store.upload(folder, "models")
    local = tmp_path / "local"
    local.mkdir()
    write_adder(local, "b", 2)
    server = serve(store, f"--model-repository={local}")
    with HTTP.connect(server) as client, GRPC.connect(server) as grpc:
        assert index(HTTP, client) == {"a": READY, "b": READY}
        assert answer(HTTP, client, "a") == 1 and answer(GRPC, grpc, "a") == 1 and answer(HTTP, client, "b") == 2
        write_adder(folder, "a", 5)
        store.upload(folder, "models")
        store.delete("models/a/config.pbtxt")
        assert answer(HTTP, client, "a") == 1
        assert index(HTTP, client) == {"a": READY, "b": READY}


def test_models_are_loaded_changed_and_unloaded_on_demand(store, serve, folder, protocol):
    store.upload(folder, "models")
    server = serve(store, EXPLICIT)
    with protocol.connect(server) as client:
        assert index(protocol, client) == {"a": [(None, None, None)]}
        client.load_model("a")
        assert answer(protocol, client, "a") == 1
        client.load_model("a")
        assert loads(server, "a") == 1
        write_adder(folder, "a", 2, version=2)
        store.upload(folder, "models")
        client.load_model("a")
        assert answer(protocol, client, "a") == 2 and "1" not in ready_versions(protocol, client, "a")
        everything = json.loads(JSON_CONFIG) | {"version_policy": {"all": {}}}
        client.load_model("a", config=json.dumps(everything))
        assert answer(protocol, client, "a", "1") == 1 and answer(protocol, client, "a", "2") == 2
        content = adder(7).SerializeToString()
        client.load_model("a", config=JSON_CONFIG, files={"file:1/model.onnx": content})
        assert answer(protocol, client, "a") == 7
        client.load_model("a")
        assert answer(protocol, client, "a") == 2
        client.unload_model("a")
        eventually(lambda: is_unloaded(protocol, client, "a", "2"), "the model to be unloaded")
        code, text = refusal(client.load_model, "missing")
        assert "no repository has a model 'missing'" in text


def ready_versions(protocol, client, name):
    return [version for version, state, _ in index(protocol, client)[name] if state == "READY"]


def test_the_server_follows_what_is_uploaded_and_deleted(store, serve, folder, cache):
    store.upload(folder, "models")
    server = serve(store, *POLL)
    with HTTP.connect(server) as client:
        assert answer(HTTP, client, "a") == 1
        write_adder(folder, "a", 2)
        write_adder(folder, "b", 3)
        store.upload(folder, "models")
        eventually(lambda: adds(client, "a", 2) and adds(client, "b", 3), "a changed and a new model")
        write_adder(folder, "b", 4, version=2)
        store.upload(folder, "models")
        eventually(lambda: adds(client, "b", 4), "a new version")
        write_adder(folder, "b", 4, version=2, config=ALL)
        store.upload(folder, "models")
        eventually(lambda: adds(client, "b", 3, "1") and adds(client, "b", 4, "2"), "a changed configuration")
        for file in ("a/config.pbtxt", "a/1/model.onnx"):
            store.delete(f"models/{file}")
        eventually(lambda: "a" not in index(HTTP, client), "a deleted model")
        assert answer(HTTP, client, "b", "1") == 3
        eventually(lambda: {path.name for path in copies(cache)} == {"b"}, "the copies of the deleted model to go")


def test_only_the_selected_versions_are_copied_and_a_restart_copies_nothing(small, serve, folder, cache):
    for version in (1, 2, 3):
        write_adder(folder, "a", version, version)
    small.upload(folder, "models")
    server = serve(small, EXPLICIT, "--load-model=a")
    expected = ["models/a/3/model.onnx", "models/a/config.pbtxt"]
    assert sorted(small.downloads()) == expected
    server.terminate()
    server.process.wait(PATIENCE)
    with HTTP.connect(serve(small, EXPLICIT, "--load-model=a")) as client:
        assert answer(HTTP, client, "a") == 3
        assert sorted(small.downloads()) == expected
        client.load_model("a", config=json.dumps(json.loads(JSON_CONFIG) | {"version_policy": {"all": {}}}))
        assert answer(HTTP, client, "a", "1") == 1
        assert sorted(small.downloads()) == ["models/a/1/model.onnx", "models/a/2/model.onnx", *expected]


def test_models_of_one_name_in_a_directory_and_in_a_store(small, serve, folder):
    small.upload(folder, "models")
    local = folder.parent / "local"
    local.mkdir()
    write_adder(local, "a", 2)
    with HTTP.connect(serve(small, f"--model-repository={local}", "--exit-on-error=false")) as client:
        assert not client.is_model_ready("a")
    server = serve(small, f"--model-repository={local}", "--model-namespacing=true")
    assert f"successfully loaded '{small.url}/models::a' version 1" in server.log()
    assert f"successfully loaded '{local}::a' version 1" in server.log()


def test_a_credential_that_is_refused_is_named(small, folder, cache):
    small.upload(folder, "models")
    small.is_denied = True
    ended = run(small, f"{small.url}/models", cache)
    assert ended.returncode == 1
    expected = "Check account credentials. Exception: 'AccessDenied' Message: 'Access Denied' "
    assert f"{expected}(cannot read '{small.url}/models')" in ended.stderr


@pytest.mark.stores
def test_a_key_of_azure_that_is_refused_is_not_written(cache, tmp_path):
    with azurite(tmp_path / "azurite") as store:
        other = base64.b64encode(b"another key").decode()
        ended = run(store, f"{store.url}/models", cache, variables={"AZURE_STORAGE_KEY": other})
        assert ended.returncode == 1 and other not in ended.stderr and Azurite.KEY not in ended.stderr
        assert f"cannot read '{store.url}/models': check the account's credentials" in ended.stderr


def test_a_repository_that_does_not_exist_is_named(small, cache):
    url = f"{small.url}/models"
    ended = run(small, url, cache)
    assert ended.returncode == 1
    assert f"error: creating server: Not found - directory or file does not exist at {url}" in ended.stderr
    url = url.replace(BUCKET, "missing")
    ended = run(small, url, cache)
    assert ended.returncode == 1
    assert f"directory or file does not exist at {url}: there is no 'missing': " in ended.stderr


@pytest.mark.stores
def test_a_bucket_of_s3_that_does_not_exist_is_named(cache):
    with moto() as store:
        url = f"{store.url}/models".replace(BUCKET, "missing")
        ended = run(store, url, cache)
        assert ended.returncode == 1 and url in ended.stderr and "NoSuchBucket" in ended.stderr


def test_urls_that_break_a_rule_are_refused(small, cache):
    ended = run(small, "s3://", cache)
    assert ended.returncode == 1
    assert "error: creating server: Invalid argument - No bucket name found in path: s3://" in ended.stderr
    ended = run(small, "as://account/container?sig=SECRET", cache)
    assert ended.returncode == 1 and "SECRET" not in ended.stderr and "has no query" in ended.stderr


def test_a_store_that_is_down_at_the_start_is_named(small, cache, start):
    small.stop()
    url = f"{small.url}/models"
    ended = run(small, url, cache)
    assert ended.returncode == 1
    assert f"error: creating server: Unavailable - cannot read '{url}': cannot connect: " in ended.stderr
    server = start(url, option(cache), "--exit-on-error=false", variables=small.variables)
    assert http_status(server.http_port, "/v2/health/live") == 400
    assert f"cannot read '{url}'" in server.log()
    small.start()


def test_a_store_that_is_down_later_unloads_nothing_and_is_told_once(small, serve, folder, tmp_path):
    small.upload(folder, "models")
    local = tmp_path / "local"
    local.mkdir()
    write_adder(local, "b", 2)
    server = serve(small, f"--model-repository={local}", *POLL)
    told = f"the models of a repository stay as they are: cannot read '{small.url}/models': cannot connect"
    with HTTP.connect(server) as client:
        small.stop()
        eventually(lambda: told in server.log(), "the store to be missed")
        for number in (5, 6):
            # Each change of the other repository needs looks.
            write_adder(local, "b", number)
            eventually(lambda number=number: adds(client, "b", number), "a change of the other repository")
        assert answer(HTTP, client, "a") == 1 and index(HTTP, client)["a"] == READY
        assert server.log().count(told) == 1
        write_adder(folder, "a", 4)
        small.upload(folder, "models")
        small.start()
        eventually(lambda: adds(client, "a", 4), "the change of the store")


def test_a_store_that_hangs_delays_other_repositories_for_seconds_only(small, serve, folder, tmp_path):
    small.upload(folder, "models")
    local = tmp_path / "local"
    local.mkdir()
    write_adder(local, "b", 2)
    server = serve(small, f"--model-repository={local}", *POLL)
    with HTTP.connect(server) as client:
        hold = small.hold("")
        hold.wait_until_reached()
        write_adder(local, "b", 5)
        eventually(lambda: adds(client, "b", 5), "a change of the other repository")
        assert f"the listing of '{small.url}/models' takes longer than 5 s" in server.log()
        assert answer(HTTP, client, "a") == 1
        hold.release()


def test_a_failed_download_is_the_reason_and_the_old_copy_serves(small, serve, folder):
    small.upload(folder, "models")
    server = serve(small, EXPLICIT, "--load-model=a")
    write_adder(folder, "a", 2, version=2)
    write_adder(folder, "b", 3)
    small.upload(folder, "models")
    with HTTP.connect(server) as client:
        for name, version in (("a", 2), ("b", 1)):
            key = f"models/{name}/{version}/model.onnx"
            small.replaced.add(key)
            changed = f"'{small.url}/{key}' changed or was deleted while it was copied"
            _, text = refusal(client.load_model, name)
            assert changed in text
        assert index(HTTP, client)["b"] == [("1", "UNAVAILABLE", f"Unavailable: {changed}")]
        assert answer(HTTP, client, "a") == 1
        small.replaced.clear()
        client.load_model("a")
        assert answer(HTTP, client, "a") == 2


def test_an_unload_ends_a_download_and_other_models_serve(small, serve, folder, threads):
    write_adder(folder, "slow", 2)
    small.upload(folder, "models")
    hold = small.hold("models/slow/1/model.onnx")
    server = serve(small, EXPLICIT, "--load-model=a")

    def load():
        with HTTP.connect(server, network_timeout=PATIENCE) as client:
            return refusal(client.load_model, "slow")

    loading = threads.submit(load)
    hold.wait_until_reached()
    with HTTP.connect(server) as client:
        assert index(HTTP, client)["slow"] == [("1", "LOADING", None)]
        assert answer(HTTP, client, "a") == 1
        client.unload_model("slow")
        _, text = loading.result(PATIENCE)
        assert "the download of model 'slow' was ended: the model is unloaded" in text
        hold.release()
        client.load_model("slow")
        assert answer(HTTP, client, "slow") == 2


def test_a_copy_stays_until_the_last_request_on_it_has_ended(small, serve, tmp_path, gate, backend_option, cache, threads):
    folder = tmp_path / "held"
    folder.mkdir()
    gate.write(folder, "held", "max_batch_size: 1\n")
    (folder / "held" / "1" / "note").write_text("old")
    small.upload(folder, "models")
    server = serve(small, EXPLICIT, "--load-model=held", backend_option)
    hold = gate.hold()
    with HTTP.connect(server) as client, HTTP.connect(server, network_timeout=PATIENCE) as other:
        [before] = copies(cache)
        running = threads.submit(other.infer, "held", held_inputs(HTTP, hold))
        hold.wait_until_running()
        (folder / "held" / "1" / "note").write_text("new")
        small.upload(folder, "models")
        client.load_model("held")
        assert (before / "1" / "note").read_text() == "old" and len(copies(cache)) == 2
        hold.release()
        running.result(PATIENCE)
        eventually(lambda: not before.exists() and len(copies(cache)) == 1, "the old copy to go")
        assert (copies(cache)[0] / "1" / "note").read_text() == "new"
        client.unload_model("held")
        eventually(lambda: not copies(cache), "the last copy to go")


@pytest.mark.parametrize("held", ["", "models/a/1/model.onnx", "models/a/config.pbtxt"], ids=["list", "model", "config"])
def test_a_signal_during_the_start_is_obeyed_while_the_store_hangs(small, folder, cache, held):
    small.upload(folder, "models")
    hold = small.hold(held)
    line = command(f"{small.url}/models", option(cache))
    with processes.running(line, env=environment() | small.variables, stdout=processes.PIPE) as process:
        hold.wait_until_reached()
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
        process.stdout.close()
    hold.release()


@pytest.mark.parametrize("held", ["", "models/b/1/model.onnx"], ids=["list", "model"])
def test_a_signal_later_is_obeyed_while_the_store_hangs(small, folder, serve, held):
    small.upload(folder, "models")
    server = serve(small, *POLL)
    hold = small.hold(held)
    write_adder(folder, "b", 2)
    small.upload(folder, "models")
    hold.wait_until_reached()
    server.terminate()
    assert server.process.wait(PATIENCE) == 0
    hold.release()


def test_a_server_that_was_killed_during_a_download_hinders_no_start(small, serve, folder, cache):
    write_adder(folder, "b", 2)
    small.upload(folder, "models")
    hold = small.hold("models/b/1/model.onnx")
    line = command(f"{small.url}/models", option(cache), "--load-model=a", "--load-model=b", EXPLICIT)
    with processes.running(
        line, env=environment() | small.variables, stdout=processes.DEVNULL, stderr=processes.DEVNULL
    ) as process:
        hold.wait_until_reached()
        eventually(lambda: "models/a/1/model.onnx" in small.downloads(), "the other model")
        process.kill()
        process.wait()
    left = {path.name for path in (cache / "sessions").iterdir()}
    assert left
    hold.release()
    server = serve(small)
    with HTTP.connect(server) as client:
        assert answer(HTTP, client, "a") == 1 and answer(HTTP, client, "b") == 2
    assert not left & {path.name for path in (cache / "sessions").iterdir()}
    assert small.downloads().count("models/b/1/model.onnx") == 2


def test_a_cache_that_cannot_be_used_is_named(small, folder, cache):
    small.upload(folder, "models")
    cache.write_text("a file")
    ended = run(small, f"{small.url}/models", cache)
    assert ended.returncode == 1 and f"cache of object stores: cannot make '{cache}" in ended.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to another user")
def test_the_cache_of_another_user_is_refused(small, folder, cache):
    small.upload(folder, "models")
    cache.mkdir()
    os.chown(cache, 12345, -1)
    ended = run(small, f"{small.url}/models", cache)
    assert ended.returncode == 1 and f"'{cache}' belongs to user 12345 instead of user 0" in ended.stderr


def test_a_model_that_is_being_uploaded_waits_for_the_end_of_its_marker(small, serve, folder):
    small.upload(folder, "models")
    server = serve(small, *POLL)
    with HTTP.connect(server) as client:
        small.put("models/b/.triton_incomplete", b"")
        write_adder(folder, "c", 3)
        write_adder(folder, "b", 2)
        (folder / "b" / ".triton_incomplete").write_text("")
        small.upload(folder, "models")
        eventually(lambda: adds(client, "c", 3), "the complete model")
        assert not client.is_model_ready("b")
        small.delete("models/b/.triton_incomplete")
        eventually(lambda: adds(client, "b", 2), "the model that is now complete")


def test_errors_of_a_configuration_name_the_url(small, serve, folder):
    small.upload(folder, "models")
    small.put("models/bad/config.pbtxt", b"max_batch_size: what\n")
    small.put("models/bad/1/model.onnx", b"")
    server = serve(small, EXPLICIT)
    with HTTP.connect(server) as client:
        refusal(client.load_model, "bad")
    assert f"{small.url}/models/bad/config.pbtxt" in server.log()


def test_c_programs_register_urls(small, folder, tmp_path):
    write_adder(folder, "b", 2)
    config = folder / "a" / "config.pbtxt"
    # A model that gets another name has none in its configuration.
    config.write_text(config.read_text().replace('name: "a"', ""))
    small.upload(folder, "models")
    url = f"{small.url}/models"
    program = [sys.executable, str(ROOT / "tests" / "clients" / "embedding_stores.py"), str(LIBRARY), url]
    # Their cache is at its default place.
    known = environment() | small.variables | {"XDG_CACHE_HOME": str(tmp_path / "caches")}
    ended = processes.run(program, env=known)
    told = dict(line.partition(" ")[::2] for line in ended.stdout.splitlines() if not line.startswith(("I", "W", "E")))
    assert told == {
        "new": "",
        "again": f"model repository '{url}' has already been registered",
        "unregister": "",
        "missing": f"directory or file does not exist at {url}/missing",
        "register": "",
        "load": "",
        "other": "True",
        "b": "True",
        "delete": "",
    }, ended.stderr
    assert list((tmp_path / "caches" / "nereid" / "models" / "contents").iterdir())


def test_a_server_that_ends_leaves_only_contents(small, serve, folder, cache):
    """And a model needs no configuration if its file says enough."""
    small.upload(folder, "models")
    small.delete("models/a/config.pbtxt")
    server = serve(small)
    with HTTP.connect(server) as client:
        assert answer(HTTP, client, "a") == 1
    server.terminate()
    assert server.process.wait(PATIENCE) == 0
    assert list((cache / "sessions").iterdir()) == [], server.log()
    assert len(list((cache / "contents").iterdir())) == 1
