"""What models in Python do to the server: load models, tell whether they are ready, run step by step, be backends."""

import numpy as np
import plugins
import pytest
import python_backends
import repository as models
from protocols import GRPC, HTTP, pending
from serving import PATIENCE, eventually
from tritonclient.utils import InferenceServerException

EXPLICIT = "--model-control-mode=explicit"

TIMES = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "X", "data_type": "TYPE_FP32", "dims": [-1]})
        config.add_output({"name": "Y", "data_type": "TYPE_FP32", "dims": [-1]})
        return config

    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", FACTOR * request.inputs()[0].as_numpy())]) for request in requests]
"""


WHERE = "Failed to process the request for model 'loader_0', message: "


def do(client, protocol, *words):
    return client.infer("loader", [protocol.input("WHAT", np.array(words, np.object_))]).as_numpy("SAID").item().decode()


def times(client, protocol, model):
    return client.infer(model, [protocol.input("X", np.array([1], np.float32))]).as_numpy("Y").item()


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    plugins.python_model(folder, "loader")
    plugins.python_model(folder, "twice", text=TIMES.replace("FACTOR", "2"))
    return folder


# Triton's backend of the version that the tests have ends the server now and then after such a call.
@pytest.mark.parametrize("python_backend", python_backends.OURS, indirect=True)
def test_a_model_loads_and_unloads_others(start_python, folder, protocol):
    server = start_python(folder, EXPLICIT, "--load-model=loader").wait_until_ready()
    with protocol.connect(server) as client:
        assert do(client, protocol, "load", "twice") == "done"
        assert [do(client, protocol, "ready", "twice", *more) for more in ([], ["1"], ["2"])] == ["true", "true", "false"]
        assert times(client, protocol, "twice") == 2
        config = '{"backend": "python", "max_batch_size": 0}'
        text = TIMES.replace("FACTOR", "3")
        assert do(client, protocol, "load with files", "thrice", text, config) == "done"
        assert times(client, protocol, "thrice") == 3
        for more in ([], ["dependents"]):
            assert do(client, protocol, "unload", "twice", *more) == "done"
        eventually(lambda: not client.is_model_ready("twice"), "the model to be unloaded")


@pytest.mark.parametrize("python_backend", python_backends.OURS, indirect=True)
def test_a_model_is_told_what_cannot_be_loaded(start_python, folder, protocol):
    server = start_python(folder, EXPLICIT, "--load-model=loader").wait_until_ready()
    with protocol.connect(server) as client:
        said = do(client, protocol, "load", "nobody")
        wanted = f"Failed to load model: {WHERE}failed to load 'nobody', failed to poll from model repository"
        assert said.startswith(wanted)
        said = do(client, protocol, "load with wrong files", "nobody")
        assert said == "failed to load model 'nobody', files should be a dictionary of file paths and file contents"
        said = do(client, protocol, "ready", "twice", "newest")
        assert said == (
            f"Failed to check model readiness: {WHERE}failed to get model version from specified version string 'newest' "
            "(details: stol), version should be an integral value > 0"
        )


# As Triton 2.51 and its documentation say. Newer versions of Triton raise an exception.
@pytest.mark.parametrize("python_backend", python_backends.OURS, indirect=True)
def test_a_model_that_is_not_there_is_not_ready(start_python, folder):
    server = start_python(folder, EXPLICIT, "--load-model=loader").wait_until_ready()
    with HTTP.connect(server) as client:
        assert [do(client, HTTP, "ready", name) for name in ("twice", "nobody", "loader")] == ["false", "false", "true"]


@pytest.mark.parametrize("python_backend", python_backends.OURS, indirect=True)
def test_a_model_loads_nothing_where_nobody_may(start_python, folder):
    server = start_python(folder).wait_until_ready()
    with HTTP.connect(server) as client:
        wanted = "explicit model load / unload is not allowed if polling is enabled. "
        wanted += "Model control mode 'explicit' allows it (--model-control-mode=explicit)"
        assert do(client, HTTP, "load", "twice") == f"Failed to load model: {WHERE}{wanted}"
        assert do(client, HTTP, "unload", "twice") == f"Failed to unload model: {WHERE}{wanted}"
        assert do(client, HTTP, "ready", "twice") == "true"


COUNTDOWN = models.tensor("input", "X", "INT32", 1) + models.tensor("output", "STEPS", "INT32", 1)


# Triton's page of iterative sequences names no strategy.
@pytest.mark.parametrize("strategy", ["", "direct {}", "oldest { max_candidate_sequences: 8 }"])
def test_a_request_is_executed_again_until_the_model_answers(start_python, tmp_path, threads, protocol, strategy):
    folder = tmp_path / "models"
    folder.mkdir()
    batching = f"max_batch_size: 4\nsequence_batching {{ iterative_sequence: true {strategy} }}\n"
    plugins.python_model(folder, "countdown", config=batching + COUNTDOWN)
    server = start_python(folder).wait_until_ready()

    def ask(steps):
        with protocol.connect(server) as client:
            return client.infer("countdown", [protocol.input("X", np.array([[steps]], np.int32))]).as_numpy("STEPS").item()

    assert list(threads.map(ask, [1, 5, 20, 3])) == [1, 5, 20, 3]
    with protocol.connect(server) as client:
        assert protocol.statistics(client, "countdown")["inference_count"] >= 4


@pytest.fixture
def backends(tmp_path, python_backend):
    """A backend directory with a backend that is written in Python."""
    backends = tmp_path / "backends"
    (backends / "mine").mkdir(parents=True)
    (backends / "mine/model.py").write_text((plugins.MODELS / "backend.py").read_text())
    if python_backend is python_backends.TRITON:
        (backends / "python").symlink_to(plugins.BACKENDS / "python")
    return backends


def test_a_backend_written_in_python_runs_models_without_files(start_python, backends, tmp_path):
    folder = tmp_path / "models"
    for factor in (2, 5):
        (folder / f"times_{factor}/1").mkdir(parents=True)
        parameter = f'parameters {{ key: "FACTOR" value: {{ string_value: "{factor}" }} }}'
        (folder / f"times_{factor}/config.pbtxt").write_text(f'backend: "mine"\n{parameter}')
    plugins.python_model(folder, "waiter")
    server = start_python(folder, f"--backend-directory={backends}").wait_until_ready()
    with HTTP.connect(server) as client:
        for factor in (2, 5):
            result = client.infer(f"times_{factor}", [HTTP.input("X", np.array([1, 2], np.float32))])
            assert result.as_numpy("Y").tolist() == [factor, 2 * factor]
            assert client.get_model_config(f"times_{factor}")["backend"] == "mine"
        assert client.infer("waiter", plugins.waiter_inputs(HTTP, 3)).as_numpy("Y").item() == 6


READY = """
import pathlib
import time

