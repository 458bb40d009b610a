"""In which Python models run: that of their environment, a folder or an archive, or the one that the model names."""

import os
import pathlib
import sys
import sysconfig
import tarfile

import numpy as np
import plugins
import processes
import pytest
import python_backends
import repository as models
from protocols import HTTP
from serving import eventually

WHERE = """
import sys
import numpy as np
import triton_python_backend_utils as pb_utils

try:
    import only_here
    SAYS = only_here.SAYS
except ImportError:
    SAYS = "nothing"

class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "X", "data_type": "TYPE_FP32", "dims": [1]})
        config.add_output({"name": "OUT", "data_type": "TYPE_STRING", "dims": [2]})
        return config

    def execute(self, requests):
        told = np.array([SAYS, sys.executable], np.object_)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", told)]) for _ in requests]
"""


def parameter(name, value):
    return f'parameters {{ key: "{name}" value: {{ string_value: "{value}" }} }}\n'


def told(server, model="where"):
    with HTTP.connect(server) as client:
        answer = client.infer(model, [HTTP.input("X", np.zeros(1, np.float32))]).as_numpy("OUT")
    return [text.decode() for text in answer]


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    return folder


def environment(folder, says, python_backend):
    """An environment with a module of its own, and the NumPy that the backend works with."""
    processes.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    site = folder / f"lib/python{sysconfig.get_python_version()}/site-packages"
    (site / "only_here.py").write_text(f"SAYS = {says!r}\n")
    if python_backend is python_backends.TRITON:
        numpy = plugins.FOLDER / f"python/lib/python{sysconfig.get_python_version()}/site-packages"
    else:
        numpy = pathlib.Path(np.__file__).parents[1]
    (site / "numpy.pth").write_text(f"{numpy}\n")
    return folder


def archive(folder, says, python_backend, path):
    made = environment(folder, says, python_backend)
    with tarfile.open(path, "w:gz") as tar:
        for entry in sorted(made.iterdir()):
            tar.add(entry, entry.name)


def test_a_model_runs_in_the_environment_of_a_folder(start_python, python_backend, folder, tmp_path):
    made = environment(tmp_path / "environment", "in the folder", python_backend)
    plugins.python_model(folder, "where", text=WHERE, config=parameter("EXECUTION_ENV_PATH", made))
    assert told(start_python(folder).wait_until_ready())[0] == "in the folder"


def test_a_model_runs_in_the_environment_of_an_archive_beside_it(start_python, python_backend, folder, tmp_path):
    path = "$$TRITON_MODEL_DIRECTORY/environment.tar.gz"
    plugins.python_model(folder, "where", text=WHERE, config=parameter("EXECUTION_ENV_PATH", path))
    archive(tmp_path / "environment", "in the archive", python_backend, folder / "where" / "environment.tar.gz")
    assert told(start_python(folder).wait_until_ready())[0] == "in the archive"


def test_a_changed_archive_counts_from_the_next_load_on(start_python, python_backend, folder, tmp_path):
    path = tmp_path / "environment.tar.gz"
    plugins.python_model(folder, "where", text=WHERE, config=parameter("EXECUTION_ENV_PATH", path))
    archive(tmp_path / "first", "first", python_backend, path)
    server = start_python(folder, "--model-control-mode=explicit", "--load-model=*").wait_until_ready()
    assert told(server)[0] == "first"
    archive(tmp_path / "second", "second", python_backend, path)
    os.utime(path, (1, 1))
    with HTTP.connect(server) as client:
        client.unload_model("where")
        eventually(lambda: not client.is_model_ready("where"), "the model to be unloaded")
        client.load_model("where")
    assert told(server)[0] == "second"


@pytest.mark.parametrize("python_backend", python_backends.OURS, indirect=True)
def test_a_model_names_its_interpreter(start_python, folder):
    plugins.python_model(folder, "where", text=WHERE, config=parameter("PYTHON_EXECUTABLE", sys.executable))
    plugins.python_model(folder, "elsewhere", text=WHERE)
    server = start_python(folder).wait_until_ready()
    assert told(server) == ["nothing", sys.executable]
    # The first python3 of PATH, which lies in the same folder.
    assert told(server, "elsewhere")[1].startswith(str(pathlib.Path(sys.executable).parent))


