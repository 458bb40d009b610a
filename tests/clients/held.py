"""Models whose executions end when a test says so. So a test decides what runs and what waits, however fast the machine is.

They run on the test plug-in `identity` of the C interface: OUTPUT0 = INPUT0 when the execution has passed its gate.
"""

import os

import numpy as np
import processes
import repository as models
from protocols import GRPC
from serving import ROOT, eventually


def build_backend(folder, name="identity", *flags):
    """Compiles a plug-in. Returns the backend directory."""
    return build_library(folder, name, f"libtriton_{name}.so", *flags)


def build_library(folder, name, library, *flags):
    """Compiles a plug-in into a library in the folder of its name. Returns the directory of this folder."""
    directory = folder / name
    directory.mkdir(parents=True, exist_ok=True)
    source = ROOT / f"crates/c-api/tests/plugins/{name}.c"
    command = [os.environ.get("CC", "cc"), "-std=c11", "-D_GNU_SOURCE", "-O1", "-fPIC", "-shared"]
    command += ["-fvisibility=hidden", "-I", ROOT / "include", *flags]
    command += [source, "-o", directory / library, "-pthread"]
    processes.run(command, check=True)
    return folder


class Gate:
    """A folder that the executions of held models look into."""

    def __init__(self, folder):
        self._folder, self._holds = folder, 0

    def hold(self):
        """A new reason for executions to wait."""
        self._holds += 1
        return Hold(self._folder, self._holds)

    def release_all(self):
        for number in range(1, self._holds + 1):
            Hold(self._folder, number).release()

    def write(self, repository, name, config, load_hold=None, dims=(1,), more="", group="count: 1"):
        """Adds a held model, by default with one instance, which is ready when `load_hold` is released.

        `dims` are those of INPUT0 and OUTPUT0, `more` are further fields of INPUT0.
        """
        (repository / name / "1").mkdir(parents=True)
        config += models.tensor("input", "INPUT0", "FP32", *dims, more=more) + models.tensor("input", "HOLD", "INT64", 1)
        config += models.tensor("output", "OUTPUT0", "FP32", *dims) + f"instance_group {{ {group} kind: KIND_CPU }}\n"
        config += f'backend: "identity"\nparameters {{ key: "gate" value: {{ string_value: "{self._folder}" }} }}\n'
        if load_hold:
            config += f'parameters {{ key: "load_hold" value: {{ string_value: "{load_hold.number}" }} }}\n'
        (repository / name / "config.pbtxt").write_text(config)


class Hold:
    """Executions of requests with this hold, and loads of models with it, wait until it is released."""

    def __init__(self, folder, number):
        self.number = number
        self._running, self._released = folder / f"{number}.running", folder / str(number)

    def wait_until_running(self):
        eventually(self.is_running, "the held request to run")

    def is_running(self):
        return self._running.exists()

    def release(self):
        self._released.touch()


def held_inputs(protocol, hold=None, x=0.0):
    """Inputs for a held model, one row. Without a hold the request runs at once."""
    number = hold.number if hold else 0
    x = np.array([[x]], np.float32)
    return [protocol.input("INPUT0", x), protocol.input("HOLD", np.array([[number]], np.int64))]


def occupy(gate, client, model, answers):
    """Keeps the only instance of a model busy with one request of a client of gRPC. Returns the hold.

    The request's result and error go into the queue `answers`.
    """
    hold = gate.hold()
    client.async_infer(model, held_inputs(GRPC, hold), lambda result, error: answers.put((result, error)))
    hold.wait_until_running()
    return hold
