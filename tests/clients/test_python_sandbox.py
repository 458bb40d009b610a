"""Models in Python in a sandbox, as a server runs them. `crates/backend-python/tests/python/sandbox.rs` has what they cannot do."""

import os
import signal

import numpy as np
import plugins
import pytest
import python_backends
from protocols import HTTP
from serving import eventually
from test_python_operations import EXPLICIT, do
from test_python_processes import descendants, living

ONLY_OURS = pytest.mark.parametrize("python_backend", python_backends.OURS, indirect=True)

# Answers with what the expression in WHAT is worth.
MODEL = """
import asyncio
import os
import socket
import tempfile
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "WHAT", "data_type": "TYPE_STRING", "dims": [1]})
        config.add_output({"name": "SAID", "data_type": "TYPE_STRING", "dims": [1]})
        return config

    def execute(self, requests):
        return [self.answer(pb_utils.get_input_tensor_by_name(r, "WHAT").as_numpy()[0].decode()) for r in requests]

    def answer(self, what):
        try:
            said = str(eval(what, dict(globals(), ask=self.ask)))
        except OSError as error:
            said = f"{type(error).__name__}: {error}"
        return pb_utils.InferenceResponse([pb_utils.Tensor("SAID", np.array([said], np.object_))])

    def ask(self, x):
        inputs = [pb_utils.Tensor("X", np.array([x], np.float32))]
        request = pb_utils.InferenceRequest(model_name="twice", requested_output_names=["Y"], inputs=inputs)
        return pb_utils.get_output_tensor_by_name(request.exec(), "Y").as_numpy().item()
"""

TIMES_TWO = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "X", "data_type": "TYPE_FP32", "dims": [1]})
        config.add_output({"name": "Y", "data_type": "TYPE_FP32", "dims": [1]})
        return config

    def execute(self, requests):
        x = [pb_utils.get_input_tensor_by_name(request, "X").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", x * 2)]) for x in x]
"""


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    plugins.python_model(folder, "boxed", text=MODEL)
    plugins.python_model(folder, "twice", text=TIMES_TWO)
    return folder


@pytest.fixture
def places(tmp_path):
    folder = tmp_path / "places"
    folder.mkdir()
    return folder


@pytest.fixture
def start_boxed(start_python, places):
    options = ["--backend-config=python,sandbox=best-effort", f"--backend-config=python,sandbox-directory={places}"]
    return lambda folder, *more: start_python(folder, *options, *more)


def said(client, protocol, what):
    return client.infer("boxed", [protocol.input("WHAT", np.array([what], np.object_))]).as_numpy("SAID").item().decode()


@ONLY_OURS
def test_a_model_in_a_sandbox_works(start_boxed, folder, places, protocol):
    server = start_boxed(folder).wait_until_ready()
    with protocol.connect(server) as client:
        assert said(client, protocol, "np.linalg.inv(np.eye(300)).sum()") == "300.0"
        assert said(client, protocol, "ask(4)") == "8.0"
        assert said(client, protocol, "asyncio.run(asyncio.sleep(0, 'slept'))") == "slept"
        assert said(client, protocol, "socket.create_connection(('127.0.0.1', 1))").startswith("PermissionError")
        assert said(client, protocol, f"open('{folder}/boxed/new', 'w')").startswith("PermissionError")
        assert said(client, protocol, "tempfile.gettempdir()").startswith(str(places))
        assert said(client, protocol, "os.kill(os.getppid(), 15)").startswith("PermissionError")
    assert "the workers of model 'boxed' run in a sandbox: no network, files read-only but those in" in server.log()
    server.terminate()
    server.process.wait()
    assert not list(places.iterdir())


@ONLY_OURS
def test_a_killed_server_leaves_a_folder_that_the_next_one_removes(start_boxed, folder, places):
    server = start_boxed(folder).wait_until_ready()
    with HTTP.connect(server) as client:
        left = said(client, HTTP, "open(os.path.expanduser('~/left'), 'w').name")
    workers = descendants(server.process.pid)
    server.expected_code = -signal.SIGKILL
    server.kill()
    eventually(lambda: not living(workers), "the processes to end")
    assert os.path.exists(left)
    start_boxed(folder).wait_until_ready()
    assert not os.path.exists(left)
    assert len([place for place in places.iterdir() if place.is_dir()]) == 2, "those of the models that run"


@ONLY_OURS
def test_a_model_in_a_sandbox_loads_no_model_without_one(start_boxed, folder, protocol):
    plugins.python_model(folder, "loader")
    server = start_boxed(folder, EXPLICIT, "--load-model=loader").wait_until_ready()
    with protocol.connect(server) as client:
        for what in ("load", "unload"):
            assert "model 'loader' runs in a sandbox and cannot load or unload models" in do(client, protocol, what, "twice")
        assert do(client, protocol, "ready", "twice") == "false"


@ONLY_OURS
def test_an_incomplete_sandbox_is_told_once_or_refused(start_boxed, start_python, folder):
    server = start_boxed(folder).wait_until_ready()
    missing = "sandboxes of models in Python are incomplete: missing is a limit on processes"
    is_root = os.geteuid() == 0
    # The kernel counts no processes of root.
    assert server.log().count(missing) == (1 if is_root else 0)
    server.terminate()
    server.process.wait()
    options = ("--backend-config=python,sandbox=required", "--exit-on-error=false", "--strict-readiness=false")
    server = start_python(folder, *options)
    with HTTP.connect(server) as client:
        index = eventually(lambda: client.get_model_repository_index(), "the index")
    reasons = [model.get("reason", "") for model in index]
    if is_root:
        words = "requires a sandbox, which is not complete here: missing are a limit on processes"
        assert all(words in reason for reason in reasons), reasons


@pytest.mark.parametrize("python_backend", python_backends.BOTH[1:], indirect=True)
def test_tritons_backend_runs_no_model_that_must_have_a_sandbox(start_python, folder):
    options = ("--backend-config=python,sandbox=required", "--exit-on-error=false", "--strict-readiness=false")
    server = start_python(folder, *options)
    with HTTP.connect(server) as client:
        index = eventually(lambda: client.get_model_repository_index(), "the index")
    assert all("must run in a sandbox, which Triton's Python backend does not have" in model["reason"] for model in index)
