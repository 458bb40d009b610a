"""The log: its settings over both protocols, its formats, and the log of requests."""

import json
import re
import resource

import grpc
import numpy as np
import plugins
import pytest
import python_backends
import repository as models
import tritonclient.grpc.aio
import tritonclient.http.aio
from protocols import GRPC, HTTP, add_sub_inputs, metric
from serving import Server, eventually, run_to_end
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

USUAL = {
    "log_file": "",
    "log_info": True,
    "log_warning": True,
    "log_error": True,
    "log_verbose_level": 0,
    "log_format": "default",
}


def plain(answer):
    """The settings as the HTTP client gives them, whatever the protocol."""
    if "settings" not in answer:
        return answer
    return {name: next(iter(value.values())) for name, value in answer["settings"].items()}


def settings(protocol, client):
    return plain(protocol.json(client.get_log_settings))


def update(protocol, client, changes):
    if protocol.name == "http":
        return client.update_log_settings(changes)
    return plain(client.update_log_settings(changes, as_json=True))


@pytest.fixture
def served(start, tmp_path):
    """A server of the test's own, because the settings belong to the process."""
    folder = tmp_path / "models"
    folder.mkdir()
    models.add_sub(folder)
    return lambda *options: start(folder, *options).wait_until_ready()


@pytest.mark.parametrize("protocol", [HTTP, GRPC], ids=lambda protocol: protocol.name)
def test_each_setting_can_be_changed_and_is_seen_over_both_protocols(served, protocol):
    server = served()
    other = GRPC if protocol is HTTP else HTTP
    with protocol.connect(server) as client, other.connect(server) as second:
        assert settings(protocol, client) == settings(other, second) == USUAL
        expected = dict(USUAL)
        for name, value in [
            ("log_verbose_level", 1),
            ("log_format", "ISO8601"),
            ("log_info", False),
            ("log_warning", False),
            ("log_error", False),
            ("log_format", "json"),
        ]:
            expected[name] = value
            assert update(protocol, client, {name: value}) == expected
            assert settings(other, second) == expected
        assert update(protocol, client, {}) == expected


@pytest.mark.parametrize("protocol", [HTTP, GRPC], ids=lambda protocol: protocol.name)
def test_a_wrong_setting_changes_nothing(served, protocol):
    server = served()
    format_text = {"http": "invalid argument for --log_format, got: foo", "grpc": "invalid argument for log_format, got: foo"}
    with protocol.connect(server) as client:
        for changes, text, code in [
            ({"log_info": False, "log_format": "foo"}, format_text[protocol.name], "INVALID_ARGUMENT"),
            (
                {"log_info": False, "log_file": "/tmp/x"},
                "log file location can not be updated through network protocol",
                "UNIMPLEMENTED",
            ),
        ]:
            with pytest.raises(InferenceServerException) as refusal:
                update(protocol, client, changes)
            assert (refusal.value.message(), refusal.value.status()) == (text, protocol.status(code))
        assert settings(protocol, client) == USUAL


def test_an_unset_value_of_grpc_is_refused_and_a_null_of_http_is_not(served):
    server = served()
    with HTTP.connect(server) as client:
        assert client.update_log_settings({"log_info": None}) == USUAL
    with GRPC.connect(server) as client, pytest.raises(InferenceServerException) as refusal:
        client.update_log_settings({"log_info": None})
    assert refusal.value.message() == "expect boolean for 'log_info'"


@pytest.mark.asyncio
@pytest.mark.parametrize("library", [tritonclient.http.aio, tritonclient.grpc.aio], ids=["http", "grpc"])
async def test_asynchronous_clients_change_the_log_too(served, library):
    server = served()
    address = server.http if library is tritonclient.http.aio else server.grpc
    as_json = {"as_json": True} if library is tritonclient.grpc.aio else {}
    async with library.InferenceServerClient(address) as client:
        changed = plain(await client.update_log_settings({"log_verbose_level": 2}, **as_json))
        assert changed == plain(await client.get_log_settings(**as_json)) == USUAL | {"log_verbose_level": 2}


def test_the_extension_is_named_and_can_be_restricted(served):
    key = "logging:admin-key=secret"
    server = served(f"--http-restricted-api={key}", f"--grpc-restricted-protocol={key}")
    for protocol, header in [(HTTP, "admin-key"), (GRPC, "triton-grpc-protocol-admin-key")]:
        with protocol.connect(server) as client:
            assert "logging" in protocol.json(client.get_server_metadata)["extensions"]
            with pytest.raises(InferenceServerException, match="restricted, expecting header"):
                client.get_log_settings()
            assert client.get_log_settings(headers={header: "secret"})


