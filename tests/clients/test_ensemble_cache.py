"""The response cache of ensembles and of their members, which are cached independently of each other.

The cache is one of the built-in ones, or a test plug-in of the C interface.
"""

import contextlib

import ensembles
import numpy as np
import pytest
from adders import EXPLICIT, answer, index, refusal, write_adder
from ensembles import NO_BATCHES, infer, step, write_plugin_model
from held import build_library
from protocols import HTTP, metric
from redis_servers import RedisServer, running
from repository import tensor
from serving import Server, eventually

CACHED = "response_cache { enable: true }\n"
TENSORS = NO_BATCHES + tensor("input", "IN", "FP32", -1) + tensor("output", "OUT", "FP32", -1)
COPIES = NO_BATCHES + tensor("input", "INPUT0", "FP32", -1) + tensor("output", "OUTPUT0", "FP32", -1)
# In the log, when the cache has not taken a response.
REFUSED = "Failed to insert key"
# Which of the ensemble and its members are cached.
MATRIX = {"neither": (False, False), "ensemble": (True, False), "members": (False, True), "both": (True, True)}


def write(repository, name, ensemble_is_cached, members_are_cached):
    """A chain of two members of its own."""
    for member in ("first", "second"):
        write_plugin_model(repository, f"{name}_{member}", "identity", COPIES + (CACHED if members_are_cached else ""))
    ensembles.write(
        repository,
        name,
        TENSORS,
        step(f"{name}_first", {"INPUT0": "IN"}, {"OUTPUT0": "middle"}),
        step(f"{name}_second", {"INPUT0": "middle"}, {"OUTPUT0": "OUT"}),
        more=CACHED if ensemble_is_cached else "",
    )


