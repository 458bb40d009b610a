"""The response cache that servers share: `--cache-config=redis,...` with a real store, which fails and comes back."""

import contextlib
import shutil
import threading

import ensembles
import numpy as np
import programs
import pytest
import repository as models
from held import build_library
from protocols import HTTP, metric
from redis_servers import ENTRIES, SECRET, RedisServer, TlsRedisServer, make_certificates, running
from repository import tensor
from serving import PATIENCE, Server, eventually, free_port

CACHED = "response_cache { enable: true }\n"
# How long a look-up may take, in milliseconds: more than it takes on a busy machine.
LIMIT = 2000
LOAD_THREADS = 8
# In the log, when that has changed.
AWAY = "of the response cache is away: "
BACK = "of the response cache is back"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model that gives back a matrix of any shape."""
    folder = tmp_path_factory.mktemp("models")
    graph = models.graph("same (float[h, w] X) => (float[h, w] Y) { Y = Identity(X) }")
    config = "max_batch_size: 0\n" + tensor("input", "X", "FP32", -1, -1) + tensor("output", "Y", "FP32", -1, -1)
    models.write(folder, "same", graph, config + CACHED)
    return folder


@pytest.fixture
def redis(tmp_path):
    with running(RedisServer(tmp_path)) as redis:
        yield redis


def ask(server, x, protocol=HTTP):
    with protocol.connect(server) as client:
        answer = client.infer("same", [protocol.input("X", x)]).as_numpy("Y")
    np.testing.assert_array_equal(answer, x)


def executions(server):
    with HTTP.connect(server) as client:
        return HTTP.statistics(client, "same").get("execution_count", 0)


def failed(server, operation, reason):
    return metric(server, "nereid_cache_failed_operations_total", operation=operation, reason=reason)


def is_available(server):
    return metric(server, "nereid_cache_available") == 1


def ask_until_stored(server, redis, x):
    """Asks, and waits until the store has one more answer."""
    before = len(redis.keys())
    ask(server, x)
    eventually(lambda: len(redis.keys()) == before + 1, "the answer in the store")


def ask_until(server, x, condition, what):
    """Repeats a request. Until the server itself has forgotten an answer that it stores, it does not ask the store."""

    def asked():
        ask(server, x)
        return condition()

    eventually(asked, what)


def hits(server):
    return metric(server, "nv_cache_num_hits")


def test_servers_share_answers_and_find_them_after_a_restart(start, folder, redis, protocol):
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    one, other = (start(folder, *redis.cache_options()).wait_until_ready() for _ in range(2))
    ask_until_stored(one, redis, x)
    ask(other, x, protocol)
    assert (executions(one), executions(other)) == (1, 0)
    assert hits(other) == 1
    for server in (one, other):
        server.terminate()
        server.process.wait()
    later = start(folder, *redis.cache_options()).wait_until_ready()
    ask(later, x, protocol)
    ask(later, x + 1, protocol)
    assert executions(later) == 1
    assert len(redis.ask("GET", SECRET)) == 32


def write_chain(folder, member):
    """A cached ensemble with one member that is not cached."""
    config = "max_batch_size: 0\n" + tensor("input", "X", "FP32", -1) + tensor("output", "Y", "FP32", -1)
    models.write(folder, "member", models.graph(f"member (float[n] X) => (float[n] Y) {{ Y = {member}(X) }}"), config)
    steps = ensembles.step("member", {"X": "X"}, {"Y": "Y"})
    ensembles.write(folder, "chain", config, steps, more=CACHED)
    return folder


def test_servers_share_answers_of_ensembles_with_the_same_members(start, tmp_path, redis, protocol):
    same, also_same = write_chain(tmp_path / "a", "Identity"), write_chain(tmp_path / "b", "Identity")
    folders = [same, also_same, write_chain(tmp_path / "c", "Neg")]
    one, other, different = (start(folder, *redis.cache_options()).wait_until_ready() for folder in folders)
    x = np.arange(3, dtype=np.float32)

    def ask_chain(server, protocol, factor=1):
        with protocol.connect(server) as client:
            answer = client.infer("chain", [protocol.input("X", x)]).as_numpy("Y")
        np.testing.assert_array_equal(answer, factor * x)

    ask_chain(one, HTTP)
    eventually(redis.keys, "the answer in the store")
    ask_chain(other, protocol)
    assert (hits(one), hits(other)) == (0, 1)
    ask_chain(different, protocol, factor=-1)
    assert hits(different) == 0


def test_large_answers_are_shared(start, folder, redis):
    x = np.random.default_rng(3).random((1024, 1024), np.float32)
    one, other = (start(folder, *redis.cache_options(socket_timeout=20000)).wait_until_ready() for _ in range(2))
    ask_until_stored(one, redis, x)
    ask(other, x)
    assert executions(other) == 0


class Load:
    """Clients that ask without pause: half of their requests are repeated ones."""

    def __init__(self, server):
        self.answers, self.errors = 0, []
        self._lock = threading.Lock()
        self._server, self._ends = server, threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(LOAD_THREADS)]

    def _run(self, number):
        with HTTP.connect(self._server) as client:
            for count in range(10**9):
                if self._ends.is_set():
                    return
                x = np.array([[number, count % 5 if count % 2 else count]], np.float32)
                try:
                    answer = client.infer("same", [HTTP.input("X", x)]).as_numpy("Y")
                    assert answer.tolist() == x.tolist()
                except Exception as error:  # noqa: BLE001
                    self.errors.append(repr(error))
                with self._lock:
                    self.answers += 1

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._ends.set()
        for thread in self._threads:
            thread.join()

    def wait_for_more(self, count=200):
        """Waits until so many further requests have ended."""
        before = self.answers
        eventually(lambda: self.answers >= before + count, "further requests")


FAULTS = {
    "kill": (RedisServer.kill, RedisServer.start),
    "pause": (RedisServer.pause, RedisServer.go_on),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_no_request_fails_or_waits_long_while_the_store_is_away(start, folder, redis, fault):
    breaks, heals = FAULTS[fault]
    server = start(folder, *redis.cache_options(socket_timeout=LIMIT)).wait_until_ready()
    with Load(server) as load:
        load.wait_for_more()
        assert hits(server) > 0
        for count in (1, 2):
            breaks(redis)
            eventually(lambda: server.log().count(AWAY) == count, "the log to say that the store is away")  # noqa: B023
            assert not is_available(server)
            # Nobody waits for the store any more: requests end, and no further one reaches the limit.
            timeouts = failed(server, "look_up", "timeout")
            load.wait_for_more()
            assert failed(server, "look_up", "timeout") - timeouts <= LOAD_THREADS
            heals(redis)
            eventually(lambda: is_available(server), "the store to be back")
            before = hits(server)
            eventually(lambda: hits(server) > before, "hits")  # noqa: B023
    assert load.errors == []
    # Each thread has waited for the limit at most a few times, not once a request.
    assert failed(server, "look_up", "timeout") <= 2 * (LOAD_THREADS + 3)
    assert failed(server, "look_up", "away") > 100
    # The store is back before the line is written.
    server.wait_for_log(BACK, 2)
    log = server.log()
    assert (log.count(AWAY), log.count(BACK)) == (2, 2)
    assert "Failed to insert key" not in log


def test_a_server_stops_while_the_store_hangs(start, folder, redis):
    server = start(folder, *redis.cache_options(socket_timeout=3600000)).wait_until_ready()
    redis.pause()
    ask(server, np.ones((1, 1), np.float32))
    server.terminate()
    assert server.process.wait(PATIENCE) == 0


def refusal(tmp_path, folder, options, variables=None):
    """The end of the log of a server that does not start."""
    with pytest.raises(AssertionError) as refused, Server(tmp_path, folder, *options, variables=variables):
        pass
    return str(refused.value)


def test_a_store_that_cannot_be_used_keeps_the_server_from_starting(tmp_path, folder):
    text = refusal(tmp_path, folder, ["--cache-config=redis,host=127.0.0.1"])
    assert "Failed to initialize RedisCache, didn't specify address. Must at a minimum specify 'host' and 'port'" in text
    port = free_port()
    address = [f"--cache-config=redis,{setting}" for setting in ("host=127.0.0.1", f"port={port}")]
    text = refusal(tmp_path, folder, address)
    refused = "Connection refused (os error 111)"
    assert f"Failed to initialize RedisCache: cannot connect to '127.0.0.1:{port}': {refused}" in text
    text = refusal(tmp_path, folder, [*address, "--cache-config=redis,colour=blue"])
    assert "Failed to initialize RedisCache: there is no setting 'colour'; there are host, port, " in text
    text = refusal(tmp_path, folder, ["--cache-config=redis,host=no.such.host.invalid", "--cache-config=redis,port=1"])
    assert "Failed to initialize RedisCache: cannot connect to 'no.such.host.invalid:1': " in text


def test_a_store_that_hangs_keeps_the_server_from_starting_within_the_limit(tmp_path, folder, redis):
    redis.pause()
    text = refusal(tmp_path, folder, redis.cache_options(connect_timeout=300))
    assert f"'127.0.0.1:{redis.port}' cannot be used: there was no answer within 300 ms" in text


def test_passwords(tmp_path, start, folder):
    x = np.ones((1, 2), np.float32)
    with running(RedisServer(tmp_path, password="hunter2")) as redis:
        assert "NOAUTH Authentication required." in refusal(tmp_path, folder, redis.cache_options())
        text = refusal(tmp_path, folder, redis.cache_options(password="wrong-word"))
        assert "WRONGPASS invalid username-password pair or user is disabled." in text
        assert "wrong-word" not in text
        # The least rights, as documented.
        redis.ask(*"ACL SETUSER me on >sesame ~nereid:* +ping +get +set +select +scan +unlink".split())
        wrong = {"TRITONCACHE_REDIS_PASSWORD": "wrong-word"}
        assert "WRONGPASS" in refusal(tmp_path, folder, redis.cache_options(), wrong)
        both = {"TRITONCACHE_REDIS_USERNAME": "me", "TRITONCACHE_REDIS_PASSWORD": "sesame"}
        for options, variables in [
            (redis.cache_options(password="hunter2"), wrong),
            (redis.cache_options(user="me", password="sesame", db=1), {}),
            (redis.cache_options(), both),
        ]:
            redis.ask("FLUSHALL")
            server = start(folder, *options, "--log-verbose=1", variables=variables)
            ask(server.wait_until_ready(), x)
            ask_until(server, x, lambda: hits(server) > 0, "a hit")  # noqa: B023
            assert not any(word in server.log() for word in ("hunter2", "sesame", "wrong-word"))


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def test_answers_are_stored_over_tls(tmp_path, start, folder, certificates):
    x = np.ones((1, 2), np.float32)
    trusted = tmp_path / "trusted"
    trusted.mkdir()
    shutil.copy(certificates / "ca.pem", trusted)
    (trusted / "readme").write_text("no certificate")
    tls = {"tls_enabled": "true", "sni": "redis.test"}
    with running(TlsRedisServer(tmp_path, certificates, "--tls-auth-clients", "no")) as redis:
        for trust in ({"cacert": certificates / "ca.pem"}, {"cacert_dir": trusted}):
            redis.ask("FLUSHALL")
            server = start(folder, *redis.cache_options(**tls, **trust)).wait_until_ready()
            ask_until_stored(server, redis, x)
            ask_until(server, x, lambda: hits(server) > 0, "a hit")  # noqa: B023
            assert executions(server) == 1
        handshake = f"the TLS handshake with '127.0.0.1:{redis.tls_port}' failed: "
        text = refusal(tmp_path, folder, redis.cache_options(**tls, cacert=certificates / "other.pem"))
        assert f"{handshake}invalid peer certificate: " in text
        text = refusal(tmp_path, folder, redis.cache_options(tls_enabled="true", cacert=certificates / "ca.pem"))
        assert f"{handshake}invalid peer certificate: certificate not valid for name" in text
        text = refusal(tmp_path, folder, redis.cache_options())
        assert "If this port needs TLS, set 'tls_enabled=true'" in text
        text = refusal(tmp_path, folder, redis.cache_options(**tls, cacert=tmp_path / "missing.pem"))
        assert f"Failed to initialize RedisCache: 'cacert' is '{tmp_path}/missing.pem': " in text


def test_a_store_may_require_a_certificate_of_its_clients(tmp_path, start, folder, certificates):
    tls = {"tls_enabled": "true", "sni": "redis.test", "cacert": certificates / "ca.pem"}
    own = {"cert": certificates / "client.pem", "key": certificates / "client.key"}
    with running(TlsRedisServer(tmp_path, certificates)) as redis:
        server = start(folder, *redis.cache_options(**tls, **own)).wait_until_ready()
        ask_until_stored(server, redis, np.ones((1, 2), np.float32))
        text = refusal(tmp_path, folder, redis.cache_options(**tls))
        assert f"Failed to initialize RedisCache: '127.0.0.1:{redis.tls_port}' cannot be used: " in text


def test_tls_against_a_port_without_it_is_an_error_that_says_so(tmp_path, folder, redis, certificates):
    options = redis.cache_options(tls_enabled="true", sni="redis.test", cacert=certificates / "ca.pem", connect_timeout=1000)
    text = refusal(tmp_path, folder, options)
    assert f"the TLS handshake with '127.0.0.1:{redis.port}' failed: " in text
    assert "Does this port use TLS?" in text


def flip(redis, key, place):
    value = bytearray(redis.ask("GET", key))
    value[place] ^= 1
    redis.ask("SET", key, bytes(value))


# What may have become of a value. The ninth byte is that of the version.
DAMAGES = {
    "a byte of the tensor": lambda redis, key: flip(redis, key, -9),
    "another version": lambda redis, key: flip(redis, key, 8),
    "another beginning": lambda redis, key: flip(redis, key, 0),
    "half of it": lambda redis, key: redis.ask("SET", key, redis.ask("GET", key)[:60]),
    "nothing": lambda redis, key: redis.ask("SET", key, b""),
}


def timeless(value):
    """A value without its checksum and the time of the answer."""
    return value and value[:16] + value[40:]


def test_values_that_cannot_be_read_are_misses_and_are_replaced(start, folder, redis):
    server = start(folder, *redis.cache_options()).wait_until_ready()
    x = np.ones((1, 2), np.float32)
    ask_until_stored(server, redis, x)
    (key,) = redis.keys()
    whole = redis.ask("GET", key)
    assert whole.startswith(b"NereidRC\x01\0\0\0")
    for count, (name, damage) in enumerate(DAMAGES.items(), 1):
        damage(redis, key)
        ask_until(server, x, lambda: executions(server) == count + 1, f"a miss: {name}")  # noqa: B023
        assert failed(server, "look_up", "unreadable") == count
        eventually(lambda: timeless(redis.ask("GET", key)) == timeless(whole), "the value to be replaced")
    ask(server, x)
    assert executions(server) == count + 1


def test_a_value_of_another_type_is_a_miss_and_is_replaced(start, folder, redis):
    server = start(folder, *redis.cache_options()).wait_until_ready()
    x = np.ones((1, 2), np.float32)
    ask_until_stored(server, redis, x)
    (key,) = redis.keys()
    redis.ask("DEL", key)
    redis.ask("HSET", key, "0_buf", "x")
    ask_until(server, x, lambda: executions(server) == 2, "a miss")
    eventually(lambda: redis.ask("TYPE", key) == b"string", "the value to be replaced")
    ask(server, x)
    assert executions(server) == 2
    assert is_available(server)


def test_entries_expire_if_that_is_wanted(start, folder, redis):
    x = np.ones((1, 2), np.float32)
    ask_until_stored(start(folder, *redis.cache_options()).wait_until_ready(), redis, x)
    assert redis.ask("PTTL", redis.keys()[0]) == -1
    redis.ask("FLUSHALL")
    server = start(folder, *redis.cache_options(ttl=3600)).wait_until_ready()
    ask_until_stored(server, redis, x)
    assert 0 < redis.ask("PTTL", redis.keys()[0]) <= 3_600_000
    redis.ask("PEXPIRE", redis.keys()[0], 1)
    eventually(lambda: not redis.keys(), "the answer to expire")
    ask_until(server, x, lambda: executions(server) == 2, "a miss")
    assert redis.ask("PTTL", SECRET) == -1


def test_a_store_without_room_refuses_answers_and_no_request_fails(start, folder, redis):
    server = start(folder, *redis.cache_options()).wait_until_ready()
    redis.ask("CONFIG", "SET", "maxmemory", "1")
    for number in range(20):
        ask(server, np.full((1, 2), number, np.float32))
    eventually(lambda: failed(server, "insertion", "refused") == 20, "refusals")
    assert is_available(server)
    assert server.log().count("the store of the response cache refuses insertions: OOM ") == 1
    redis.ask("CONFIG", "SET", "maxmemory", "0")
    ask_until_stored(server, redis, np.full((1, 2), 0, np.float32))
    eventually(lambda: "takes insertions again" in server.log(), "the log")


def test_the_metrics_are_those_that_are_documented(start, folder, redis):
    server = start(folder, *redis.cache_options()).wait_until_ready()
    x = np.ones((1, 2), np.float32)
    ask_until_stored(server, redis, x)
    ask_until(server, x, lambda: hits(server) == 1, "a hit")
    figures = [metric(server, f"nv_cache_num_{name}") for name in ("lookups", "hits", "misses")]
    assert figures == [2, 1, 1]
    assert metric(server, "nv_cache_lookup_duration") > 0
    eventually(lambda: metric(server, "nv_cache_insertion_duration") > 0, "the insertion to be counted")
    assert metric(server, "nereid_cache_available") == 1
    for operation in ("look_up", "insertion"):
        for reason in ("away", "limit", "timeout", "connection", "refused", "unreadable"):
            assert failed(server, operation, reason) == 0


def test_a_library_of_that_name_has_priority(tmp_path, start, folder):
    build_library(tmp_path / "caches", "cache", "libtritoncache_redis.so")
    (tmp_path / "caches" / "cache").rename(tmp_path / "caches" / "redis")
    options = [f"--cache-directory={tmp_path / 'caches'}", "--cache-config=redis,entries=10"]
    server = start(folder, *options).wait_until_ready()
    x = np.ones((1, 2), np.float32)
    for _ in range(2):
        ask(server, x)
    with contextlib.suppress(AssertionError):
        metric(server, "nereid_cache_available")
        pytest.fail("the built-in cache is used")
    assert ENTRIES not in server.log()


@pytest.mark.redis_library
def test_the_library_of_triton_keeps_answers_in_the_store(start, tmp_path, folder, redis):
    place = tmp_path / "caches/redis/libtritoncache_redis.so"
    place.parent.mkdir(parents=True)
    place.symlink_to(programs.of_no_package("NEREID_TEST_REDIS_LIBRARY"))
    server = start(folder, f"--cache-directory={tmp_path / 'caches'}", *redis.cache_options()).wait_until_ready()
    for number in range(3):
        x = np.full((2, 3), number, np.float32)
        ask(server, x)
        # An answer is stored after it was sent.
        eventually(lambda: len(redis.ask("KEYS", "same/1/*")) == number + 1, "the answer in the store")
        ask(server, x)
    with HTTP.connect(server) as client:
        told = HTTP.statistics(client, "same")
    assert (told["execution_count"], told["inference_stats"]["cache_hit"]["count"]) == (3, 3)
    assert not redis.keys()
    redis.kill()
    ask(server, np.zeros((1, 1), np.float32))