def test_a_change_takes_effect_at_once_and_lines_have_the_chosen_form(served):
    server = served()
    forms = {
        "default": r'I\d{4} \d\d:\d\d:\d\d\.\d{6} \d+ \w+\.rs:\d+\] "HTTP request: GET /v2"',
        "ISO8601": r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ I \d+ \w+\.rs:\d+\] "HTTP request: GET /v2"',
    }
    with HTTP.connect(server) as client:
        client.get_server_metadata()
        assert "HTTP request" not in server.log()
        for name in ("default", "ISO8601", "json"):
            client.update_log_settings({"log_format": name, "log_verbose_level": 1})
            before = len(server.log())
            client.get_server_metadata()
            line = server.log()[before:].splitlines()[0]
            if name == "json":
                record = json.loads(line)
                assert (record["level"], record["message"]) == ("VERBOSE", "HTTP request: GET /v2")
                assert record["process"] == server.process.pid
                assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", record["timestamp"])
                assert record["file"].endswith(".rs") and record["line"] > 0
            else:
                assert re.fullmatch(forms[name], line), line
        client.update_log_settings({"log_verbose_level": 0})
        before = len(server.log())
        client.get_server_metadata()
        assert len(server.log()) == before


def records_of(server):
    """The records of a log in JSON; only what announces a signal is no record."""
    return [json.loads(line) for line in server.log().splitlines() if not line.startswith("Signal (")]