# Triton's backend runs it.
@pytest.mark.parametrize("python_backend", python_backends.OURS, indirect=True)
def test_a_stub_in_the_directory_of_a_model_is_told_once(start_python, folder):
    plugins.python_model(folder, "where", text=WHERE, config="instance_group [{ count: 2 }]")
    stub = folder / "where/triton_python_backend_stub"
    stub.touch()
    server = start_python(folder).wait_until_ready()
    assert server.log().count(f"the program '{stub}' is not used: model 'where' runs in ") == 1


ENDS = models.tensor("input", "X", "FP32", 1) + models.tensor("output", "OUT", "BYTES", 2)
FAILURES = {
    "Failed to get the canonical path for /nowhere.": parameter("EXECUTION_ENV_PATH", "/nowhere"),
    "The Python environment should contain an 'activate' script.": parameter(
        "EXECUTION_ENV_PATH", "$$TRITON_MODEL_DIRECTORY/1"
    ),
    "archive_read_open_filename() failed.": parameter("EXECUTION_ENV_PATH", "$$TRITON_MODEL_DIRECTORY/1/model.py"),
}


@pytest.mark.parametrize("python_backend", python_backends.OURS, indirect=True)
def test_an_environment_that_cannot_be_used_is_told(start_python, folder):
    for number, config in enumerate(FAILURES.values()):
        plugins.python_model(folder, f"m{number}", text=WHERE, config=config + ENDS)
    server = start_python(folder, "--exit-on-error=false", "--strict-readiness=false")
    with HTTP.connect(server) as client:
        index = eventually(lambda: client.get_model_repository_index(), "the index")
        reasons = {model["name"]: model.get("reason", "") for model in index}
    for number, words in enumerate(FAILURES):
        assert words in reasons[f"m{number}"]


@pytest.mark.parametrize("python_backend", python_backends.OURS, indirect=True)
def test_an_interpreter_that_is_not_there_or_has_no_numpy_is_told(start_python, folder, tmp_path):
    bare = tmp_path / "bare"
    processes.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    plugins.python_model(folder, "bare", text=WHERE, config=parameter("PYTHON_EXECUTABLE", bare / "bin/python") + ENDS)
    plugins.python_model(folder, "gone", text=WHERE, config=parameter("PYTHON_EXECUTABLE", "/nowhere/python") + ENDS)
    server = start_python(folder, "--exit-on-error=false", "--strict-readiness=false")
    with HTTP.connect(server) as client:
        index = eventually(lambda: client.get_model_repository_index(), "the index")
        reasons = {model["name"]: model.get("reason", "") for model in index}
    assert "No module named 'numpy'" in reasons["bare"] and str(bare / "bin/python") in reasons["bare"]
    assert reasons["bare"].count(str(bare / "bin/python")) == 1
    assert "/nowhere/python" in reasons["gone"]


@pytest.mark.parametrize(
    "setting, words",
    [
        ("shm-default-byte-size=1000", "shm-default-byte-size can't be smaller than 4 MiBs"),
        ("thread-pool-size=0", "thread-pool-size can't be less than 1."),
        ("stub-timeout-seconds=0", "stub-timeout-seconds can't be smaller than or equal to zero."),
    ],
)
def test_settings_are_checked(start_python, folder, setting, words):
    plugins.python_model(folder, "where", text=WHERE, config=ENDS)
    server = start_python(
        folder, f"--backend-config=python,{setting}", "--exit-on-error=false", "--strict-readiness=false"
    )
    with HTTP.connect(server) as client:
        [model] = eventually(lambda: client.get_model_repository_index(), "the index")
    assert model["state"] == "UNAVAILABLE" and words in model["reason"]
