"""The response cache that is built in: `--cache-config=local,size=...` without a library of that name."""

import numpy as np
import pytest
import repository as models
from protocols import HTTP, add_sub_inputs, metric
from repository import tensor
from serving import Server

CACHED = "response_cache { enable: true }\n"
SIZE = 64 << 20
FIGURES = ("entries", "lookups", "hits", "misses", "evictions")


def write(folder):
    """add_sub, and a model that gives back a matrix of any shape."""
    models.add_sub(folder)
    with (folder / "add_sub/config.pbtxt").open("a") as config:
        config.write(CACHED)
    graph = models.graph("same (float[h, w] X) => (float[h, w] Y) { Y = Identity(X) }")
    config = "max_batch_size: 0\n" + tensor("input", "X", "FP32", -1, -1) + tensor("output", "Y", "FP32", -1, -1)
    models.write(folder, "same", graph, config + CACHED)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write(tmp_path_factory.mktemp("models"))


@pytest.fixture
def server(start, folder):
    return start(folder, f"--cache-config=local,size={SIZE}").wait_until_ready()


def same(protocol, client, x, **options):
    return client.infer("same", [protocol.input("X", x)], **options).as_numpy("Y")


def executions(protocol, client, model):
    return protocol.statistics(client, model).get("execution_count", 0)


def figures(server):
    """The cache's own figures."""
    return [metric(server, f"nv_cache_num_{name}") for name in FIGURES]


def test_a_repeated_request_is_answered_from_the_cache(protocol, client, server):
    x = np.array([[1, 2, 3]], np.float32)
    for _ in range(3):
        np.testing.assert_array_equal(same(protocol, client, x), x)
    assert executions(protocol, client, "same") == 1
    spent = protocol.statistics(client, "same")["inference_stats"]
    assert [spent[kind]["count"] for kind in ("success", "cache_hit", "cache_miss")] == [3, 2, 1]
    assert figures(server) == [1, 3, 2, 1, 0]
    assert 0 < metric(server, "nv_cache_util") < 0.001
    assert all(metric(server, f"nv_cache_{what}_duration") is not None for what in ("lookup", "insertion"))


def test_the_same_bytes_in_another_shape_are_another_request(protocol, client):
    x = np.arange(6, dtype=np.float32)
    for shape in ((2, 3), (3, 2), (1, 6), (2, 3)):
        answer = same(protocol, client, x.reshape(shape))
        assert answer.shape == shape
        np.testing.assert_array_equal(answer, x.reshape(shape))
    assert executions(protocol, client, "same") == 3


def test_another_output_is_another_request(protocol, client):
    inputs, first = add_sub_inputs(protocol)
    for name, expected in (("OUTPUT0", first + 1000), ("OUTPUT1", first - 1000), ("OUTPUT0", first + 1000)):
        outputs = [protocol.library.InferRequestedOutput(name)]
        result = client.infer("add_sub", inputs, outputs=outputs)
        np.testing.assert_array_equal(result.as_numpy(name), expected)
        assert result.as_numpy({"OUTPUT0": "OUTPUT1", "OUTPUT1": "OUTPUT0"}[name]) is None
    assert executions(protocol, client, "add_sub") == 2


def test_other_parameters_are_another_request(protocol, client):
    x = np.array([[1]], np.float32)
    for level in (1, 2, 1, True, "1"):
        same(protocol, client, x, parameters={"level": level})
    assert executions(protocol, client, "same") == 4


def test_a_large_response_is_the_same_from_the_cache(protocol, client, server):
    x = np.random.default_rng(3).random((1024, 1024), np.float32)
    for _ in range(3):
        np.testing.assert_array_equal(same(protocol, client, x), x)
    assert executions(protocol, client, "same") == 1


def test_old_responses_leave_when_room_is_short(protocol, start, folder):
    server = start(folder, "--cache-config=local,size=20000").wait_until_ready()
    with protocol.connect(server) as client:
        for number in range(50):
            x = np.full((1, 256), number, np.float32)
            np.testing.assert_array_equal(same(protocol, client, x), x)
        entries, _, _, misses, evictions = figures(server)
        assert misses == 50 and evictions == 50 - entries and 5 < entries < 20
        assert 0.5 < metric(server, "nv_cache_util") <= 1
        # The last one is still there.
        assert executions(protocol, client, "same") == 50
        same(protocol, client, x)
        assert executions(protocol, client, "same") == 50


def test_the_deprecated_option_sets_the_size(start, folder):
    server = start(folder, "--response-cache-byte-size=1048576").wait_until_ready()
    with HTTP.connect(server) as client:
        for _ in range(2):
            same(HTTP, client, np.array([[1]], np.float32))
    assert metric(server, "nv_cache_num_hits") == 1
    assert "please use '--cache-config=local,size=1048576' instead" in server.log()


@pytest.mark.parametrize(
    "setting, text",
    [
        ("size=0", "'size' must be at least 1024 bytes, but is 0"),
        ("size=1023", "'size' must be at least 1024 bytes, but is 1023"),
        ("size=1e9", "'size' must be a number of bytes, but is '1e9'"),
        ("size=1000000000000000", "'size' is 1000000000000000 bytes, but the server may use only "),
        ("colour=blue", "there is no setting 'colour'; there are 'size' and 'reserve'"),
    ],
)
def test_a_size_that_cannot_be_keeps_the_server_from_starting(tmp_path, folder, setting, text):
    with pytest.raises(AssertionError) as failed, Server(tmp_path, folder, f"--cache-config=local,{setting}"):
        pass
    assert f"Failed to initialize LocalCache: {text}" in str(failed.value)
