"""What a hit of the response cache takes, beside the execution that it saves."""

import statistics
import time

import numpy as np
import repository as models
from protocols import HTTP

from promised.promise import Promise, measures

REQUESTS = 30
# A few milliseconds of work, as of a small network.
ROUNDS = 200


def write_busy(folder):
    """A model that multiplies matrices, and keeps its answers."""
    graph = models.graph(
        """
        busy (float[1] X) => (float[1] Y) <int64 rounds = {ROUNDS}, bool yes = {1}> {
            worn = Loop <body = round (int64 i, bool go, float[128, 128] state) => (bool again, float[128, 128] next) {
                again = Identity(go)
                next = MatMul(state, turn)
            }> (rounds, yes, turn)
            largest = ReduceMax <keepdims = 0> (worn)
            Y = Mul(X, largest)
        }""".replace("ROUNDS", str(ROUNDS)),
        turn=np.roll(np.eye(128, dtype=np.float32), 1, axis=0),
    )
    tensors = models.tensor("input", "X", "FP32", 1) + models.tensor("output", "Y", "FP32", 1)
    models.write(folder, "busy", graph, f"max_batch_size: 0\n{tensors}response_cache {{ enable: true }}\n")
    return folder


@measures(Promise("cache hit, of the time of an execution", "response-cache.md, a hit", "less (1 time)", "times", most=1.0))
def hits(place):
    folder = write_busy(place.new_folder())
    with (
        place.start(folder, "--cache-config=local,size=16777216") as server,
        HTTP.connect(server.wait_until_ready()) as client,
    ):
        executed, cached = (statistics.median(seconds(client, x) for x in range(REQUESTS)) for _ in range(2))
        told = HTTP.statistics(client, "busy")["inference_stats"]
        assert (told["cache_miss"]["count"], told["cache_hit"]["count"]) == (REQUESTS, REQUESTS), told
        return cached / executed


def seconds(client, x):
    """The time of a request."""
    begun = time.monotonic()
    client.infer("busy", [HTTP.input("X", np.array([x], np.float32))])
    return time.monotonic() - begun
