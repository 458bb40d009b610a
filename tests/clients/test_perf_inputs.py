"""`nereid perf` with inputs of files, with sequences, streams and shared memory, against models that tell them apart."""

import base64
import json
import re

import numpy as np
import pytest
import repository as models
from perf_tool import SHORT, perf, perf_report, perf_rows, where
from protocols import metric

PROTOCOLS = ["http", "grpc"]


def input_file(folder, content):
    file = folder / "input.json"
    file.write_text(json.dumps(content))
    return file


def once(*options):
    """The options of a run whose requests are counted exactly."""
    return [*options, "--warm-up", 0]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_validation_data_is_compared_with_each_response(server, tmp_path, protocol):
    first = list(range(16))
    raw = base64.b64encode(np.full(16, 5, np.int32).tobytes()).decode()
    step = {"INPUT0": first, "INPUT1": {"b64": raw}}
    right = {"OUTPUT0": [number + 5 for number in first], "OUTPUT1": {"content": [number - 5 for number in first]}}
    options = once("-m", "add_sub", *where(server, protocol), "--request-count", 20, "--concurrency", 2)
    content = {"data": [step, step], "validation_data": [right, right]}
    [row] = perf_rows(tmp_path, *options, "--input-data", input_file(tmp_path, content))
    assert (row["requests"], row["errors"]) == ("20", "0")
    content["validation_data"][1] = {"OUTPUT0": [0] * 16}
    file = input_file(tmp_path, content)
    report = perf_report(*options, "--input-data", file)
    assert "Request count: 10\n" in report
    assert "10 times: output 'OUTPUT0' differs from the validation data" in report
    # Both steps in one batch: each batch has the wrong one.
    ended = perf(*options, "-b", 2, "--input-data", file)
    assert ended.returncode == 1 and "20 times: output 'OUTPUT0' differs" in ended.stdout


def test_a_file_gives_shapes_to_variable_dimensions(server, tmp_path):
    content = {"data": [{"INPUT": {"content": [1, 2, 3, 4, 5, 6], "shape": [2, 3]}}]}
    content["validation_data"] = [{"OUTPUT": [1, 2, 3, 4, 5, 6]}]
    options = once("-m", "matrix", *where(server, "http"), "--request-count", 5)
    [row] = perf_rows(tmp_path, *options, "--input-data", input_file(tmp_path, content))
    assert (row["requests"], row["errors"]) == ("5", "0")