def write_branches(repository):
    """A cached ensemble with two outputs."""
    for member in ("left", "right"):
        write_plugin_model(repository, member, "identity", COPIES)
    ensembles.write(
        repository,
        "branches",
        NO_BATCHES
        + tensor("input", "IN", "FP32", -1)
        + tensor("output", "LEFT", "FP32", -1)
        + tensor("output", "RIGHT", "FP32", -1),
        step("left", {"INPUT0": "IN"}, {"OUTPUT0": "LEFT"}),
        step("right", {"INPUT0": "IN"}, {"OUTPUT0": "RIGHT"}),
        more=CACHED,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for name, cached in MATRIX.items():
        write(folder, name, *cached)
    write_branches(folder)
    return folder


@pytest.fixture(scope="module")
def directories(tmp_path_factory):
    """The options that name the directories of backends and caches."""
    backends = ensembles.build_backends(tmp_path_factory.mktemp("backends"))
    caches = build_library(tmp_path_factory.mktemp("caches"), "cache", "libtritoncache_cache.so")
    return f"--backend-directory={backends}", f"--cache-directory={caches}"


@pytest.fixture(scope="module", params=["local,size=1048576", "redis", "cache,entries=1000"])
def server(request, folder, directories, tmp_path_factory):
    place = tmp_path_factory.mktemp("server")
    with contextlib.ExitStack() as stack:
        options = [f"--cache-config={request.param}"]
        if request.param == "redis":
            redis = stack.enter_context(running(RedisServer(place)))
            options = redis.cache_options(socket_timeout=20000)
        server = stack.enter_context(Server(place, folder, *directories, *options))
        yield server.wait_until_ready()


def counts(protocol, client, name):
    """Requests, executions, hits and misses of a model."""
    statistics = protocol.statistics(client, name)
    spent = statistics["inference_stats"]
    found = [spent.get(kind, {}).get("count", 0) for kind in ("success", "cache_hit", "cache_miss")]
    return np.array([found[0], statistics.get("execution_count", 0), *found[1:]])


def of_all(protocol, client, name):
    return np.array([counts(protocol, client, model) for model in (name, f"{name}_first", f"{name}_second")])


def ask_twice(protocol, client, name, x, refused=lambda: 0, refusals=0):
    """Asks the same twice. Returns what the ensemble and its members have counted in that time.

    `refused` counts the insertions that the cache has refused, `refusals` of which belong to one request.
    """
    before = of_all(protocol, client, name)
    is_cached = np.array(MATRIX[name])[[0, 1, 1]]

    def told():
        """Requests of the cached models that have been counted as hits or misses."""
        return (of_all(protocol, client, name) - before)[is_cached]

    for asked in (1, 2):
        np.testing.assert_array_equal(infer(protocol, client, name, {"IN": x})["OUT"], x)
        # A response comes before it is in the cache. Until it is refused, equal requests get it.
        eventually(lambda: (told()[:, 0] == told()[:, 2:].sum(axis=1)).all(), "the response to be in the cache")
        eventually(lambda: refused() == asked * refusals, "the cache to refuse the response")  # noqa: B023
    return (of_all(protocol, client, name) - before).tolist()


EXPECTED = {
    "neither": [[2, 2, 0, 0], [2, 2, 0, 0], [2, 2, 0, 0]],
    "ensemble": [[2, 1, 1, 1], [1, 1, 0, 0], [1, 1, 0, 0]],
    "members": [[2, 2, 0, 0], [2, 1, 1, 1], [2, 1, 1, 1]],
    "both": [[2, 1, 1, 1], [1, 1, 0, 1], [1, 1, 0, 1]],
}


@pytest.mark.parametrize("name", MATRIX)
def test_an_ensemble_and_its_members_are_cached_independently(protocol, client, name):
    x = np.array([1.5, 2.5, len(protocol.name)], np.float32) + (protocol is HTTP)
    assert ask_twice(protocol, client, name, x) == EXPECTED[name]


def test_metrics_count_hits_and_misses_of_an_ensemble(protocol, server, client):
    def read():
        return [metric(server, f"nv_cache_num_{kind}_per_model", model="both", version=1) for kind in ("hits", "misses")]

    before = read()
    ask_twice(protocol, client, "both", np.array([77.0, protocol is HTTP], np.float32))
    assert [after - earlier for after, earlier in zip(read(), before, strict=True)] == [1, 1]


def test_other_inputs_are_another_request(protocol, client):
    base = 1000.0 * (1 + (protocol is HTTP))
    for x in (base, base + 1, base + 2):
        x = np.array([x], np.float32)
        assert infer(protocol, client, "both", {"IN": x})["OUT"].tolist() == x.tolist()


def test_a_cached_answer_has_the_id_of_its_own_request(protocol, client):
    x = {"IN": np.array([5.0, protocol is HTTP], np.float32)}
    for request_id in ("one", "two", "three"):
        response = ensembles.ask(protocol, client, "ensemble", x, request_id=request_id).get_response()
        assert (response["id"] if protocol is HTTP else response.id) == request_id


def test_a_cached_answer_has_the_outputs_that_are_wanted(protocol, client):
    x = np.array([9.0, protocol is HTTP], np.float32)
    for outputs in (["LEFT"], ["RIGHT"], ["LEFT", "RIGHT"], None, ["RIGHT"]):
        answer = infer(protocol, client, "branches", {"IN": x}, outputs)
        assert set(answer) == set(outputs or ["LEFT", "RIGHT"])
        assert all(array.tolist() == x.tolist() for array in answer.values())


def test_a_response_that_the_cache_refuses_is_a_miss(protocol, start, folder, directories):
    server = start(folder, *directories, "--cache-config=cache,fail_at=insert").wait_until_ready()
    with protocol.connect(server) as client:
        x = np.array([3.0], np.float32)
        counted = ask_twice(protocol, client, "ensemble", x, lambda: server.log().count(REFUSED), 1)
        assert counted == [[2, 2, 0, 2], [2, 2, 0, 0], [2, 2, 0, 0]]


@pytest.fixture
def start_explicit(start, tmp_path, directories):
    """Starts a server with a cache and a repository of its own, which it returns, too."""

    def start_explicit():
        (tmp_path / "models").mkdir()
        return tmp_path / "models", start(tmp_path / "models", EXPLICIT, *directories, "--cache-config=cache,entries=1000")

    return start_explicit


def test_the_answers_of_a_member_that_was_replaced_are_forgotten(protocol, start_explicit):
    folder, server = start_explicit()
    write_adder(folder, "member", 1)
    tensors = NO_BATCHES + tensor("input", "X", "FP32", 1) + tensor("output", "Y", "FP32", 1)
    ensembles.write(folder, "cached", tensors, step("member", {"X": "X"}, {"Y": "Y"}), more=CACHED)
    with protocol.connect(server) as client:
        client.load_model("cached")
        assert [answer(protocol, client, "cached") for _ in range(2)] == [1, 1]
        write_adder(folder, "member", 2)
        client.load_model("member")
        assert [answer(protocol, client, "cached") for _ in range(2)] == [2, 2]


def test_an_error_is_not_cached(protocol, start_explicit):
    folder, server = start_explicit()
    tensors = NO_BATCHES + tensor("input", "INPUT", "FP32", 1) + tensor("output", "OUTPUT", "FP32", 1)
    fails = 'parameters { key: "fail_at" value: { string_value: "response" } }\n'
    write_plugin_model(folder, "faulty", "failing", tensors + fails)
    ensembles.write(folder, "cached", tensors, step("faulty", {"INPUT": "INPUT"}, {"OUTPUT": "OUTPUT"}), more=CACHED)
    with protocol.connect(server) as client:
        client.load_model("cached")
        for _ in range(3):
            _, text = refusal(infer, protocol, client, "cached", {"INPUT": np.zeros(1, np.float32)})
            assert text == "in ensemble 'cached', failed as wanted: response"


def test_an_ensemble_with_a_decoupled_member_cannot_be_cached(protocol, start_explicit):
    folder, server = start_explicit()
    tensors = NO_BATCHES + tensor("input", "IN", "INT32", -1) + tensor("output", "OUT", "INT32", 1)
    decoupled = "model_transaction_policy { decoupled: true }\n" + tensor("output", "IDX", "UINT32", 1)
    write_plugin_model(folder, "repeat", "repeat", tensors + decoupled)
    ensembles.write(folder, "cached", tensors, step("repeat", {"IN": "IN"}, {"OUT": "OUT"}), more=CACHED)
    text = "Response Cache does not currently support model cached with 'decoupled' transaction policy."
    with protocol.connect(server) as client:
        _, told = refusal(client.load_model, "cached")
        reasons = [reason or "" for _, _, reason in index(protocol, client)["cached"]]
        assert text in "\n".join([told, *reasons, server.log()])
        assert not client.is_model_ready("cached")


def test_a_response_that_is_too_large_for_the_cache_is_a_miss(protocol, start, folder, directories):
    server = start(folder, directories[0], "--cache-config=local,size=4096").wait_until_ready()
    with protocol.connect(server) as client:
        x = np.arange(10_000, dtype=np.float32)
        counted = ask_twice(protocol, client, "both", x, lambda: server.log().count(REFUSED), 3)
        assert counted == [[2, 2, 0, 2], [2, 2, 0, 2], [2, 2, 0, 2]]


def test_without_a_cache_everything_is_executed(protocol, start, folder, directories):
    with protocol.connect(start(folder, directories[0]).wait_until_ready()) as client:
        x = np.array([3.0], np.float32)
        for _ in range(2):
            infer(protocol, client, "both", {"IN": x})
        assert of_all(protocol, client, "both").tolist() == [[2, 2, 0, 0]] * 3
