"""NVIDIA's tools in Python that measure a server, and the clients of PyTriton, unmodified.

$NEREID_TEST_MEASURING_TOOLS and $NEREID_TEST_PYTRITON are interpreters that have these packages: `cargo xtask integrations`
installs them. They also need `perf_analyzer`.
"""

import csv
import json
import os
import pathlib
import shutil
import tempfile

import perf_analyzer
import plugins
import processes
import pytest
import repository as models
from others import MEASURING_TOOLS, PROGRAMS, PYTRITON, python_with
from python_backends import BUILT_IN
from serving import BINARY, ROOT, Server, environment, free_ports

pytestmark = pytest.mark.others

# They import many packages, and start perf_analyzer many times.
LIMIT = 110

DECOUPLED = "model_transaction_policy { decoupled: true }"


@pytest.fixture(scope="module")
def models_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    models.add_sub(folder)
    plugins.python_model(folder, "streamer")
    plugins.python_model(folder, "words", "word_sender")
    plugins.python_model(folder, "words_streamed", "word_sender", DECOUPLED)
    return folder


@pytest.fixture(scope="module")
def own_server(models_folder, tmp_path_factory):
    """Model Analyzer loads and unloads models."""
    options = ["--model-control-mode=explicit", "--load-model=*"]
    with Server(tmp_path_factory.mktemp("server"), models_folder, *options, variables=BUILT_IN.variables) as server:
        yield server.wait_until_ready()


def run(line, folder):
    """Runs a tool that finds `perf_analyzer` by its name."""
    path = os.pathsep.join([str(perf_analyzer.folder()), os.environ.get("PATH", "")])
    # No tool may ask its maker for anything.
    variables = processes.variables_with(PATH=path, HOME=str(folder), HF_HUB_OFFLINE="1")
    ended = processes.run(line, cwd=folder, env=variables, timeout=LIMIT)
    assert ended.returncode == 0, ended.stdout[-5000:] + ended.stderr[-5000:]
    return ended


def test_model_analyzer_measures_a_model_of_a_server_that_runs(own_server, models_folder, tmp_path):
    settings = {
        "model_repository": str(models_folder),
        "profile_models": {"add_sub": {"parameters": {"concurrency": [1, 2], "batch_sizes": [1]}}},
        "run_config_search_disable": True,
        "triton_launch_mode": "remote",
        "triton_http_endpoint": own_server.http,
        "triton_grpc_endpoint": own_server.grpc,
        "triton_metrics_url": own_server.metrics,
        "client_protocol": "grpc",
        "perf_analyzer_path": str(perf_analyzer.program()),
        "perf_analyzer_flags": perf_analyzer.BRIEF,
        "output_model_repository_path": str(tmp_path / "models"),
        "export_path": str(tmp_path),
        "checkpoint_directory": str(tmp_path / "checkpoints"),
    }
    config = tmp_path / "config.yaml"
    # JSON is YAML.
    config.write_text(json.dumps(settings))
    run([python_with(MEASURING_TOOLS).with_name("model-analyzer"), "profile", "-f", config], tmp_path)
    rows = list(csv.DictReader((tmp_path / "results/metrics-model-inference.csv").read_text().splitlines()))
    assert sorted(row["Concurrency"] for row in rows) == ["1", "2"]
    assert all(float(row["Throughput (infer/sec)"]) > 0 for row in rows)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    processes.run([python_with(MEASURING_TOOLS), PROGRAMS / "tokenizer.py", folder], check=True)
    return folder


KINDS = {
    "streamed": ["-m", "words_streamed", "--endpoint-type=kserve", "--backend=vllm", "--streaming"],
    "generate": ["-m", "words", "--endpoint-type=generate"],
}


@pytest.mark.parametrize("kind", KINDS)
def test_genai_perf_measures(kind, own_server, tokenizer, tmp_path):
    address = own_server.grpc if kind == "streamed" else own_server.http
    line = [python_with(MEASURING_TOOLS).with_name("genai-perf"), "profile", *KINDS[kind], "-u", address]
    line += ["--tokenizer", tokenizer, "--concurrency=1", "--request-count=5", "--num-dataset-entries=2"]
    line += ["--synthetic-input-tokens-mean=50", "--artifact-dir", tmp_path / "artifacts"]
    run(line, tmp_path)
    [report] = (tmp_path / "artifacts").rglob("*_genai_perf.json")
    measured = json.loads(report.read_text())
    assert measured["request_throughput"]["avg"] > 0 and measured["output_token_throughput"]["avg"] > 0


SUM = [1000 + index for index in range(16)]


def test_pytriton_serves_with_the_program_of_this_project(tmp_path):
    """As `python -m nereid_server link pytriton` makes it, in a copy of the package."""
    interpreter = python_with(PYTRITON)
    find = "import importlib.util; print(importlib.util.find_spec('pytriton').submodule_search_locations[0])"
    package = pathlib.Path(processes.run([interpreter, "-c", find], check=True).stdout.strip())
    shutil.copytree(package, tmp_path / "pytriton", copy_function=os.symlink)
    path = f"{tmp_path}:{ROOT / 'packaging/wheel'}"
    link = "import sys; from nereid_server import link; sys.exit(link.pytriton(sys.argv[1]))"
    processes.run([interpreter, "-c", link, BINARY], check=True, env=environment() | {"PYTHONPATH": path})
    ports = free_ports(3)
    line = [interpreter, PROGRAMS / "pytriton_server.py", *ports]
    # Its paths of sockets must be short.
    with tempfile.TemporaryDirectory() as folder:
        ended = processes.run(line, env=environment() | {"PYTHONPATH": str(tmp_path), "TMPDIR": folder, "HOME": folder})
    assert ended.returncode == 0, ended.stdout + ended.stderr
    # That of the server in PyTriton is 2.51.
    assert json.loads(ended.stdout.splitlines()[-1]) == {"http": [2, 4], "grpc": [2, 4], "version": "2.73.0"}


def test_each_client_of_pytriton_infers(own_server):
    line = [python_with(PYTRITON), PROGRAMS / "pytriton_clients.py", own_server.http, own_server.grpc]
    assert json.loads(processes.run(line, check=True).stdout) == {
        "plain http": [SUM, SUM, SUM],
        "plain grpc": [SUM, SUM, SUM],
        "asynchronous http": SUM,
        "asynchronous grpc": SUM,
        "futures http": SUM,
        "decoupled grpc": [[0], [1], [2]],
        "asynchronous decoupled grpc": [[0], [1], [2]],
    }
