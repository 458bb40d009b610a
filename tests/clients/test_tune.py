"""`nereid tune`: tunes a small model in seconds, and what it has written is checked and served."""

import csv
import signal
import sys
import xml.etree.ElementTree

import numpy as np
import processes
import pytest
import tritonclient.http
from repository import graph, write
from serving import BINARY, PATIENCE, environment

CONFIG = """\
# The network of the shop.
max_batch_size: 8  # rows
instance_group [ { count: 1 } ]
"""


@pytest.fixture
def models(tmp_path):
    folder = tmp_path / "models"
    random = np.random.default_rng(1)
    network = graph(
        "network (float[N, 64] X) => (float[N, 64] Y) { H = MatMul(X, W) A = Relu(H) Y = MatMul(A, V) }",
        W=random.normal(0, 0.1, (64, 256)).astype(np.float32),
        V=random.normal(0, 0.1, (256, 64)).astype(np.float32),
    )
    write(folder, "network", network, CONFIG)
    return folder


def line(*options):
    return [str(BINARY), "tune", *map(str, options)]


def tune(*options, **more):
    ended = processes.run(line(*options), env=environment(), **more)
    assert "panicked" not in ended.stderr
    return ended


def test_a_tuned_model_is_checked_and_served(models, tmp_path, start):
    output = tmp_path / "tuned"
    before = (models / "network" / "config.pbtxt").read_text()
    options = ["--model-repository", models, "--output", output, "--concurrency", "1,8", "--latency-ms", 1000]
    ended = tune("network", *options, "--time", 8)
    assert ended.returncode == 0, ended.stderr
    assert "requests/s at p99" in ended.stdout
    assert (models / "network" / "config.pbtxt").read_text() == before

    config = (output / "config.pbtxt").read_text()
    assert "# The network of the shop.\nmax_batch_size: 8  # rows\ninstance_group [ { count: " in config
    assert "intra_op_thread_count" in config
    for plot in ("throughput.svg", "cost.svg"):
        assert xml.etree.ElementTree.parse(output / plot).getroot().tag.endswith("svg")
    page = xml.etree.ElementTree.fromstring((output / "report.html").read_text().partition("\n")[2])
    assert len(page.findall(".//{http://www.w3.org/2000/svg}svg")) == 2
    rounds = list(csv.DictReader((output / "measurements.csv").open()))
    assert len(rounds) >= 2 and all(float(row["requests_per_second"]) > 0 for row in rounds)

    (models / "network" / "config.pbtxt").write_text(config)
    checked = processes.run([BINARY, "check", "--strict", models], env=environment())
    assert checked.returncode == 0, checked.stdout
    with tritonclient.http.InferenceServerClient(start(models).http) as client:
        tensor = tritonclient.http.InferInput("X", [8, 64], "FP32")
        tensor.set_data_from_numpy(np.ones([8, 64], np.float32))
        assert client.infer("network", [tensor]).as_numpy("Y").shape == (8, 64)


def test_requests_to_a_model_without_a_size_may_have_as_many_rows_as_before(models, tmp_path, start):
    config = models / "network" / "config.pbtxt"
    config.unlink()
    ended = tune(models / "network", "--output", tmp_path / "tuned", "--concurrency", "1,8", "--time", 8)
    assert ended.returncode == 0, ended.stderr
    config.write_text((tmp_path / "tuned" / "config.pbtxt").read_text())
    with tritonclient.http.InferenceServerClient(start(models).http) as client:
        tensor = tritonclient.http.InferInput("X", [1024, 64], "FP32")
        tensor.set_data_from_numpy(np.ones([1024, 64], np.float32))
        assert client.infer("network", [tensor]).as_numpy("Y").shape == (1024, 64)


