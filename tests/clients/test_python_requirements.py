"""Environments that the server makes from the files beside a model: `requirements.txt`, or `pyproject.toml` with `uv.lock`.

The packages are wheels in a folder: nothing comes from a network.
"""

import contextlib
import os
import pathlib
import re
import sys
import zipfile

import numpy as np
import plugins
import processes
import programs
import pytest
import python_backends
from protocols import GRPC, HTTP
from serving import eventually
from test_python_environments import ENDS, WHERE, told
from test_python_processes import living

pytestmark = pytest.mark.parametrize("python_backend", python_backends.OURS, indirect=True)

ON = "--backend-config=python,environments=on"
MADE = "is made in"
# The environment of the tests has it, and its folder is in the path of the servers.
UV = pathlib.Path(sys.executable).with_name("uv")


def wheel(folder, name, version, files):
    """Writes a wheel of pure Python."""
    info = f"{name}-{version}.dist-info"
    files = files | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in files) + f"{info}/RECORD,,\n"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, content in (files | {f"{info}/RECORD": record}).items():
            archive.writestr(path, content)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """A folder with a package of the test's own, and with a NumPy that leads to the installed one."""
    folder = tmp_path_factory.mktemp("wheels")
    for version in ("1.0", "2.0"):
        wheel(folder, "only_here", version, {"only_here.py": f"SAYS = 'wheel {version}'\n"})
    wheel(folder, "numpy", np.__version__, {"numpy_place.pth": f"{pathlib.Path(np.__file__).parents[1]}\n"})
    return folder


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    return folder


def model(folder, name, requirements, beside="", config=""):
    plugins.python_model(folder, name, text=WHERE, config=config)
    (folder / name / beside / "requirements.txt").write_text(requirements)


def requirements(wheels, version):
    return f"--no-index\n--find-links {wheels}\nonly_here=={version}\nnumpy\n"


@pytest.fixture
def start_making(start_python, python_backend, cache, wheels):
    """Starts servers that make environments in the cache."""

    def start_making(folder, *options, before_path=None, **variables):
        path = python_backend.variables["PATH"]
        if before_path:
            path = f"{before_path}{os.pathsep}{path}"
        python_backend.variables.update(variables, PATH=path)
        return start_python(folder, ON, f"--backend-config=python,environments-directory={cache}", *options)

    kept = dict(python_backend.variables)
    yield start_making
    python_backend.variables.clear()
    python_backend.variables.update(kept)


def environments(cache):
    return [path for path in cache.iterdir() if path.is_dir()]


def reason(server, name):
    with HTTP.connect(server) as client:
        index = eventually(lambda: client.get_model_repository_index(), "the index")
    return next(model.get("reason", "") for model in index if model["name"] == name)


def test_no_environment_is_made_unless_asked_for(start_python, folder, wheels):
    model(folder, "where", requirements(wheels, "1.0"))
    assert told(start_python(folder).wait_until_ready())[0] == "nothing"


def test_an_environment_is_made_once_for_all_models_with_the_same_requirements(start_making, folder, wheels, cache):
    model(folder, "one", requirements(wheels, "1.0"))
    model(folder, "same", requirements(wheels, "1.0"), beside="1")
    model(folder, "other", requirements(wheels, "2.0"))
    server = start_making(folder).wait_until_ready()
    assert [told(server, name)[0] for name in ("one", "same", "other")] == ["wheel 1.0", "wheel 1.0", "wheel 2.0"]
    assert server.log().count(MADE) == 2
    assert len(environments(cache)) == 2
    assert told(server, "one")[1].startswith(str(cache))
    server.terminate()
    server.process.wait()
    again = start_making(folder).wait_until_ready()
    assert told(again, "one")[0] == "wheel 1.0"
    assert again.log().count(MADE) == 0


def test_relative_paths_name_the_repository_and_the_folder_of_environments(start_python, folder, wheels, cache):
    model(folder, "where", requirements(wheels, "1.0"))
    repository, environments = (pathlib.Path(os.path.relpath(path)) for path in (folder, cache))
    server = start_python(repository, ON, f"--backend-config=python,environments-directory={environments}")
    said, interpreter = told(server.wait_until_ready())[:2]
    assert said == "wheel 1.0" and interpreter.startswith(str(cache))


def test_changed_requirements_count_from_the_next_load_on(start_making, folder, wheels):
    model(folder, "where", requirements(wheels, "1.0"))
    server = start_making(folder, "--model-control-mode=explicit", "--load-model=*").wait_until_ready()
    assert told(server)[0] == "wheel 1.0"
    (folder / "where" / "requirements.txt").write_text(requirements(wheels, "2.0"))
    with HTTP.connect(server) as client:
        client.unload_model("where")
        eventually(lambda: not client.is_model_ready("where"), "the model to be unloaded")
        client.load_model("where")
    assert told(server)[0] == "wheel 2.0"


