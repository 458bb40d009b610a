"""NVIDIA's own programs, unmodified, on the library and on the server.

$NEREID_TEST_NVIDIA is the folder into which `cargo xtask integrations` puts them.
"""

import csv
import json
import types

import numpy as np
import perf_analyzer
import plugins
import processes
import pytest
import repository as models
import requests
from protocols import GRPC, HTTP, add_sub_inputs
from python_backends import BUILT_IN
from serving import BINARY, PATIENCE, ROOT, environment, free_ports

pytestmark = pytest.mark.nvidia

PROGRAMS = ROOT / "tests/clients/nvidia_programs"
LIBRARY = BINARY.parent / "libtritonserver.so"
BRIEF = [f"--{option}={value}" for option, value in perf_analyzer.BRIEF.items()]


def variables():
    """The environment of a program that has the server in its own process."""
    return environment() | BUILT_IN.variables | {"LD_LIBRARY_PATH": str(LIBRARY.parent), "ORT_DISABLE_TELEMETRY": "1"}


@pytest.fixture(scope="module")
def python():
    """Starts a program of this folder in the Python that has NVIDIA's packages."""
    interpreter = perf_analyzer.folder() / "python"
    if not interpreter.exists():
        pytest.skip("the system has no Python 3.12, which these packages are made for")
    return lambda program, *arguments: [interpreter, PROGRAMS / program, *arguments]


@pytest.fixture(scope="module")
def models_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    models.add_sub(folder)
    models.identity(folder, "BYTES")
    plugins.python_model(folder, "streamer")
    return folder


@pytest.fixture(scope="module")
def seen(python, models_folder):
    """What the program sees that has the server in its own process."""
    ended = processes.run(python("in_process.py", models_folder), env=variables())
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stderr == "", "the program has the log"
    return json.loads(ended.stdout)


def test_a_python_program_has_the_server_in_its_process(seen):
    assert (seen["metadata"], seen["live"]) == ("embedded", True)
    assert seen["added"] == ["first", True] and seen["texts"] == ["a", "ä"]
    assert seen["statistics"] == 2 and seen["metric"]


def test_it_gets_each_response_of_a_decoupled_model(seen):
    assert [numbers for _, *numbers in seen["streamed"]] == [[[0]], [[1]], [[2]], []]
    assert [final for final, *_ in seen["streamed"]] == [False, False, False, True]


def test_its_errors_are_exceptions_of_their_kind(seen):
    assert seen["unknown"] == ["NotFoundError", "Request for unknown model: 'nobody' is not found"]
    kind, text = seen["wrong shape"]
    assert kind == "InvalidArgumentError" and "unexpected shape for input 'INPUT0' for model 'add_sub'" in text


def test_a_model_that_is_not_loaded_is_not_ready(seen):
    assert seen["ready"] == {"add_sub": True, "identity_bytes": False, "nobody": False}
    assert seen["unloaded"] is False


def test_it_takes_the_log(seen):
    assert ["INFO", "successfully loaded 'add_sub' version 1"] in seen["records"]
    assert {level for level, _ in seen["records"]} >= {"INFO", "VERBOSE"}


@pytest.fixture
def front_ends(python, models_folder):
    """The addresses of a server in a Python program with NVIDIA's front ends, which ends in order."""
    ports = dict(zip(("http", "grpc", "metrics"), free_ports(3), strict=True))
    line = python("front_ends.py", models_folder, *ports.values())
    pipes = {"stdin": processes.PIPE, "stdout": processes.PIPE, "stderr": processes.STDOUT, "text": True}
    with processes.running(line, env=variables(), **pipes) as program:
        said = iter(program.stdout.readline, "")
        assert "started\n" in said, "it has ended before"
        yield types.SimpleNamespace(**{service: f"127.0.0.1:{port}" for service, port in ports.items()})
        rest, _ = program.communicate(timeout=PATIENCE)
        assert program.returncode == 0, rest


def test_the_server_has_nvidias_front_ends(front_ends):
    for protocol in (HTTP, GRPC):
        with protocol.connect(front_ends) as client:
            assert client.is_server_ready() and not client.is_model_ready("nobody")
            inputs, first = add_sub_inputs(protocol)
            np.testing.assert_array_equal(client.infer("add_sub", inputs).as_numpy("OUTPUT0"), first + 1000)
    answer = requests.post(f"http://{front_ends.http}/v2/models/streamer/generate_stream", json={"N": 2}, timeout=PATIENCE)
    events = [json.loads(line.removeprefix("data: ")) for line in answer.text.splitlines() if line]
    assert [event["OUT"] for event in events] == [0, 1]
    text = requests.get(f"http://{front_ends.metrics}/metrics", timeout=PATIENCE).text
    assert 'nv_inference_count{model="add_sub",version="1"} 2' in text


def in_process(folder, repository):
    """Options for a server in the process of perf_analyzer."""
    (folder / "lib").mkdir()
    (folder / "lib/libtritonserver.so").symlink_to(LIBRARY)
    return ["--service-kind=triton_c_api", f"--triton-server-directory={folder}", f"--model-repository={repository}"]


def analyze(*options):
    return processes.run([perf_analyzer.program(), *options], env=variables())


MODELS = {
    "add_sub": ["-m", "add_sub", "-b", "2", "--concurrency-range", "1:2"],
    "texts": ["-m", "identity_bytes", "--shape", "INPUT:3", "--concurrency-range", "2"],
}


@pytest.mark.parametrize("options", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("kind", ["http", "grpc", "in-process"])
def test_perf_analyzer_measures(kind, options, tmp_path, models_folder, request):
    if kind == "in-process":
        place = in_process(tmp_path, models_folder)
    else:
        server = request.getfixturevalue("start")(models_folder, variables=BUILT_IN.variables).wait_until_ready()
        place = ["-i", kind, "-u", getattr(server, kind)]
    report = tmp_path / "report.csv"
    ended = analyze(*BRIEF, "-f", report, *place, *options)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    rows = list(csv.DictReader(report.read_text().splitlines()))
    # The rows stand in the order of their throughput.
    assert sorted(row["Concurrency"] for row in rows) == (["1", "2"] if "add_sub" in options else ["2"])
    assert all(float(row["Inferences/Second"]) > 0 and float(row["Server Compute Infer"]) >= 0 for row in rows)


def test_perf_analyzer_ends_in_order_if_the_model_is_not_there(tmp_path, models_folder):
    ended = analyze("-m", "nobody", *in_process(tmp_path, models_folder))
    # The server is deleted by a destructor, after `exit` was called.
    assert ended.returncode == 99 and "panicked" not in ended.stderr, ended.stderr
