"""`nereid perf`, the load generator in the same binary: how it is called, what it prints and writes."""

import csv
import itertools
import json
import xml.etree.ElementTree as ElementTree

import pytest
from perf_tool import SHORT, perf, perf_report, perf_rows, where
from protocols import metric

# The columns of perf_analyzer 2.45 for a model that is neither decoupled nor cached.
COLUMNS = [
    "Concurrency",
    "Inferences/Second",
    "Client Send",
    "Network+Server Send/Recv",
    "Server Queue",
    "Server Compute Input",
    "Server Compute Infer",
    "Server Compute Output",
    "Client Recv",
    "p50 latency",
    "p90 latency",
    "p95 latency",
    "p99 latency",
]
VERBOSE = ["Avg latency", "request/response", "response wait"]


@pytest.mark.parametrize(
    "protocol, options",
    [("http", ["--payload", "binary"]), ("http", ["--payload", "json"]), ("grpc", [])],
    ids=["http binary", "http json", "grpc"],
)
def test_it_prints_a_row_for_each_number_of_callers(server, tmp_path, protocol, options):
    before = metric(server, "nv_inference_request_success", model="add_sub", version=1)
    table = tmp_path / "rows.csv"
    words = ["--model", "add_sub", "--url", getattr(server, protocol), "--protocol", protocol, "--batch", 2]
    words += ["--concurrency", "1,4", *SHORT, "--csv", table, "--report", "table"]
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


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_the_report_has_the_lines_of_perf_analyzer(server, protocol):
    report = perf_report("-m", "add_sub", *where(server, protocol), "--concurrency-range", "1:2", *SHORT)
    lines = report.splitlines()
    assert lines[0] == "*** Measurement Settings ***"
    assert "  Concurrency limit: 2 concurrent requests" in lines
    first = lines.index("Request concurrency: 1")
    words = [line.strip().split(":")[0] for line in lines[first + 1 : first + 16]]
    library = "Avg HTTP time" if protocol == "http" else "Avg gRPC time"
    percentiles = [f"p{number} latency" for number in (50, 90, 95, 99)]
    client = ["Client", "Request count", "Throughput", "Avg latency", *percentiles, library, "Processor time"]
    counts = ["Inference count", "Execution count", "Successful request count", "Avg request latency"]
    assert words == [*client, "Server", *counts]
    summary = lines[lines.index("Inferences/Second vs. Client Average Batch Latency") + 1 :]
    assert [line.split(",")[0] for line in summary] == ["Concurrency: 1", "Concurrency: 2"]


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_the_figures_of_the_server_are_those_of_its_statistics(server, protocol):
    report = perf_report("-m", "counted", *where(server, protocol), "--request-count", 37, "--warm-up", 0, "-b", 3)
    assert "Request count: 37\n" in report
    assert "Inference count: 111\n" in report
    assert "Successful request count: 37\n" in report


def test_the_csv_file_has_the_columns_of_perf_analyzer(server, tmp_path):
    file = tmp_path / "perf.csv"
    options = ["-m", "add_sub", *where(server, "http"), "--concurrency-range", "1:3:2", *SHORT, "-f", file]
    perf_report(*options)
    headings, *rows = csv.reader(file.open())
    assert headings == COLUMNS
    assert all(len(row) == len(COLUMNS) for row in rows)
    assert {row[0] for row in rows} == {"1", "3"}
    assert [float(row[1]) for row in rows] == sorted(float(row[1]) for row in rows)
    assert all(field.isdigit() for row in rows for field in row[2:])
    perf_report(*options, "--verbose-csv")
    assert next(csv.reader(file.open())) == COLUMNS + VERBOSE
    perf_report(*options, "--percentile", 85, "--verbose-csv")
    percentiles = ["p50 latency", "p85 latency", "p90 latency", "p95 latency", "p99 latency"]
    assert next(csv.reader(file.open())) == COLUMNS[:9] + percentiles + VERBOSE[1:]