def test_a_directory_has_a_file_for_each_tensor(server, tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    for name, value in [("INPUT0", 7), ("INPUT1", 2), ("OUTPUT0", 9), ("OUTPUT1", 5)]:
        (folder / name).write_bytes(np.full(16, value, np.int32).tobytes())
    options = once("-m", "add_sub", *where(server, "http"), "--request-count", 5, "-b", 2)
    [row] = perf_rows(tmp_path, *options, "--input-data", folder)
    assert (row["requests"], row["errors"]) == ("5", "0")
    (folder / "OUTPUT1").write_bytes(bytes(64))
    assert "5 times: output 'OUTPUT1' differs" in perf(*options, "--input-data", folder).stdout


def test_errors_of_a_file_name_the_file_and_the_place(server, tmp_path):
    file = input_file(tmp_path, {"data": [{"INPUT0": [1] * 16, "INPUT1": [1] * 15}]})
    ended = perf("-m", "add_sub", "-u", server.http, "--input-data", file)
    assert ended.returncode == 1
    assert f"{file}: data[0]: input 'INPUT1': has 15 values, but shape [16] takes 16" in ended.stderr


def test_texts_are_made_or_given(server, tmp_path):
    options = once("-m", "identity_bytes", *where(server, "grpc"), "--shape", "INPUT:3", "--request-count", 5)
    for texts in ([], ["--string-length", 7], ["--string-data", "text"]):
        [row] = perf_rows(tmp_path, *options, *texts)
        assert (row["requests"], row["errors"]) == ("5", "0")


@pytest.mark.parametrize("strategy", ["direct", "oldest"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_sequences_keep_their_state_apart(server, tmp_path, protocol, strategy):
    # The model answers with the sum of its sequence: a wrong id or flag would give another sum.
    streams = [[1, 2, 3, 4], [10, 20], [100, 0, 7]]
    content = {
        "data": [[{"X": [value]} for value in stream] for stream in streams],
        "validation_data": [[{"SUM": [int(total)]} for total in np.cumsum(stream)] for stream in streams],
    }
    options = once("-m", f"accumulate_{strategy}", *where(server, protocol), "--concurrency", 5)
    options += ["--request-count", 200, "--input-data", input_file(tmp_path, content)]
    [row] = perf_rows(tmp_path, *options)
    assert (row["requests"], row["errors"]) == ("200", "0")


@pytest.mark.parametrize("strategy", ["direct", "oldest"])
def test_sequences_of_an_open_loop_keep_their_state_apart(server, tmp_path, strategy):
    content = {"data": [[{"X": [1]}] * 3], "validation_data": [[{"SUM": [n]} for n in (1, 2, 3)]]}
    options = once("-m", f"accumulate_{strategy}", *where(server, "grpc"), "--request-rate-range", 300)
    options += ["--request-count", 150, "--num-of-sequences", 3, "--input-data", input_file(tmp_path, content)]
    [row] = perf_rows(tmp_path, *options, "--sequence-id-range", "40:43", "--serial-sequences")
    assert (row["requests"], row["errors"]) == ("150", "0")
    assert row["callers"] == "3"


def test_sequences_have_lengths_and_ids_of_the_options(server, tmp_path):
    profile = tmp_path / "profile.json"
    options = once("-m", "accumulate_oldest", *where(server, "http"), "--concurrency", 2, "--request-count", 300)
    options += ["--sequence-length", 10, "--sequence-length-variation", 30, "--sequence-id-range", "5:9"]
    report = perf_report(*options, "--profile-export-file", profile)
    assert "Sequence count: " in report
    [experiment] = json.loads(profile.read_text())["experiments"]
    ids = [request["sequence_id"] for request in experiment["requests"]]
    assert set(ids) == {5, 6, 7, 8}
    ended = perf(*options, "--concurrency-range", 5)
    assert ended.returncode == 2 and "contradict" in ended.stderr
    ended = perf("-m", "accumulate_oldest", *where(server, "http"), "-t", 5, "--sequence-id-range", "5:9")
    assert ended.returncode == 1 and "4 ids, but 5 sequences" in ended.stderr


def test_sequences_end_with_the_run(server):
    # The model has 4 instances with 8 slots. If sequences stayed, later runs would have to wait for a minute.
    options = ["-m", "accumulate_direct", *where(server, "http"), "-t", 30, "--sequence-length", 100000, *SHORT]
    for _ in range(3):
        assert "[ERROR]" not in perf_report(*options)


def countdown(folder, length, rounds=0):
    return input_file(folder, {"data": [{"FROM": [length], "ROUNDS": [rounds]}]})


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_streams_report_the_first_response_and_the_time_between(server, tmp_path, protocol):
    # Each step computes for so long that it counts beside the way to the server and back, also on a busy machine.
    file = countdown(tmp_path, 6, rounds=200)
    options = once("-m", "countdown", *where(server, protocol), "--streaming", "--concurrency", 2)
    options += ["--request-count", 40, "--input-data", file]
    [row] = perf_rows(tmp_path, *options)
    responses = float(row["responses_per_second"]) / float(row["requests_per_second"])
    assert (row["requests"], row["errors"]) == ("40", "0") and 5.9 < responses < 6.1
    assert 0 < float(row["first_p50_us"]) < float(row["p50_us"])
    assert 0 < float(row["next_p50_us"]) < float(row["p50_us"])
    report = perf_report(*options, "-f", tmp_path / "perf.csv")
    assert "Responses: 240 (" in report and "Time between responses: avg" in report
    headings, fields = (line.split(",") for line in (tmp_path / "perf.csv").read_text().splitlines())
    assert headings[1:3] == ["Inferences/Second", "Response Throughput"]
    assert 5.9 < float(fields[2]) / float(fields[1]) < 6.1


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_profile_has_each_response_of_a_stream(server, tmp_path, protocol):
    profile = tmp_path / "profile.json"
    options = once("-m", "countdown", *where(server, protocol), "--streaming", "--request-count", 5)
    perf_report(*options, "--input-data", countdown(tmp_path, 4), "--profile-export-file", profile)
    for request in json.loads(profile.read_text())["experiments"][0]["requests"]:
        times = request["response_timestamps"]
        assert len(times) == 4 and times == sorted(times)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_streams_of_an_open_loop_have_all_their_responses(server, tmp_path, protocol):
    options = once("-m", "countdown", *where(server, protocol), "--streaming", "--request-rate-range", 100)
    [row] = perf_rows(tmp_path, *options, "--request-count", 30, "--input-data", countdown(tmp_path, 3))
    assert (row["requests"], row["errors"]) == ("30", "0")
    assert 2.9 < float(row["responses_per_second"]) / float(row["requests_per_second"]) < 3.1


def test_generate_requests_have_the_batches_and_shapes_of_the_options(server, tmp_path):
    streaming = [*where(server, "http"), "--streaming", "--request-count", 10]
    report = perf_report(*once("-m", "add_sub", *streaming, "-b", 3))
    assert "Inference count: 30\n" in report and "Responses: 10 (" in report
    # An array with this shape is nested.
    content = {"data": [{"INPUT": {"content": [1, 2, 3, 4, 5, 6], "shape": [2, 3]}}]}
    report = perf_report(*once("-m", "matrix", *streaming), "--input-data", input_file(tmp_path, content))
    assert "Responses: 10 (" in report and "[ERROR]" not in report


def test_texts_of_generate_requests_are_utf_8(server, tmp_path):
    options = once("-m", "identity_bytes", *where(server, "http"), "--streaming", "--request-count", 5)
    for texts in (["größer"], ["one", "two"]):
        file = input_file(tmp_path, {"data": [{"INPUT": texts}]})
        assert "Request count: 5\n" in perf_report(*options, "--input-data", file)
    raw = base64.b64encode(b"\x01\0\0\0\xff").decode()
    ended = perf(*options, "--input-data", input_file(tmp_path, {"data": [{"INPUT": {"b64": raw}}]}))
    assert ended.returncode == 1
    text = "input 'INPUT' cannot be in a generate request: use --protocol grpc: element 0 is not UTF-8"
    assert text in ended.stderr


@pytest.mark.parametrize("strategy", ["direct", "oldest"])
def test_generate_requests_form_sequences(server, strategy):
    model = f"accumulate_{strategy}"
    options = once("-m", model, *where(server, "http"), "--streaming", "--concurrency", 3)
    # A request of no sequence, or of one that has not started, would be an error.
    report = perf_report(*options, "--request-count", 120, "--sequence-length", 4, "--sequence-length-variation", 0)
    [count] = re.findall(r"Sequence count: (\d+) \(", report)
    # Each caller may be inside of a sequence at the end.
    assert "Request count: 120\n" in report and 28 <= int(count) <= 30


def test_a_refused_generate_request_has_the_error_of_the_server(server, tmp_path):
    options = once("-m", "picky", *where(server, "http"), "--streaming", "--request-count", 20)
    file = input_file(tmp_path, {"data": [{"INDEX": [0]}, {"INDEX": [9]}]})
    report = perf_report(*options, "--input-data", file)
    assert "Request count: 10\n" in report and "Responses: 10 (" in report
    assert re.search(r"\[ERROR\] 10 times: \d{3} .*out of data bounds", report), report


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_headers_parameters_and_compression_are_accepted(server, tmp_path, protocol):
    options = once("-m", "add_sub", *where(server, protocol), "--request-count", 5, "-H", "X-Test: 1")
    options += ["--request-parameter", "number:5:int", "--request-parameter", "text:a:string"]
    if protocol == "grpc":
        for algorithm in ("gzip", "deflate"):
            [row] = perf_rows(tmp_path, *options, "--grpc-compression-algorithm", algorithm)
            assert (row["requests"], row["errors"]) == ("5", "0")
    else:
        [row] = perf_rows(tmp_path, *options, "--input-tensor-format", "json", "--output-tensor-format", "binary")
        assert (row["requests"], row["errors"]) == ("5", "0")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_tensors_may_be_in_shared_memory(start, repository, backend_option, tmp_path, protocol):
    server = start(repository, backend_option, "--allow-client-shm=true").wait_until_ready()
    options = once("-m", "add_sub", *where(server, protocol), "--request-count", 50, "-b", 4)
    [row] = perf_rows(tmp_path, *options, "--shared-memory", "system", "--output-shared-memory-size", 64)
    assert (row["requests"], row["errors"]) == ("50", "0")
    assert metric(server, "nv_inference_count", model="add_sub", version=1) == 200


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_ensemble_with_a_sequence_takes_sequences_and_shows_its_models(ensemble_server, tmp_path, protocol):
    values = [3, 4, 5]
    content = {
        "data": [[{"INPUT": [value]} for value in values]],
        "validation_data": [[{"DOUBLED": [int(2 * total)]} for total in np.cumsum(values)]],
    }
    options = once("-m", "doubled_sum", *where(ensemble_server, protocol), "--concurrency", 3)
    report = perf_report(*options, "--request-count", 60, "--input-data", input_file(tmp_path, content))
    assert "[ERROR]" not in report and "Request count: 60\n" in report
    # The server may count the last executions of members after the answers.
    for member in ("double", "sum"):
        assert 50 <= int(re.search(rf"  {member}: \n +Inference count: (\d+)\n", report)[1]) <= 60


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_model_with_a_cache_has_columns_for_it(start, tmp_path, protocol):
    folder = tmp_path / "models"
    models.add_sub(folder)
    with (folder / "add_sub/config.pbtxt").open("a") as config:
        config.write("response_cache { enable: true }\n")
    server = start(folder, "--cache-config=local,size=1048576").wait_until_ready()
    options = once("-m", "add_sub", *where(server, protocol), "--request-count", 30)
    report = perf_report(*options, "-f", tmp_path / "perf.csv")
    assert "Cache hit count: 29\n" in report and "Cache miss count: 1\n" in report
    headings = (tmp_path / "perf.csv").read_text().splitlines()[0].split(",")
    assert headings[8:11] == ["Server Cache Hit", "Server Cache Miss", "Client Recv"]
