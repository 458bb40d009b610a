"""What goes wrong with a process while clients call: its requests fail soon and with the promised text, and all others go on."""

import os
import signal

import numpy as np
import plugins
import pytest
import python_backends
from callers import Callers
from protocols import GRPC, HTTP, metric
from serving import eventually
from test_python_processes import living
from tritonclient.utils import InferenceServerException

pytestmark = pytest.mark.parametrize("python_backend", python_backends.OURS, indirect=True)

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

    def initialize(self, args):
        self.gate = os.path.join(args["model_repository"], "gate")
        if os.path.exists(self.gate):
            raise ValueError("the gate is closed")

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
        if what == "sleep":
            time.sleep(1000)
        if what == "hog":
            np.ones(1 << 32)
        if what == "raise":
            raise ValueError("not today")
        if what == "forget":
            return None
        datatype = np.int32 if what == "wrong type" else np.int64
        return pb_utils.InferenceResponse([pb_utils.Tensor("PID", np.array([os.getpid()], datatype))])
"""

UNHEALTHY = r"Stub process 'unsteady_\d_?\d?' is not healthy."
# What the process dies of, with the parameters that the model needs for it.
DEADLY = {
    "exit": {},
    "crash": {},
    "stop": {},
    "loop": {"MAX_EXECUTE_SECONDS": "2"},
    "sleep": {"MAX_EXECUTE_SECONDS": "2"},
    "killed": {},
}
# What only the request dies of.
HARMLESS = {
    "hog": ({"MAX_MEMORY_BYTES": str(2 << 30)}, "MemoryError"),
    "raise": ({}, "ValueError: not today"),
    "forget": ({}, "Expected an 'InferenceResponse' object in the execute function return list, found type"),
    "wrong type": ({"STRICT_OUTPUTS": "yes"}, "output 'PID' of model 'unsteady' has datatype INT32, but the configuration"),
}


def serve(start_python, folder, parameters, instances=2):
    config = "".join(
        f'parameters {{ key: "{name}" value: {{ string_value: "{value}" }} }}\n' for name, value in parameters.items()
    )
    plugins.python_model(folder, "unsteady", text=MODEL, config=config + f"instance_group {{ count: {instances} }}\n")
    plugins.python_model(folder, "steady", text=MODEL)
    return start_python(folder).wait_until_ready()


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    return folder


def asking(model, what="behave"):
    def prepare(protocol, client):
        inputs = [protocol.input("WHAT", np.array([what], np.object_))]
        return lambda: client.infer(model, inputs).as_numpy("PID").item()

    return prepare


def ask(server, model, what, protocol=HTTP):
    with protocol.connect(server) as client:
        return asking(model, what)(protocol, client)()


class Tolerant:
    """Asks the unsteady model, and collects the errors."""

    def __init__(self):
        self.errors = []
        self.answered = 0

    def prepare(self, protocol, client):
        infer = asking("unsteady")(protocol, client)

        def try_to_ask():
            try:
                infer()
                self.answered += 1
            except InferenceServerException as error:
                self.errors.append(error.message())

        return try_to_ask


def restarts(server):
    return metric(server, "nereid_python_worker_restarts_total", model="unsteady", version=1)


@pytest.mark.parametrize("protocol", [HTTP, GRPC], ids=["http", "grpc"])
@pytest.mark.parametrize("what", DEADLY)
def test_what_kills_a_process_under_load_fails_its_requests_within_a_second(start_python, folder, threads, what, protocol):
    server = serve(start_python, folder, DEADLY[what])
    assert restarts(server) == 0
    tolerant = Tolerant()
    with Callers(server, threads, asking("steady"), 2) as steady, Callers(server, threads, tolerant.prepare, 4) as unsteady:
        steady.wait_for_answers()
        unsteady.wait_for_answers()
        if what == "killed":
            victim = ask(server, "unsteady", "behave", protocol)
            os.kill(victim, signal.SIGKILL)
        else:
            with pytest.raises(InferenceServerException, match=UNHEALTHY):
                ask(server, "unsteady", what, protocol)
        # Both models answer meanwhile, and both instances afterwards.
        steady.wait_for_answers()
        unsteady.wait_for_answers()
        eventually(lambda: restarts(server) == 1, "the metric to tell")
        eventually(lambda: len({ask(server, "unsteady", "behave") for _ in range(20)}) == 2, "both instances to answer")
    assert all(error.startswith("Stub process 'unsteady_0_") for error in tolerant.errors), tolerant.errors
    with HTTP.connect(server) as client:
        assert client.is_server_ready() and client.is_model_ready("unsteady")
    assert restarts(server) == 1


@pytest.mark.parametrize("protocol", [HTTP, GRPC], ids=["http", "grpc"])
@pytest.mark.parametrize("what", HARMLESS)
def test_what_a_process_survives_fails_one_request_under_load(start_python, folder, threads, what, protocol):
    parameters, words = HARMLESS[what]
    server = serve(start_python, folder, parameters)
    processes = {ask(server, "unsteady", "behave") for _ in range(50)}
    with Callers(server, threads, asking("steady"), 2) as steady, Callers(server, threads, asking("unsteady"), 4) as unsteady:
        steady.wait_for_answers()
        unsteady.wait_for_answers()
        with pytest.raises(InferenceServerException) as refusal:
            ask(server, "unsteady", what, protocol)
        assert words in refusal.value.message()
        steady.wait_for_answers()
        unsteady.wait_for_answers()
    assert processes <= living(processes) and restarts(server) == 0


def test_a_model_whose_process_does_not_come_back_is_not_ready(start_python, folder, threads):
    server = serve(start_python, folder, {}, instances=1)
    gate = folder / "unsteady" / "gate"
    with Callers(server, threads, asking("steady"), 2) as steady, HTTP.connect(server) as client:
        gate.touch()
        with pytest.raises(InferenceServerException, match="Stub process 'unsteady_0_0' is not healthy."):
            ask(server, "unsteady", "exit")
        eventually(lambda: not client.is_model_ready("unsteady"), "the model not to be ready")
        assert not client.is_server_ready()
        assert client.is_model_ready("steady")
        eventually(lambda: "could not be started again" in server.log(), "a start that fails")
        assert "the gate is closed" in server.log()
        steady.wait_for_answers()
        gate.unlink()
        eventually(lambda: client.is_model_ready("unsteady"), "the model to be ready")
        assert client.is_server_ready()
        assert ask(server, "unsteady", "behave")
        assert restarts(server) == 1


BROKEN = {
    "syntax": ("def (", "SyntaxError"),
    "import": ("import nothing_of_this_name", "ModuleNotFoundError: No module named 'nothing_of_this_name'"),
    "completing": (
        "class TritonPythonModel:\n    @staticmethod\n    def auto_complete_config(config):\n        raise ValueError('config')\n",
        "ValueError: config",
    ),
    "initialize": (MODEL.replace('if os.path.exists(self.gate):\n            raise ValueError("the gate', 'if True:\n            raise ValueError("the gate'), "ValueError: the gate is closed"),
    "exit": (MODEL.replace("self.gate = ", "os._exit(5)\n        self.gate = "), "Stub process 'broken_0' is not healthy."),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_model_that_cannot_be_loaded_under_load_disturbs_nobody(start_python, folder, threads, what):
    plugins.python_model(folder, "steady", text=MODEL)
    plugins.python_model(folder, "broken", text=BROKEN[what][0])
    server = start_python(folder, "--model-control-mode=explicit", "--load-model=steady").wait_until_ready()
    with Callers(server, threads, asking("steady"), 4) as steady, HTTP.connect(server) as client:
        steady.wait_for_answers()
        with pytest.raises(InferenceServerException) as refusal:
            client.load_model("broken")
        assert BROKEN[what][1] in refusal.value.message()
        steady.wait_for_answers()


FINALIZES = {
    "raises": ("raise ValueError('at the end')", "failed to finalize"),
    "loops": ("while True:\n            pass", "did not finalize within 10 s"),
}


@pytest.mark.parametrize("what", FINALIZES)
def test_a_model_that_does_not_finalize_under_load_is_unloaded(start_python, folder, threads, what):
    lines, words = FINALIZES[what]
    plugins.python_model(folder, "steady", text=MODEL)
    plugins.python_model(folder, "last", text=f"{MODEL}\n    def finalize(self):\n        {lines}\n")
    options = ("--model-control-mode=explicit", "--load-model=*", "--backend-config=python,stub-timeout-seconds=10")
    server = start_python(folder, *options).wait_until_ready()
    worker = ask(server, "last", "behave")
    with Callers(server, threads, asking("steady"), 4) as steady, HTTP.connect(server) as client:
        steady.wait_for_answers()
        client.unload_model("last")
        eventually(lambda: not living({worker}), "the process to end")
        eventually(lambda: words in server.log(), "the log to say so")
        steady.wait_for_answers()