def test_a_point_is_measured_until_three_windows_agree(server, tmp_path):
    # Windows that may differ by any amount agree at once.
    options = ["-m", "add_sub", *where(server, "http"), "-p", 100, "--warm-up", 0.1]
    report = perf_report(*options, "--stability-percentage", 100000, "-v")
    assert report.count("Pass [") == 3
    [row] = perf_rows(tmp_path, *options, "--stability-percentage", 100000)
    assert row["stable"] == "true" and float(row["seconds"]) > 0.25
    # Windows that must not differ never agree.
    ended = perf(*options, "--stability-percentage", 0, "--max-trials", 4, "-v")
    assert ended.returncode == 3
    assert ended.stdout.count("Pass [") == 4
    assert "Not stable" in ended.stdout and "(not stable)" in ended.stdout


def test_windows_may_have_a_number_of_requests(server, tmp_path):
    options = ["-m", "add_sub", *where(server, "http"), "--measurement-mode", "count_windows", "-s", 100000]
    [row] = perf_rows(tmp_path, *options, "--measurement-request-count", 20, "--warmup-request-count", 5)
    # As perf_analyzer, each window is a second or longer.
    assert int(row["requests"]) >= 60 and float(row["seconds"]) >= 3


def test_a_range_ends_at_the_latency_threshold(server):
    options = ["-m", "add_sub", *where(server, "http"), "--concurrency-range", "1:0:1", *SHORT]
    # No response takes less than a microsecond.
    report = perf_report(*options, "--latency-threshold", 0.001)
    assert report.count("Request concurrency:") == 1


def gaps_in(profile):
    """The gaps between the times at which requests were due, in microseconds."""
    [experiment] = json.loads(profile.read_text())["experiments"]
    times = sorted(request["timestamp"] for request in experiment["requests"])
    return [round((later - earlier) / 1000) for earlier, later in itertools.pairwise(times)]


def test_an_open_loop_has_the_gaps_of_its_schedule(server, tmp_path):
    profile, file = tmp_path / "profile.json", tmp_path / "gaps"
    options = ["-m", "add_sub", *where(server, "http"), "--warm-up", 0, "--request-count", 40]
    options += ["--profile-export-file", profile]
    [row] = perf_rows(tmp_path, *options, "--request-rate-range", 200)
    assert (row["requests"], row["request_rate"]) == ("40", "200.00")
    assert gaps_in(profile) == [5000] * 39
    file.write_text("2000\n6000\n")
    [row] = perf_rows(tmp_path, *options, "--request-intervals", file)
    assert (row["requests"], row["request_rate"]) == ("40", "250.00")
    assert gaps_in(profile) == [6000, 2000] * 19 + [6000]
    perf_rows(tmp_path, *options, "--request-rate-range", 200, "--request-distribution", "poisson")
    assert len(set(gaps_in(profile))) > 30


def test_requests_that_are_sent_late_are_counted_and_said(server):
    # A single caller cannot follow a schedule whose gaps are 20 us.
    options = ["-m", "add_sub", *where(server, "http"), "--concurrency", 1, "--warm-up", 0, "--request-count", 200]
    report = perf_report(*options, "--request-rate-range", 50000)
    assert "later than they were due" in report


def test_pictures_and_profiles_are_files_of_their_own(server, tmp_path):
    picture, profile = tmp_path / "picture.svg", tmp_path / "profile.json"
    options = ["-m", "add_sub", *where(server, "http"), "--concurrency", "1,2", "--warm-up", 0]
    perf_report(*options, "--request-count", 25, "--plot", picture, "--profile-export-file", profile)
    root = ElementTree.fromstring(picture.read_text())
    assert root.tag.endswith("svg") and len(root.findall("{*}polyline")) == 4
    experiments = json.loads(profile.read_text())["experiments"]
    assert [entry["experiment"] for entry in experiments] == [{"mode": "concurrency", "value": n} for n in (1, 2)]
    for experiment in experiments:
        assert len(experiment["requests"]) == 25
        start, end = experiment["window_boundaries"]
        for request in experiment["requests"]:
            [response] = request["response_timestamps"]
            assert start <= request["timestamp"] < response <= end


@pytest.mark.parametrize(
    "options, text",
    [
        (["--collect-metrics"], "scrape the metrics port"),
        (["--model-repository", "/models"], "loads no server into its own process"),
        (["--bls-composing-models", "a"], "/v2/models/stats"),
        (["--shared-memory", "cuda"], "GPU"),
        (["--concurency-range", "1:4"], "--concurrency-range"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_options_that_it_does_not_have_are_refused_with_a_reason(options, text):
    ended = perf("-m", "add_sub", *options)
    assert ended.returncode == 2
    assert text in ended.stderr
