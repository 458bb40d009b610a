"""What three replicas have together, answers and models in a store, and what each has for itself (docs/replicas.md)."""

import contextlib

import pytest
from adders import EXPLICIT, adds, answer, index, repository_of, write_adder
from object_servers import SmallStore
from protocols import HTTP, metric
from redis_servers import RedisServer, running
from serving import eventually

COUNT = 3
POLL = ("--model-control-mode=poll", "--repository-poll-secs=1", "--repository-settle-ms=100")
CACHED = "response_cache { enable: true }\n"


@pytest.fixture
def store():
    store = SmallStore()
    yield store
    store.stop()


@pytest.fixture
def replicas(start, tmp_path, store):
    """Starts replicas with the models of the store. Each has copies of its own. Gives a client of each, too."""
    with contextlib.ExitStack() as clients:

        def replicas(*options):
            copies = [f"--model-repository-cache-directory={tmp_path}/copies{number}" for number in range(COUNT)]
            variables = store.variables | {"AWS_EC2_METADATA_DISABLED": "true"}
            servers = [start(f"{store.url}/models", own, *options, variables=variables).wait_until_ready() for own in copies]
            return [(server, clients.enter_context(HTTP.connect(server))) for server in servers]

        yield replicas


def executions(client):
    return HTTP.statistics(client, "a").get("execution_count", 0)


def test_what_one_has_computed_all_have(replicas, store, tmp_path):
    folder = repository_of(tmp_path)
    write_adder(folder, "a", 1, config=CACHED)
    store.upload(folder, "models")
    with running(RedisServer(tmp_path)) as redis:
        (_, first), *others = replicas(*redis.cache_options())
        assert answer(HTTP, first, "a") == 1
        eventually(redis.keys, "the answer in the store")
        for server, client in others:
            assert answer(HTTP, client, "a") == 1
            assert (executions(client), metric(server, "nv_cache_num_hits")) == (0, 1)
        assert executions(first) == 1


def test_a_new_version_is_everywhere_after_the_next_looks(replicas, store, tmp_path):
    folder = repository_of(tmp_path, "a")
    store.upload(folder, "models")
    running = replicas(*POLL)
    assert [answer(HTTP, client, "a") for _, client in running] == [1] * COUNT
    write_adder(folder, "a", 2, version=2)
    store.upload(folder, "models")
    for _, client in running:
        eventually(lambda client=client: adds(HTTP, client, "a", 2), "the new version")


def test_a_call_reaches_one_replica(replicas, store, tmp_path):
    store.upload(repository_of(tmp_path, "a"), "models")
    running = replicas(EXPLICIT)
    running[0][1].load_model("a")
    states = [[state for _, state, _ in index(HTTP, client)["a"]] for _, client in running]
    assert states == [["READY"], [None], [None]]