def test_an_environment_that_cannot_be_made_is_told_and_others_go_on(start_making, folder, wheels, cache):
    model(folder, "good", requirements(wheels, "1.0"))
    model(folder, "bad", requirements(wheels, "9.9"), config=ENDS)
    server = start_making(folder, "--exit-on-error=false", "--strict-readiness=false")
    eventually(lambda: told(server, "good")[0] == "wheel 1.0" if server_is_up(server) else None, "the good model")
    words = reason(server, "bad")
    assert "the environment of model 'bad' cannot be made: " in words, words
    # uv writes the name of a package with a hyphen.
    assert re.search("only[-_]here==9.9", server.log()), "the log has the words of the program"
    assert len(environments(cache)) == 1


def server_is_up(server):
    try:
        with HTTP.connect(server) as client:
            return client.is_model_ready("good")
    except OSError:
        return False


def program(folder, name, text):
    folder.mkdir()
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)
    return folder


def test_a_server_that_is_killed_leaves_nothing_that_another_one_uses(
    start_making, folder, wheels, cache, tmp_path, threads
):
    # This uv makes half of an environment, and waits.
    slow = f'[ "$1" = venv ] && for last; do :; done && mkdir -p "$last/bin" && touch "$last/rubbish" && echo $$ > {tmp_path}/pid; exec sleep 1000'
    model(folder, "where", requirements(wheels, "1.0"))
    explicit = "--model-control-mode=explicit"
    server = start_making(folder, explicit, before_path=program(tmp_path / "bin", "uv", slow))

    def load():
        with HTTP.connect(server) as client, contextlib.suppress(Exception):
            client.load_model("where")

    threads.submit(load)
    process = tmp_path / "pid"
    eventually(lambda: process.exists() and process.read_text() and environments(cache), "half of the environment")
    server.expected_code = -9
    server.kill()
    server.process.wait()
    eventually(lambda: not living({int(process.read_text())}), "the program to end with the server")
    (tmp_path / "bin" / "uv").unlink()
    [half] = environments(cache)
    assert (half / "rubbish").exists()
    assert told(start_making(folder).wait_until_ready())[0] == "wheel 1.0"
    assert not (half / "rubbish").exists()


def test_the_time_of_an_environment_has_a_limit(start_making, folder, wheels, cache, tmp_path):
    model(folder, "where", requirements(wheels, "1.0"), config=ENDS)
    late = program(tmp_path / "bin", "uv", "echo no end is in sight; exec sleep 1000")
    options = ("--backend-config=python,environments-timeout-seconds=1", "--exit-on-error=false", "--strict-readiness=false")
    server = start_making(folder, *options, before_path=late)
    words = reason(server, "where")
    assert "the environment of model 'where' cannot be made: " in words, words
    assert "did not end in time: no end is in sight" in words, words


def test_a_model_in_a_sandbox_gets_an_environment_of_wheels(start_making, folder, wheels):
    model(folder, "where", "only_here==1.0\nnumpy\n")
    model(folder, "clever", f"--find-links {wheels}\nnumpy\n", config=ENDS)
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels), "UV_NO_INDEX": "1", "UV_FIND_LINKS": str(wheels)}
    options = ("--backend-config=python,sandbox=best-effort", "--exit-on-error=false", "--strict-readiness=false")
    server = start_making(folder, *options, **offline)
    words = reason(server, "clever")
    assert f"the line '--find-links {wheels}' of requirements.txt is no name of a package" in words, words
    assert eventually(lambda: told(server)[0], "the model") == "wheel 1.0"


# pip takes minutes on a busy machine. The load waits for it, and no start of a server does.
@pytest.mark.timeout(600)
def test_without_uv_pip_makes_an_environment(start_python, python_backend, folder, wheels, cache, monkeypatch):
    model(folder, "where", requirements(wheels, "1.0"))
    monkeypatch.setitem(python_backend.variables, "PATH", "/usr/bin:/bin")
    options = [ON, f"--backend-config=python,environments-directory={cache}", "--model-control-mode=explicit"]
    server = start_python(folder, *options, f"--backend-config=python,python-executable={sys.executable}")
    with GRPC.connect(server) as client:
        client.load_model("where")
    assert told(server)[0] == "wheel 1.0"


def test_a_project_of_uv_is_an_environment(start_making, folder, wheels):
    plugins.python_model(folder, "where", text=WHERE)
    (folder / "where" / "pyproject.toml").write_text(
        '[project]\nname = "where"\nversion = "1"\nrequires-python = ">=3.9"\ndependencies = ["only_here==2.0", "numpy"]\n'
        f'[tool.uv]\nno-index = true\nfind-links = ["{wheels}"]\n'
    )
    if not UV.is_file():
        programs.missing(f"there is no {UV}", programs.SETUP)
    processes.run([UV, "lock", "--python", sys.executable, "--project", folder / "where"], check=True)
    server = start_making(folder).wait_until_ready()
    assert told(server)[0] == "wheel 2.0"
