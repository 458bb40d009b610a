"""ONNX Runtime neither keeps files below the home directory nor looks up a name, unless a setting asks for telemetry."""

import os
import sys

import processes
import programs
import pytest
import repository as models
import tritonclient.http
from serving import BINARY, PATIENCE, environment
from serving import LIBRARY as LIBRARY_VARIABLE

WARNING = "may send telemetry"
LIBRARY = BINARY.with_name("libtritonserver.so")

# Every look-up of a name fails and is noted, so that the test itself sends nothing.
NO_NAMES = """
#include <fcntl.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **found)
{
  (void)service;
  (void)hints;
  (void)found;
  int file = open(getenv("NAMES_LOOKED_UP"), O_WRONLY | O_CREAT | O_APPEND, 0600);
  if (file >= 0 && node != NULL && write(file, node, strlen(node)) >= 0) {
    close(file);
  }
  return EAI_FAIL;
}
"""

# A program that serves the models of a repository, and ends.
EMBEDDING = """
import ctypes, sys, threading
library, repository = ctypes.CDLL(sys.argv[1]), sys.argv[2].encode()
done = threading.Event()
if sys.argv[3] == "with threads":
    threading.Thread(target=done.wait).start()
options, server = ctypes.c_void_p(), ctypes.c_void_p()
def call(name, *arguments):
    function = getattr(library, "TRITONSERVER_" + name)
    function.restype = ctypes.c_void_p
    assert function(*arguments) is None, name
call("ServerOptionsNew", ctypes.byref(options))
call("ServerOptionsSetModelRepositoryPath", options, repository)
call("ServerOptionsSetStrictModelConfig", options, ctypes.c_bool(False))
call("ServerNew", ctypes.byref(server), options)
call("ServerDelete", server)
done.set()
"""


@pytest.fixture
def folder(tmp_path):
    repository = tmp_path / "models"
    repository.mkdir()
    models.completed(repository)
    return repository


@pytest.fixture
def home(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    return home


@pytest.fixture
def variables(tmp_path, home):
    """An environment in which ONNX Runtime would send telemetry."""
    source, shim = tmp_path / "no_names.c", tmp_path / "no_names.so"
    source.write_text(NO_NAMES)
    compiler = os.environ.get("CC", "cc")
    processes.run([compiler, "-shared", "-fPIC", "-o", shim, source], check=True)
    return {
        LIBRARY_VARIABLE: environment()[LIBRARY_VARIABLE],
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "LD_PRELOAD": str(shim),
        "NAMES_LOOKED_UP": str(tmp_path / "names"),
    }


def written(home):
    return sorted(str(path.relative_to(home)) for path in home.rglob("*"))


def serve_once(start, folder, variables, *options):
    server = start(folder, *options, variables=variables, inherits=False).wait_until_ready()
    with tritonclient.http.InferenceServerClient(server.http) as client:
        assert client.is_model_ready("completed")
    server.terminate()
    assert server.process.wait(PATIENCE) == 0
    return server.log()


def test_a_server_sends_no_telemetry(start, folder, variables, home, tmp_path):
    log = serve_once(start, folder, variables)
    assert written(home) == []
    assert not (tmp_path / "names").exists()
    assert WARNING not in log


def test_a_setting_leaves_telemetry_to_the_runtime(start, folder, variables, home):
    """Shows that the other tests would see it. Builds of ONNX Runtime without telemetry write nothing."""
    log = serve_once(start, folder, variables, "--backend-config=onnxruntime,telemetry=true")
    library = variables[LIBRARY_VARIABLE]
    with open(library, "rb") as file:
        can_send = b"ORT_DISABLE_TELEMETRY" in file.read()
    assert bool(written(home)) == can_send
    assert WARNING not in log


def embed(folder, tmp_path, variables, threads):
    if not LIBRARY.exists():
        programs.missing(f"there is no {LIBRARY}", "cargo build -p libtritonserver")
    script = tmp_path / "embedding.py"
    script.write_text(EMBEDDING)
    line = [sys.executable, "-I", script, LIBRARY, folder, threads]
    ended = processes.run(line, env=variables, check=True)
    return ended.stdout + ended.stderr


def test_a_program_that_embeds_the_server_sends_no_telemetry(folder, variables, home, tmp_path):
    log = embed(folder, tmp_path, variables, "without threads")
    assert written(home) == []
    assert not (tmp_path / "names").exists()
    assert WARNING not in log


def test_a_program_with_threads_is_told_to_set_the_variable(folder, variables, home, tmp_path):
    """Its environment cannot be changed: a thread might read it at the same time."""
    assert WARNING in embed(folder, tmp_path, variables, "with threads")
    prepared = variables | {"ORT_DISABLE_TELEMETRY": "1", "HOME": str(tmp_path / "other")}
    assert WARNING not in embed(folder, tmp_path, prepared, "with threads")
    assert written(tmp_path / "other") == []
