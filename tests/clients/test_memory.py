"""Memory that models have freed goes back to the system, whatever the backend and the allocator.

Allocators are preloaded as users do it. $NEREID_TEST_TCMALLOC and $NEREID_TEST_JEMALLOC are their libraries; `cargo xtask
setup` takes them out of their packages. $NEREID_MEMORY_CYCLES is how often a model is loaded and unloaded, and a fifth of it how
often a model is reloaded.
"""

import os
import pathlib
import threading

import numpy as np
import programs
import pytest
import repository as models
from adders import CONFIG, EXPLICIT, is_unloaded
from held import build_backend
from protocols import GRPC, HTTP, metric
from serving import TARGET, eventually

CYCLES = int(os.environ.get("NEREID_MEMORY_CYCLES", "5"))
RELOADS = max(CYCLES // 5, 3)
# How much more may be resident at the end than after the first cycle.
TOLERANCE = 1.1

MODEL_BYTES = 100_000_000
LAYERS, WIDTH = 25, 1000
KINDS = ("onnx", "plug-in")


def _library(allocator, pattern):
    given = os.environ.get(f"NEREID_TEST_{allocator.upper()}")
    found = [*(TARGET / "allocators" / allocator).rglob(pattern), *pathlib.Path("/usr/lib").glob(f"*/{pattern}")]
    return given or next(map(str, found), None)


ALLOCATORS = {
    "glibc": "",
    "tcmalloc": _library("tcmalloc", "libtcmalloc_minimal.so.4*"),
    "jemalloc": _library("jemalloc", "libjemalloc.so.2*"),
}


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A model of 100 MB for ONNX Runtime, and one for the plug-in."""
    folder = tmp_path_factory.mktemp("models")
    names = ["X", *(f"h{layer}" for layer in range(1, LAYERS)), "Y"]
    nodes = "\n".join(f"{names[layer + 1]} = MatMul({names[layer]}, w{layer})" for layer in range(LAYERS))
    text = f"net (float[batch, {WIDTH}] X) => (float[batch, {WIDTH}] Y) {{\n{nodes}\n}}"
    random = np.random.default_rng(0)
    weights = {f"w{layer}": random.standard_normal((WIDTH, WIDTH), dtype=np.float32) for layer in range(LAYERS)}
    instance = "instance_group { count: 1 kind: KIND_CPU }\n"
    models.write(folder, "onnx", models.graph(text, **weights), f"max_batch_size: 4\n{instance}")
    (folder / "plug-in" / "1").mkdir(parents=True)
    held = f'parameters {{ key: "hold_bytes" value: {{ string_value: "{MODEL_BYTES}" }} }}\n'
    (folder / "plug-in" / "config.pbtxt").write_text(f'backend: "holding"\n{CONFIG}{instance}{held}')
    return folder


@pytest.fixture(scope="module")
def backends(tmp_path_factory):
    return build_backend(tmp_path_factory.mktemp("backends"), "holding")


@pytest.fixture
def serve(start, repository, backends):
    """Starts a server with a preloaded library, if one is named."""

    def serve(preloaded=""):
        variables = {"LD_PRELOAD": preloaded} if preloaded else {}
        return start(repository, EXPLICIT, f"--backend-directory={backends}", variables=variables)

    return serve


def infer(client, model):
    shape = (1, WIDTH) if model == "onnx" else (1,)
    client.infer(model, [GRPC.input("X", np.ones(shape, np.float32))])


def unload(client, model):
    client.unload_model(model)
    eventually(lambda: is_unloaded(GRPC, client, model), f"{model} to end")


def settled_bytes(server, limit):
    """The resident memory when it is below a limit. The server returns what was freed after a while."""
    last = []

    def is_below():
        last[:] = [server.resident_bytes()]
        return last[0] <= limit

    try:
        eventually(is_below, f"less than {limit / 1e6:.1f} MB to be resident", pause=0.05)
    finally:
        print(f"{last[0] / 1e6:.1f} MB are resident")
    return last[0]


def check(server, first, what, record_property):
    last = settled_bytes(server, TOLERANCE * first)
    print(f"{what}: {first / 1e6:.1f} MB resident after the first cycle, {last / 1e6:.1f} MB after the last")
    record_property("resident_bytes", [first, last])


# Each cycle reads weights of 100 MB.
@pytest.mark.timeout(60 * CYCLES)
@pytest.mark.parametrize("allocator", ALLOCATORS)
@pytest.mark.parametrize("model", KINDS)
def test_models_that_come_and_go_leave_no_memory_behind(serve, record_property, model, allocator):
    library = ALLOCATORS[allocator]
    if library is None:
        programs.missing(f"{allocator} is not here", programs.SETUP)
    server = serve(library)
    mapped = pathlib.Path(f"/proc/{server.process.pid}/maps").read_text()
    assert os.path.basename(library) in mapped
    with GRPC.connect(server) as client:
        # More than the runtime itself, and less than a model.
        limit, first = server.resident_bytes() + 0.7 * MODEL_BYTES, None
        for _ in range(CYCLES):
            client.load_model(model)
            infer(client, model)
            unload(client, model)
            first = first or settled_bytes(server, limit)
        check(server, first, f"{CYCLES} cycles of {model} with {allocator}", record_property)


@pytest.mark.parametrize("model", KINDS)
def test_reloads_leave_no_memory_behind(serve, repository, record_property, model):
    server = serve()
    config = repository / model / "config.pbtxt"
    asked, failures = [], []
    done = threading.Event()

    def ask():
        with GRPC.connect(server) as client:
            while not done.wait(0.005):
                try:
                    infer(client, model)
                    asked.append(1)
                except Exception as error:  # whatever it is, the test must fail
                    failures.append(error)

    def reload(client):
        before = config.read_text()
        config.write_text(before + "\n")
        requests = len(asked)
        client.load_model(model)
        eventually(lambda: len(asked) > requests + 3 or failures, "requests to the new copy")

    with GRPC.connect(server) as client:
        before = server.resident_bytes()
        client.load_model(model)
        asker = threading.Thread(target=ask)
        asker.start()
        try:
            reload(client)
            # The old copy is gone.
            first = settled_bytes(server, before + 1.5 * MODEL_BYTES)
            for _ in range(RELOADS):
                reload(client)
            check(server, first, f"{RELOADS} reloads of {model}", record_property)
        finally:
            done.set()
            asker.join()
    assert not failures, failures[:3]


@pytest.mark.parametrize("model", KINDS)
def test_a_metric_tells_what_a_model_holds(serve, model):
    server = serve()
    with GRPC.connect(server) as client:
        before = server.resident_bytes()
        client.load_model(model)
        labels = {"model": model, "version": 1, "memory": "CPU", "memory_id": 0}
        held = metric(server, "nereid_model_memory_bytes", **labels)
        assert 0.95 * MODEL_BYTES < held < 1.15 * MODEL_BYTES
        grown = server.resident_bytes() - before
        print(f"{model} says {held / 1e6:.1f} MB, resident are {grown / 1e6:.1f} MB more than before")
        assert held < 1.2 * grown
        (memory,) = GRPC.statistics(client, model)["memory_usage"]
        assert memory["type"] == "CPU" and memory["byte_size"] == held
        unload(client, model)
        with pytest.raises(AssertionError, match="there is no nereid_model_memory_bytes"):
            metric(server, "nereid_model_memory_bytes", **labels)


def test_buffers_of_large_requests_go_back(start, tmp_path):
    """A body comes in several pieces, which the instance copies into a buffer."""
    large_bytes = 64 << 20
    (folder := tmp_path / "models").mkdir()
    models.identity(folder, "FP32")
    server = start(folder).wait_until_ready()
    with HTTP.connect(server) as client:
        for length in (1, large_bytes // 4):
            before = server.resident_bytes()
            client.infer("identity_fp32", [HTTP.input("INPUT", np.ones(length, np.float32))])
    settled_bytes(server, before + large_bytes // 2)
