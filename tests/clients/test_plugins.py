"""Triton's own plug-ins, unmodified, at the edges of their life: the local cache, and a model's process that dies."""

import os
import pathlib
import signal

import numpy as np
import plugins
import pytest
import repository as models
from protocols import GRPC, HTTP, metric, pending
from serving import PATIENCE, eventually
from tritonclient.utils import InferenceServerException

pytestmark = plugins.needed


@pytest.fixture
def serve(start, tmp_path):
    """Starts a server with models that a function writes, and Triton's backends."""

    def serve(write, *options):
        folder = tmp_path / "models"
        if not folder.exists():
            folder.mkdir()
            write(folder)
        options = (f"--backend-directory={plugins.BACKENDS}", *options)
        return start(folder, *options, variables=plugins.VARIABLES).wait_until_ready()

    return serve


CACHED = "response_cache { enable: true }\n"


@pytest.fixture
def serve_cached(serve):
    def write(folder):
        plugins.python_model(folder, "runs", config=CACHED)

    return lambda size: serve(write, f"--cache-directory={plugins.CACHES}", f"--cache-config=local,size={size}")


def run(client, protocol, x):
    result = client.infer("runs", [protocol.input("X", np.asarray(x, np.float32))])
    return result.as_numpy("Y").tolist(), result.as_numpy("RUN").item()


def test_a_repeated_request_is_answered_by_the_local_cache(serve_cached, protocol):
    server = serve_cached(1 << 20)
    with protocol.connect(server) as client:
        assert run(client, protocol, [1, 2]) == ([1, 2], 1)
        # Until the cache has it, the server gives the response away itself.
        eventually(lambda: metric(server, "nv_cache_num_entries") == 1, "the response to be in the cache")
        assert run(client, protocol, [1, 2]) == ([1, 2], 1)
        assert run(client, protocol, [2, 1]) == ([2, 1], 2)
        assert run(client, protocol, [1, 2]) == ([1, 2], 1)
        statistics = protocol.statistics(client, "runs")
        spent = statistics["inference_stats"]
        assert (statistics["inference_count"], statistics["execution_count"]) == (2, 2)
        assert [spent[kind]["count"] for kind in ("success", "cache_hit", "cache_miss")] == [4, 2, 2]
        assert all(spent[kind]["ns"] > 0 for kind in ("cache_hit", "cache_miss"))
        assert spent["compute_infer"]["count"] == 2
    kinds = ("num_hits_per_model", "num_misses_per_model")
    counted = [metric(server, f"nv_cache_{kind}", model="runs", version=1) for kind in kinds]
    assert counted == [2, 2]
    # The cache's own figures, which it writes down from time to time.
    own = {"nv_cache_num_hits": 2, "nv_cache_num_misses": 2, "nv_cache_num_lookups": 4, "nv_cache_num_entries": 2}
    eventually(lambda: {name: metric(server, name) for name in own} == own, "the figures of the cache")


def test_what_the_local_cache_has_no_room_for_is_executed_again(serve_cached, protocol):
    server = serve_cached(4096)
    x = list(range(4000))
    with protocol.connect(server) as client:
        assert run(client, protocol, x) == (x, 1)
        # Until then the server gives the response away itself.
        eventually(lambda: "is greater than total cache size" in server.log(), "the cache to refuse the response")
        assert run(client, protocol, x) == (x, 2)
        spent = protocol.statistics(client, "runs")["inference_stats"]
        assert (spent["cache_hit"].get("count", 0), spent["cache_miss"]["count"]) == (0, 2)


def test_a_cache_without_a_size_keeps_the_server_from_starting(start, tmp_path):
    with pytest.raises(AssertionError) as failed:
        start(tmp_path, f"--cache-directory={plugins.CACHES}", "--cache-config=local,colour=blue")
    assert "Failed to initialize LocalCache: config didn't contain a valid 'size' field." in str(failed.value)


def stub(server, instance):
    """The process that runs an instance of a model, a child of the server."""
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
            words = (process / "cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue
        if int(parent) == server.process.pid and instance in words:
            return int(process.name)
    return None


def test_the_death_of_a_models_process_is_an_error_for_its_requests_and_for_nobody_else(serve, threads, tmp_path):
    """It dies while it waits for a file: amid a message it would leave a lock behind, and the backend end the server."""

    def write(folder):
        plugins.python_model(folder, "victim", "waiter")
        plugins.python_model(folder, "waiter")
        models.identity(folder, "FP32")

    def ask(model, x, until=""):
        protocol = (HTTP, GRPC)[x % 2]
        with protocol.connect(server) as client:
            try:
                return client.infer(model, plugins.waiter_inputs(protocol, x, until)).as_numpy("Y").item()
            except InferenceServerException as error:
                return error.message()

    server = serve(write)
    gate = tmp_path / "gate"
    dead = "Stub process 'victim_0' is not healthy."
    assert ask("victim", 3) == 6
    answers = [threads.submit(ask, "victim", 0, gate)]
    eventually(plugins.begun(gate), "the first to be executed")
    answers += [threads.submit(ask, "victim", x) for x in range(1, 13)]
    eventually(lambda: pending(server, "victim") == 12, "the others to wait")
    os.kill(stub(server, "victim_0"), signal.SIGKILL)
    others = [threads.submit(ask, "waiter", x) for x in range(12)]
    assert [answer.result(PATIENCE) for answer in answers] == [dead] * 13
    assert [other.result(PATIENCE) for other in others] == [2 * x for x in range(12)]
    assert ask("victim", 4) == dead
    assert stub(server, "victim_0") is None
    with GRPC.connect(server) as client:
        counted = GRPC.statistics(client, "victim")["inference_stats"]
        assert [counted[kind]["count"] for kind in ("success", "fail")] == [1, 14]
        assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("waiter")
        result = client.infer("identity_fp32", [GRPC.input("INPUT", np.ones(3, np.float32))])
        assert result.as_numpy("OUTPUT").tolist() == [1, 1, 1]
