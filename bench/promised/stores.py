"""What a store of responses or of models that hangs may take."""

import contextlib
import time

import numpy as np
import processes
from adders import adds, repository_of, write_adder
from object_servers import SmallStore
from protocols import HTTP
from redis_servers import RedisServer, running
from serving import PATIENCE, command, environment, eventually

from promised.place import milliseconds_until_end
from promised.promise import Promise, measures

AT_ONCE = "at once (0.5 s)"
CACHE = "response-cache.md, the settings of redis"
AWAY = "of the response cache is away: "
REQUESTS = 200


class Asker:
    """A client whose requests are all different, so that each is looked up."""

    def __init__(self, client):
        self._client = client
        self._count = 0

    def milliseconds(self):
        self._count += 1
        x = np.array([[self._count]], np.float32)
        begun = time.monotonic()
        self._client.infer("same", [HTTP.input("X", x)])
        return 1000 * (time.monotonic() - begun)


ROW = "differences.md, a redis store that is away"
NO_WAIT = "no wait for it (200 ms)"


@measures(
    Promise(
        "a request, the redis store hangs, socket_timeout=200", CACHE, "200 ms, and the request", "ms", most=250, least=200
    ),
    Promise("slowest of 200 later requests, the redis store hangs", ROW, NO_WAIT, "ms", most=199),
)
def redis_hangs(place):
    return away(place, RedisServer.pause)


@measures(Promise("slowest of 200 later requests, the redis store is killed", ROW, NO_WAIT, "ms", most=199))
def redis_is_killed(place):
    return away(place, RedisServer.kill)[1]


def away(place, leave):
    """The time of the first request when the store has left, and the longest of those when the server knows."""
    with (
        running(RedisServer(place.folder)) as redis,
        place.start(place.shared.cached, *redis.cache_options(socket_timeout=200)) as server,
        HTTP.connect(server.wait_until_ready()) as client,
    ):
        asker = Asker(client)
        asker.milliseconds()
        leave(redis)
        first = asker.milliseconds()
        while AWAY not in server.log():
            asker.milliseconds()
        return first, max(asker.milliseconds() for _ in range(REQUESTS))


@measures(Promise("end, the redis store hangs", None, AT_ONCE, "ms", most=500))
def redis_stop(place):
    with (
        running(RedisServer(place.folder)) as redis,
        place.start(place.shared.cached, *redis.cache_options(socket_timeout=3600000)) as server,
        HTTP.connect(server.wait_until_ready()) as client,
    ):
        redis.pause()
        Asker(client).milliseconds()
        return milliseconds_until_end(server.process)


@measures(Promise("start fails, the redis store hangs, connect_timeout=300", CACHE, "300 ms", "ms", most=400, least=300))
def redis_start(place):
    with running(RedisServer(place.folder)) as redis:
        redis.pause()
        line = command(place.shared.cached, *redis.cache_options(connect_timeout=300))
        begun = time.monotonic()
        ended = processes.run(line, env=environment())
        passed = time.monotonic() - begun
        assert ended.returncode == 1 and "there was no answer within 300 ms" in ended.stderr, ended.stderr
        return 1000 * passed


S3 = "object-stores.md, a signal while a store hangs"
POLLING = ("--model-control-mode=poll", "--repository-poll-secs=1", "--repository-settle-ms=100")


@contextlib.contextmanager
def small_store(folder):
    store = SmallStore()
    store.variables = store.variables | {"AWS_EC2_METADATA_DISABLED": "true"}
    store.upload(folder, "models")
    try:
        yield store
    finally:
        store.stop()


@measures(Promise("end at the start, the S3 store hangs", S3, AT_ONCE, "ms", most=500))
def s3_start(place):
    """The slowest of three starts: the store holds the listing, a model, or its configuration."""
    folder = repository_of(place.folder, "a")
    times = []
    for number, key in enumerate(("", "models/a/1/model.onnx", "models/a/config.pbtxt")):
        with small_store(folder) as store:
            hold = store.hold(key)
            line = command(f"{store.url}/models", f"--model-repository-cache-directory={place.folder / f'cache{number}'}")
            variables = environment() | store.variables
            with processes.running(line, env=variables, stdout=processes.DEVNULL, stderr=processes.DEVNULL) as process:
                hold.wait_until_reached()
                times.append(milliseconds_until_end(process))
                assert process.wait(PATIENCE) == 0
            hold.release()
    return max(times)


@measures(Promise("end, the S3 store hangs while it is polled", S3, AT_ONCE, "ms", most=500))
def s3_polled(place):
    """The slower one of two servers: the store holds the listing, or a model."""
    times = []
    for number, key in enumerate(("", "models/b/1/model.onnx")):
        own = place.new_folder(str(number))
        folder = repository_of(own, "a")
        with small_store(folder) as store:
            cache = f"--model-repository-cache-directory={own / 'cache'}"
            with place.start(f"{store.url}/models", cache, *POLLING, variables=store.variables) as server:
                server.wait_until_ready()
                hold = store.hold(key)
                write_adder(folder, "b", 2)
                store.upload(folder, "models")
                hold.wait_until_reached()
                times.append(milliseconds_until_end(server.process))
            hold.release()
    return max(times)


@measures(
    Promise(
        "a change of another repository serves, a listing of S3 hangs",
        "object-stores.md, Changes",
        "5 s, then no wait (8 s)",
        "s",
        most=8,
    )
)
def s3_beside_another(place):
    folder, local = repository_of(place.folder, "a"), place.new_folder("local")
    write_adder(local, "b", 2)
    with small_store(folder) as store:
        options = (f"--model-repository={local}", f"--model-repository-cache-directory={place.folder / 'cache'}", *POLLING)
        with (
            place.start(f"{store.url}/models", *options, variables=store.variables) as server,
            HTTP.connect(server.wait_until_ready()) as client,
        ):
            hold = store.hold("")
            hold.wait_until_reached()
            begun = time.monotonic()
            write_adder(local, "b", 5)
            eventually(lambda: adds(HTTP, client, "b", 5), "the change of the other repository")
            passed = time.monotonic() - begun
            hold.release()
    return passed
