"""Models that add a number, so that each answer tells which copy of which version has computed it; and what clients ask
about models that come and go.
"""

import time

import numpy as np
import pytest
import repository as models
from serving import eventually
from tritonclient.utils import InferenceServerException

CONFIG = "max_batch_size: 0\n" + models.tensor("input", "X", "FP32", 1) + models.tensor("output", "Y", "FP32", 1)
# The same for a load request.
JSON_CONFIG = (
    '{"backend": "onnxruntime", "max_batch_size": 0, "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [1]}],'
    ' "output": [{"name": "Y", "data_type": "TYPE_FP32", "dims": [1]}]}'
)
EXPLICIT = "--model-control-mode=explicit"
# What an index shows of a model whose only version serves.
READY = [("1", "READY", None)]
# A version policy that selects all versions.
ALL = "version_policy { all {} }\n"


def adder(number):
    text = "adder (float[1] X) => (float[1] Y) { Y = Add(X, number) }"
    return models.graph(text, number=np.array([number], np.float32))


def write_adder(repository, name, number, version=1, config=""):
    """Adds or replaces a version of a model: Y = X + number. Returns the model's folder."""
    return models.write(repository, name, adder(number), CONFIG + config, version)


def repository_of(parent, *names):
    """A new repository in a folder, with models that add 1, 2 and so on."""
    folder = parent / "models"
    folder.mkdir()
    for number, name in enumerate(names, 1):
        write_adder(folder, name, number)
    return folder


def answer(protocol, client, name, version=""):
    """The number that a model adds."""
    inputs = [protocol.input("X", np.zeros(1, np.float32))]
    return client.infer(name, inputs, model_version=version).as_numpy("Y").item()


def adds(protocol, client, name, number, version=""):
    """Whether a model adds this number now."""
    try:
        return answer(protocol, client, name, version) == number
    except InferenceServerException:
        return False


def index(protocol, client):
    """The repository's index: version, state and reason of each line, by model; what is absent is None."""
    lines = protocol.json(client.get_model_repository_index)
    found = {}
    for line in lines if protocol.name == "http" else lines.get("models", []):
        found.setdefault(line["name"], []).append(tuple(line.get(key) for key in ("version", "state", "reason")))
    return found


def refusal(ask, *arguments, **named):
    """The code and the text of an error."""
    with pytest.raises(InferenceServerException) as error:
        ask(*arguments, **named)
    return error.value.status(), error.value.message()


def is_unloaded(protocol, client, name, version="1"):
    return (version, "UNAVAILABLE", "unloaded") in index(protocol, client)[name]


def loads(server, name, version=1):
    """How often the server has built a copy of a version."""
    return server.log().count(f'"loading: {name}:{version}"')


def wait_for_looks(server, repository, count=3):
    """Waits until the server has looked at the repositories again: it has seen a change, seen it once more, and acted."""
    for _ in range(count):
        hidden = repository / f".{time.monotonic_ns()}"
        hidden.mkdir()

        def seen(path=hidden):
            assert server.process.poll() is None, server.log_end()
            return f"ignore hidden directory '{path}'" in server.log()

        eventually(seen, "a look")
