"""A model that negates rows of three numbers, and requests to it."""

import numpy as np
import repository as models
from protocols import HTTP


def graph():
    return models.graph("negative (float[batch, 3] X) => (float[batch, 3] Y) { Y = Neg(X) }")


def check_rows(client, model, count):
    """Asks with so many rows, and checks the answer."""
    wanted = np.random.default_rng(count).normal(size=(count, 3)).astype(np.float32)
    answer = client.infer(model, [HTTP.input("X", wanted)]).as_numpy("Y")
    assert np.array_equal(answer, -wanted)
