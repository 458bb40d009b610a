"""`nereid perf`, the load generator in the same binary, against the server."""

import csv
import subprocess

import pytest
from protocols import metric
from serving import BINARY, PATIENCE, environment


def perf(*options):
    line = [str(BINARY), "perf", *map(str, options)]
    return subprocess.run(line, env=environment(), capture_output=True, text=True, timeout=PATIENCE, check=False)


@pytest.mark.parametrize(
    "protocol, options",
    [("http", ["--payload", "binary"]), ("http", ["--payload", "json"]), ("grpc", [])],
    ids=["http binary", "http json", "grpc"],
)
def test_it_prints_a_row_for_each_number_of_callers(server, tmp_path, protocol, options):
    before = metric(server, "nv_inference_request_success", model="add_sub", version=1)
    table = tmp_path / "rows.csv"
    words = ["--model", "add_sub", "--url", getattr(server, protocol), "--protocol", protocol, "--batch", 2]
    words += ["--concurrency", "1,4", "--warm-up", 0.1, "--duration", 0.3, "--csv", table]
    ended = perf(*words, *options)
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert "model 'add_sub'" in lines[0] and "batch 2" in lines[0]
    assert lines[1].split()[:3] == ["callers", "rate", "req/s"]
    assert [line.split()[0] for line in lines[2:]] == ["1", "4"]
    rows = list(csv.DictReader(table.open()))
    assert [row["errors"] for row in rows] == ["0", "0"]
    answered = sum(int(row["requests"]) for row in rows)
    assert answered > 0
    assert metric(server, "nv_inference_request_success", model="add_sub", version=1) >= before + answered


def test_an_unknown_model_is_named(server):
    ended = perf("--model", "none", "--url", server.http)
    assert ended.returncode != 0
    assert "none" in ended.stderr
