"""How soon the requests fail whose process of a model in Python dies or hangs, while other clients ask."""

import contextlib
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import plugins
import python_backends
from callers import Callers
from protocols import GRPC, HTTP, metric
from serving import PATIENCE, eventually
from tritonclient.utils import InferenceServerException

from promised.promise import Promise, measures

# Does what WHAT says, and answers with the number of its process.
MODEL = """
import os
import signal
import time
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "WHAT", "data_type": "TYPE_STRING", "dims": [1]})
        config.add_output({"name": "PID", "data_type": "TYPE_INT64", "dims": [1]})
        return config

    def execute(self, requests):
        return [self.answer(pb_utils.get_input_tensor_by_name(r, "WHAT").as_numpy()[0].decode()) for r in requests]

    def answer(self, what):
        if what == "exit":
            os._exit(3)
        if what == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if what == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        while what == "loop":
            pass
        if what.startswith("wait "):
            with open(what.removeprefix("wait "), "w") as file:
                file.write(str(os.getpid()))
            time.sleep(1000)
        return pb_utils.InferenceResponse([pb_utils.Tensor("PID", np.array([os.getpid()], np.int64))])
"""

TABLE = "python.md, the table of what happens"


def asking(model, what="behave"):
    def prepare(protocol, client):
        inputs = [protocol.input("WHAT", np.array([what], np.object_))]
        return lambda: client.infer(model, inputs).as_numpy("PID").item()

    return prepare


class Failures:
    """Callers of the model whose process dies: the longest time, in seconds, until a request failed."""

    def __init__(self):
        self.slowest = 0.0
        self.count = 0

    def prepare(self, protocol, client, what="behave"):
        infer = asking("unsteady", what)(protocol, client)

        def ask():
            begun = time.monotonic()
            with contextlib.suppress(InferenceServerException):
                return infer()
            self.add(time.monotonic() - begun)
            return None

        return ask

    def add(self, seconds):
        self.count += 1
        self.slowest = max(self.slowest, seconds)


def slowest_failure(place, what, **parameters):
    """Milliseconds until the last failed request knew it. The rounds take turns of HTTP and gRPC."""
    folder = place.new_folder()
    config = "".join(
        f'parameters {{ key: "{name}" value: {{ string_value: "{value}" }} }}\n' for name, value in parameters.items()
    )
    plugins.python_model(folder, "unsteady", text=MODEL, config=config + "instance_group { count: 2 }\n")
    plugins.python_model(folder, "steady", text=MODEL)
    backend = python_backends.BUILT_IN
    protocol = (HTTP, GRPC)[place.number % 2]
    failures = Failures()
    with (
        ThreadPoolExecutor(8) as threads,
        place.start(folder, *backend.options, variables=backend.variables) as server,
        protocol.connect(server.wait_until_ready()) as client,
    ):
        with (
            Callers(server, threads, asking("steady"), 2) as steady,
            Callers(server, threads, failures.prepare, 4) as unsteady,
        ):
            steady.wait_for_answers()
            unsteady.wait_for_answers()
            if what == "kill":
                victim = place.folder / "victim"
                waiting = threads.submit(asking("unsteady", f"wait {victim}")(protocol, client))
                process = int(eventually(lambda: victim.exists() and victim.read_text(), "the process to wait"))
                begun = time.monotonic()
                os.kill(process, signal.SIGKILL)
                assert isinstance(waiting.exception(PATIENCE), InferenceServerException)
                failures.add(time.monotonic() - begun)
            else:
                assert failures.prepare(protocol, client, what)() is None, "a request has an answer that has none"
            labels = {"model": "unsteady", "version": 1}
            eventually(lambda: metric(server, "nereid_python_worker_restarts_total", **labels) == 1, "the next process")
            steady.wait_for_answers()
            unsteady.wait_for_answers()
    assert failures.count, "no request has failed"
    return 1000 * failures.slowest


@measures(Promise("requests fail, the Python process exits", TABLE, "at once (1 s)", "ms", most=1000))
def exits(place):
    return slowest_failure(place, "exit")


@measures(Promise("requests fail, the Python process crashes", TABLE, "at once (1 s)", "ms", most=1000))
def crashes(place):
    return slowest_failure(place, "crash")


@measures(Promise("requests fail, SIGKILL for the Python process", TABLE, "at once (1 s)", "ms", most=1000))
def is_killed(place):
    return slowest_failure(place, "kill")


@measures(Promise("requests fail, SIGSTOP for the Python process", TABLE, "within 1 s", "ms", most=1000))
def is_stopped(place):
    return slowest_failure(place, "stop")


@measures(
    Promise("requests fail, a loop with MAX_EXECUTE_SECONDS 0.3", TABLE, "0.3 s, then at once (1 s)", "ms", most=1300, least=300)
)
def loops(place):
    return slowest_failure(place, "loop", MAX_EXECUTE_SECONDS="0.3")


@measures(
    Promise(
        "requests fail, a loop with MAX_EXECUTE_PROCESSOR_SECONDS 0.3",
        TABLE,
        "0.3 s, then at once (1 s)",
        "ms",
        most=1300,
        least=300,
    )
)
def computes(place):
    return slowest_failure(place, "loop", MAX_EXECUTE_PROCESSOR_SECONDS="0.3")
