"""What the backend in Python adds to a network of PyTorch, beside a model in Python that computes the same with NumPy.

Usage: pytorch.py --rounds N [--filter TEXT]. Prints a row of a table in Markdown for each kind of network: microseconds of an
execution by the backend, of the bare call of the network, of an execution of the other model, and what the backend adds to both.
The network adds two tensors of 16 numbers, on one thread. Executions are those of a worker, without the process around it. Each
figure is the least of short slices, in which the contenders take turns: the call of an exported program takes a tenth of a
millisecond, and the difference to it is small.
"""

import argparse
import gc
import json
import pathlib
import sys
import tempfile
import time
import warnings

import numpy as np
import torch

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "crates/backend-python/python"))

import nereid_host  # noqa: E402
import nereid_pytorch  # noqa: E402
from nereid_response import InferenceResponse  # noqa: E402
from nereid_tensor import Tensor  # noqa: E402

NUMBERS = 16
# A round has so many slices, and each contender runs so many seconds in each.
SLICES, SLICE = 20, 0.01


class Network(torch.nn.Module):
    def forward(self, a, b):
        return a + b


class Host:
    """What a model asks of its worker."""

    def __init__(self, folder):
        self.model_dir = str(folder)


class Request:
    def __init__(self, arrays):
        self._inputs = [Tensor(name, array) for name, array in arrays.items()]

    def inputs(self):
        return self._inputs


class NumPyModel:
    """The model in Python that a user would write."""

    def execute(self, requests):
        responses = []
        for request in requests:
            a, b = (tensor.as_numpy() for tensor in request.inputs())
            responses.append(InferenceResponse([Tensor("OUTPUT__0", a + b)]))
        return responses


def write_script(folder, example):
    torch.jit.script(Network()).save(folder / "model.pt")
    return torch.jit.load(folder / "model.pt")


def write_program(folder, example):
    torch.export.save(torch.export.export(Network(), example), folder / "model.pt2")
    return torch.export.load(folder / "model.pt2").module()


KINDS = {"TorchScript": write_script, "an exported program": write_program}


def loaded(folder):
    """The backend with the model of a folder."""
    nereid_host.connect(Host(folder))
    tensor = {"data_type": "TYPE_FP32", "dims": [NUMBERS]}
    config = {
        "max_batch_size": 0,
        "input": [tensor | {"name": name} for name in ("INPUT__0", "INPUT__1")],
        "output": [tensor | {"name": "OUTPUT__0"}],
    }
    model = nereid_pytorch.TritonPythonModel()
    model.initialize(
        {
            "model_config": json.dumps(config),
            "model_name": "sum",
            "model_instance_kind": "CPU",
            "model_instance_device_id": "0",
            "model_instance_threads": "1",
        }
    )
    return model


def microseconds(call):
    calls, begun = 0, time.perf_counter()
    while (passed := time.perf_counter() - begun) < SLICE:
        for _ in range(20):
            call()
        calls += 20
    return passed / calls * 1e6


def row(kind, write, rounds):
    arrays = {name: np.arange(NUMBERS, dtype=np.float32) for name in ("INPUT__0", "INPUT__1")}
    with tempfile.TemporaryDirectory() as folder:
        network = write(pathlib.Path(folder), tuple(map(torch.from_numpy, arrays.values())))
        model, other, requests = loaded(folder), NumPyModel(), [Request(arrays)]
        # After the load: from then on tensors belong to the inference mode.
        example = tuple(map(torch.from_numpy, arrays.values()))
        # As a worker does before its first execution.
        gc.collect()
        gc.freeze()
        [response] = model.execute(requests)
        if response.has_error():
            sys.exit(f"{kind}: {response.error().message()}")
        contenders = [lambda: model.execute(requests), lambda: network(*example), lambda: other.execute(requests)]
        ours, own, numpy = map(min, zip(*(map(microseconds, contenders) for _ in range(rounds * SLICES))))
        model.finalize()
    return f"| {kind} | {ours:.1f} | {own:.1f} | {numpy:.1f} | {ours - own - numpy:.1f} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--filter", default="")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for kind, write in KINDS.items():
        if options.filter in f"PyTorch, {kind}":
            print(row(f"PyTorch, {kind}", write, options.rounds))