def test_every_line_of_a_json_log_is_an_object(served):
    server = served("--log-format=json", "--log-verbose=2")
    server.terminate()
    server.process.wait(60)
    records = records_of(server)
    assert {("add_sub", "1", "READY")} <= {
        (record["model"], record["version"], record["status"]) for record in records if record["message"] == "model"
    }
    (version,) = [record["value"] for record in records if record.get("option") == "server_version"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", version)
    assert "python" in {record.get("backend") for record in records if record["message"] == "backend"}
    assert not any("+--" in record["message"] for record in records)
    assert any(record["message"].startswith("Started HTTPService at ") for record in records)


@pytest.mark.parametrize("python_backend", python_backends.OURS, indirect=True)
def test_what_a_model_prints_is_in_the_log_with_its_model_and_instance(start_python, tmp_path):
    folder = tmp_path / "models"
    ends = models.tensor("input", "X", "INT32", 1) + models.tensor("output", "Y", "INT32", 1)
    plugins.python_model(folder, "talker", config=ends)
    server = start_python(folder, "--log-format=json").wait_until_ready()
    with HTTP.connect(server) as client:
        client.infer("talker", [HTTP.input("X", np.zeros(1, np.int32))])
    server.terminate()
    server.process.wait(60)
    printed = [record for record in records_of(server) if "instance" in record]
    assert {(record["model"], record["version"], record["instance"]) for record in printed} == {("talker", "1", "talker_0")}
    assert [(record["level"], record["message"]) for record in printed if record["level"] == "INFO"] == [
        ("INFO", line) for line in ("I begin", "one", 'two "quoted"', "a child", "without an end")
    ]
    assert [record["message"] for record in printed if record["level"] == "WARNING"] == ["careful"]


@pytest.mark.parametrize("protocol", [HTTP, GRPC], ids=lambda protocol: protocol.name)
def test_the_line_about_a_refused_request_has_its_model_and_id(served, protocol):
    server = served("--log-format=json", "--log-verbose=1")
    with protocol.connect(server) as client, pytest.raises(InferenceServerException):
        client.infer("add_sub", [protocol.input("X", np.zeros((1, 16), np.int32))], request_id="r7")
    about = [record for record in records_of(server) if record.get("request_id") == "r7"]
    assert about and about[0]["model"] == "add_sub" and "failed" in about[0]["message"]


def test_requests_are_logged_with_what_they_were_and_without_their_content(served, tmp_path):
    log = tmp_path / "access"
    server = served(f"--access-log={log}")
    for protocol in (HTTP, GRPC):
        inputs, _ = add_sub_inputs(protocol, 2)
        with protocol.connect(server) as client:
            client.infer("add_sub", inputs, request_id="r7", headers={"authorization": "secret"})

    def inferences():
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        return [line for line in lines if line.get("request_id") == "r7"]

    eventually(lambda: len(inferences()) == 2, "the lines of both requests")
    over_http, over_grpc = inferences()
    assert (over_http["protocol"], over_http["method"], over_http["status"]) == ("http", "POST /v2/models/add_sub/infer", 200)
    assert (over_grpc["protocol"], over_grpc["method"], over_grpc["status"]) == ("grpc", "ModelInfer", 0)
    for line in (over_http, over_grpc):
        assert (line["model"], line["version"]) == ("add_sub", "1")
        assert line["request_bytes"] > 256 and line["response_bytes"] > 256
        assert line["queue_us"] + line["compute_us"] <= line["total_us"]
        assert line["peer"].startswith("127.0.0.1:")
    assert "secret" not in log.read_text()
    assert metric(server, "nereid_access_log_lines_total") >= 2
    assert metric(server, "nereid_access_log_dropped_total") == 0


def test_a_part_of_the_requests_is_logged_and_nothing_is_lost_at_the_end(served, tmp_path):
    log = tmp_path / "access"
    server = served(f"--access-log={log}", "--access-log-rate=0.25")
    with HTTP.connect(server) as client:
        # The probes of readiness are requests, too.
        for _ in range(400):
            client.is_server_live()
    server.terminate()
    server.process.wait(60)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    live = [line for line in lines if line["method"] == "GET /v2/health/live"]
    assert 99 <= len(live) <= 101


def test_lines_that_a_full_disk_does_not_take_are_counted_and_told(repository_folder, tmp_path):
    """A limit on the size of files ends a write in the middle of a line, as a full disk does."""
    log = tmp_path / "access"
    server = Server(tmp_path, repository_folder, f"--access-log={log}")
    server._line = ["bash", "-c", """trap '' XFSZ; ulimit -Sf 64; exec "$@" """, "nereid", *server._line]

    def counts():
        return metric(server, "nereid_access_log_lines_total"), metric(server, "nereid_access_log_dropped_total")

    def ask(client, requests):
        before = sum(counts())
        for _ in range(requests):
            client.is_server_live()
        eventually(lambda: sum(counts()) >= before + requests, "as many lines as requests")
        # The lines of the questions about metrics are not in this log: they have a port of their own.
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        assert len(lines) == counts()[0]

    # No request but those that are counted: a line may come after its answer.
    with server, HTTP.connect(server) as client:
        ask(client, 600)
        assert counts()[1] > 0
        server.wait_for_log(f"lost lines of the access log '{log}': ")
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        lost = counts()[1]
        ask(client, 100)
        assert counts()[1] == lost
        assert server.log().count("lost lines of the access log") == 1


def test_lost_lines_of_the_log_are_told_on_stderr(tmp_path):
    ended = run_to_end(f"--model-repository={tmp_path}/missing", "--http-port=0", "--grpc-port=0", "--metrics-port=0",
                       "--log-file=/dev/full", "--log-verbose=1")
    assert ended.returncode == 1
    told = "lost lines of the log file '/dev/full': 1 (No space left on device (os error 28))"
    assert ended.stderr.count("lost lines") == ended.stderr.count(told) == 1, ended.stderr


def test_an_access_log_that_cannot_be_opened_prevents_the_start(tmp_path):
    ended = run_to_end(f"--model-repository={tmp_path}", "--http-port=0", "--grpc-port=0", "--metrics-port=0",
                       f"--access-log={tmp_path}/missing/log")
    assert ended.returncode == 1
    assert f"failed to open access log '{tmp_path}/missing/log'" in ended.stderr


def test_clients_get_the_times_of_their_request_if_they_ask(served):
    server = served()
    inputs, _ = add_sub_inputs(HTTP)
    with HTTP.connect(server) as client:
        answer = client.infer("add_sub", inputs, headers={"Prefer": "server-timing"})
        assert answer.as_numpy("OUTPUT0") is not None
    request = service_pb2.ModelInferRequest(model_name="add_sub")
    for name in ("INPUT0", "INPUT1"):
        tensor = request.inputs.add(name=name, datatype="INT32", shape=[1, 16])
        tensor.contents.int_contents.extend(range(16))
    with grpc.insecure_channel(server.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        for metadata, wanted in [((), False), ((("prefer", "server-timing"),), True)]:
            _, call = stub.ModelInfer.with_call(request, metadata=metadata)
            trailers = dict(call.trailing_metadata())
            assert ("server-timing" in trailers) == wanted
        phases = [phase.split(";dur=") for phase in trailers["server-timing"].split(", ")]
    assert [name for name, _ in phases] == ["queue", "compute_input", "compute_infer", "compute_output", "total"]
    assert all(float(duration) >= 0 for _, duration in phases)
