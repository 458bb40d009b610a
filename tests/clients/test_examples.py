"""The examples for writers of plug-ins do what their pages say."""

import os
import shutil
from collections import Counter

import numpy as np
import processes
import pytest
import requests
from protocols import HTTP, metric
from serving import ROOT, eventually

COMPILER = os.environ.get("CC", "cc")
LONG_US = 30_000_000


def compiled(source, library):
    library.parent.mkdir(parents=True, exist_ok=True)
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-I{ROOT / 'include'}"]
    processes.run([COMPILER, *flags, ROOT / "examples" / source, "-pthread", "-o", library], check=True)


@pytest.fixture
def folder(tmp_path):
    """A repository with the model of the example, and the directory of its backend."""
    compiled("backend/scale.c", tmp_path / "backends/scale/libtriton_scale.so")
    shutil.copytree(ROOT / "examples/backend/models", tmp_path / "models")
    return tmp_path


def add_to_config(folder, text):
    config = folder / "models/scale/config.pbtxt"
    config.write_text(config.read_text() + text)


def post(server, values, **parameters):
    """The response to one row."""
    tensor = {"name": "X", "datatype": "FP32", "shape": [1, len(values)], "data": values}
    answer = requests.post(
        f"http://{server.http}/v2/models/scale/infer", json={"inputs": [tensor], "parameters": parameters}, timeout=60
    )
    assert answer.status_code == 200, answer.text
    return answer


def ask(server, values, **parameters):
    """The response to one row, as JSON."""
    return post(server, values, **parameters).json()


def scaled(answer):
    return answer["outputs"][0]["data"]


def test_the_backend_multiplies(start, folder):
    server = start(folder / "models", f"--backend-directory={folder / 'backends'}").wait_until_ready()
    answer = ask(server, [1, 2, 4])
    assert scaled(answer) == [2.5, 5, 10]
    assert answer["parameters"]["batched_requests"] == 1
    with HTTP.connect(server) as client:
        tensor = HTTP.input("X", np.array([[3.0]], np.float32))
        assert client.infer("scale", [tensor]).as_numpy("Y").tolist() == [[7.5]]


def test_the_strategy_keeps_tenants_apart(start, folder, threads):
    compiled("batching-strategy/tenants.c", folder / "models/scale/batchstrategy.so")
    # No request leaves because of the delay while the test runs.
    add_to_config(folder, f"dynamic_batching {{ max_queue_delay_microseconds: {LONG_US} }}\n")
    server = start(folder / "models", f"--backend-directory={folder / 'backends'}").wait_until_ready()

    def waiting(count):
        labels = {"model": "scale", "version": 1}
        return lambda: metric(server, "nv_inference_pending_request_count", **labels) == count

    first = [threads.submit(ask, server, [number], tenant="a") for number in (1, 2)]
    eventually(waiting(2), "the requests of tenant a to wait")
    # The other tenant may not join: that completes the batch.
    other = threads.submit(ask, server, [3], tenant="b")
    assert [answer.result(60)["parameters"]["batched_requests"] for answer in first] == [2, 2]
    assert sorted(scaled(answer.result())[0] for answer in first) == [2.5, 5]
    assert not other.done()
    # A server that stops waits for nobody.
    server.terminate()
    assert other.result(60)["parameters"]["batched_requests"] == 1


def test_the_cache_answers_and_forgets(start, folder):
    compiled("cache/ring.c", folder / "caches/ring/libtritoncache_ring.so")
    add_to_config(folder, "response_cache { enable: true }\n")
    options = [f"--cache-directory={folder / 'caches'}", "--cache-config=ring,entries=2"]
    server = start(folder / "models", f"--backend-directory={folder / 'backends'}", *options).wait_until_ready()

    statuses = Counter()

    def is_stored(number):
        answer = post(server, [number])
        assert scaled(answer.json()) == [2.5 * number]
        statuses[answer.headers["Cache-Status"]] += 1
        return answer.headers["Cache-Status"] == "Nereid; hit"

    # The third answer takes the place of the first one.
    for number, was_stored in ((1, False), (1, True), (2, False), (1, True), (3, False), (1, False), (3, True)):
        assert is_stored(number) == was_stored, number
        # It is stored after it was sent. Until then, equal requests have it.
        eventually(lambda number=number: is_stored(number), "the answer in the cache")
    assert statuses["Nereid; fwd=uri-miss"] == 4
    hits = metric(server, "nv_cache_num_hits_per_model", model="scale", version=1)
    assert hits == statuses.total() - 4


def test_the_cache_refuses_a_size_of_nothing(start, folder):
    compiled("cache/ring.c", folder / "caches/ring/libtritoncache_ring.so")
    with pytest.raises(AssertionError, match="'entries' must be a number from 1"):
        start(folder / "models", f"--cache-directory={folder / 'caches'}", "--cache-config=ring,entries=0")