import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "X", "data_type": "TYPE_FP32", "dims": [-1]})
        config.add_output({"name": "Y", "data_type": "TYPE_FP32", "dims": [-1]})
        return config

    def initialize(self, args):
        self.switch = pathlib.Path(args["model_repository"]) / "switch"

    KINDis_ready(self):
        said = self.switch.read_text() if self.switch.exists() else "yes"
        if said == "raise":
            raise ValueError("not today")
        while said == "hang" and self.switch.read_text() == "hang":
            time.sleep(0.001)
        return {"yes": True, "no": False}.get(said, said)

    def execute(self, requests):
        x = requests[0].inputs()[0].as_numpy()
        while x[0] == -1 and not self.switch.with_suffix(".go").exists():
            self.switch.with_suffix(".begun").touch()
            time.sleep(0.001)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)])]
"""


# The version of Triton's backend that the tests have does not ask models.
@pytest.mark.parametrize("python_backend", python_backends.OURS, indirect=True)
@pytest.mark.parametrize("kind", ["def ", "async def "])
def test_a_model_says_whether_it_is_ready(start_python, tmp_path, kind):
    folder = tmp_path / "models"
    folder.mkdir()
    plugins.python_model(folder, "moody", text=READY.replace("KIND", kind))
    server = start_python(folder).wait_until_ready()
    switch = folder / "moody" / "switch"
    with HTTP.connect(server) as http, GRPC.connect(server) as grpc:
        for said, ready in (("yes", True), ("no", False), ("yes", True), ("raise", False), ("nonsense", False), ("yes", True)):
            switch.write_text(said)
            assert (http.is_model_ready("moody"), grpc.is_model_ready("moody")) == (ready, ready)
            # Clients decide whether they ask a model that is not ready; Triton lets them.
            assert times(http, HTTP, "moody") == 1


@pytest.mark.parametrize("python_backend", python_backends.OURS, indirect=True)
def test_a_model_that_executes_for_long_is_ready_and_one_that_does_not_say_so_is_not(start_python, tmp_path, threads):
    folder = tmp_path / "models"
    folder.mkdir()
    plugins.python_model(folder, "moody", text=READY.replace("KIND", "def "))
    server = start_python(folder).wait_until_ready()
    switch = folder / "moody" / "switch"

    def wait_for_go():
        with GRPC.connect(server) as client:
            return client.infer("moody", [GRPC.input("X", np.array([-1], np.float32))]).as_numpy("Y").item()

    with GRPC.connect(server) as client:
        answer = threads.submit(wait_for_go)
        eventually(plugins.begun(switch), "the execution to begin")
        assert client.is_model_ready("moody")
        switch.write_text("hang")
        assert not client.is_model_ready("moody")
        # The late answer to the last question is not that to the next one.
        switch.write_text("no")
        assert not client.is_model_ready("moody")
        switch.write_text("yes")
        assert client.is_model_ready("moody")
        switch.with_suffix(".go").touch()
        assert answer.result(PATIENCE) == -1


# Triton's backend of that version cannot: a response's parameters are newer.
@pytest.mark.parametrize("python_backend", python_backends.OURS, indirect=True)
def test_a_response_has_parameters(start_python, tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    text = TIMES.replace("FACTOR", "2").replace('.as_numpy())])', '.as_numpy())], parameters={"a": "b", "c": 7, "d": True})')
    plugins.python_model(folder, "twice", text=text)
    server = start_python(folder).wait_until_ready()
    with HTTP.connect(server) as http, GRPC.connect(server) as grpc:
        answer = http.infer("twice", [HTTP.input("X", np.ones(1, np.float32))]).get_response()
        assert answer["parameters"].items() >= {"a": "b", "c": 7, "d": True}.items()
        answer = grpc.infer("twice", [GRPC.input("X", np.ones(1, np.float32))]).get_response()
        assert (answer.parameters["a"].string_param, answer.parameters["c"].int64_param) == ("b", 7)
        assert answer.parameters["d"].bool_param


# Triton's backend of that version waits for ever where there is no file.
@pytest.mark.parametrize("python_backend", python_backends.OURS, indirect=True)
def test_a_model_without_its_file_says_so(start_python, tmp_path):
    folder = tmp_path / "models"
    (folder / "missing" / "1").mkdir(parents=True)
    tensors = models.tensor("input", "X", "FP32", 1) + models.tensor("output", "Y", "FP32", 1)
    (folder / "missing" / "config.pbtxt").write_text(f'backend: "python"\n{tensors}')
    server = start_python(folder, "--exit-on-error=false", "--strict-readiness=false")
    with HTTP.connect(server) as client:
        [model] = eventually(lambda: client.get_model_repository_index(), "the index")
        assert model["state"] == "UNAVAILABLE"
        assert f"Python model file not found in '{folder}/missing/1/model.py'" in model["reason"]