def test_an_interruption_leaves_what_was_measured(models, tmp_path):
    output = tmp_path / "tuned"
    command = line("network", "--model-repository", models, "--output", output, "--time", 600, "--concurrency", 4)
    pipes = {"stdout": processes.PIPE, "stderr": processes.PIPE, "text": True}
    with processes.running(command, env=environment(), **pipes) as process:
        # A line of progress for the space, and one for the first round.
        progress = [process.stderr.readline() for _ in range(2)]
        assert "req/s" in progress[1], progress
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert "wrote" in out and (output / "config.pbtxt").exists()
    assert "The user ended it early." in (output / "report.html").read_text()


@pytest.mark.parametrize(
    "config, why",
    [
        ("sequence_batching { }", "sequence_batching"),
        ("max_batch_size: 8 model_transaction_policy { decoupled: true }", "decoupled"),
        ("max_batch_size: 8 instance_group [ { count: 1 }, { count: 2 } ]", "2 groups"),
        ("max_batch_sizes: 8", "max_batch_sizes"),
    ],
    ids=["sequences", "decoupled", "groups", "misspelt"],
)
def test_what_cannot_be_tuned_is_refused_by_name(models, tmp_path, config, why):
    (models / "network" / "config.pbtxt").write_text(config)
    ended = tune("network", "--model-repository", models, "--output", tmp_path / "tuned")
    assert ended.returncode == 1
    assert why in ended.stderr and "network" in ended.stderr
    assert not (tmp_path / "tuned").exists()


def test_the_shortest_time_is_enough_and_any_name_will_do(models, tmp_path):
    name = "net<1> of 100 % & more"
    (models / "network").rename(models / name)
    config = models / name / "config.pbtxt"
    config.write_text(config.read_text().replace('"network"', f'"{name}"'))
    ended = tune(name, "--model-repository", models, "--output", tmp_path / "tuned", "--time", 5)
    assert ended.returncode == 0, ended.stderr
    rounds = list(csv.DictReader((tmp_path / "tuned" / "measurements.csv").open()))
    assert len(rounds) >= 2


RAISES = """\
class TritonPythonModel:
    def execute(self, requests):
        raise ValueError("the shelf is empty")
"""

VARYING = """\
backend: "python"
max_batch_size: 8
input { name: "X" data_type: TYPE_FP32 dims: -1 }
output { name: "Y" data_type: TYPE_FP32 dims: -1 }
"""


@pytest.mark.parametrize(
    "options, why",
    [
        ([], "input 'X' has variable dimensions [-1]: give all sizes, as in --shape X:1"),
        (["--shape", "X:3", "--input-data", "nowhere.json"], "cannot read nowhere.json: No such file or directory"),
        (["--shape", "X:3"], "message: ValueError: the shelf is empty\nAt:\n  "),
    ],
    ids=["shape", "file", "model"],
)
def test_what_cannot_be_measured_says_why(tmp_path, options, why):
    folder = tmp_path / "models"
    (folder / "shelf" / "1").mkdir(parents=True)
    (folder / "shelf" / "config.pbtxt").write_text(VARYING)
    (folder / "shelf" / "1" / "model.py").write_text(RAISES)
    line = ["shelf", "--model-repository", folder, "--output", tmp_path / "tuned", "--time", 60, *options]
    ended = tune(*line, "--", f"--backend-config=python,python-executable={sys.executable}")
    assert ended.returncode == 1
    assert "\nerror: model 'shelf' cannot be measured: " in ended.stderr
    assert why in ended.stderr.partition("\nerror: ")[2], ended.stderr
    assert not (tmp_path / "tuned").exists()


def test_a_place_that_cannot_be_written_is_found_before_the_measurements(models, tmp_path):
    (tmp_path / "file").write_text("")
    ended = tune("network", "--model-repository", models, "--output", tmp_path / "file" / "tuned")
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"error: cannot write into {tmp_path}/file/tuned: Not a directory"), ended.stderr


def test_wrong_command_lines_are_refused(models):
    assert tune("network").returncode == 2
    ended = tune("none", "--model-repository", models)
    assert ended.returncode == 1 and "no directory 'none'" in ended.stderr
    ended = tune("network", "--model-repository", models, "--", "--http-port=1")
    assert ended.returncode == 2 and "--http-port" in ended.stderr
