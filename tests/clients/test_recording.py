"""`nereid record` between clients and a server, and `nereid replay` of what it has written."""

import http.client
import itertools
import json
import queue
import socket
import threading

import numpy as np
import pytest
import repository
import requests
import tritonclient.grpc
import tritonclient.http
from documentation import EXAMPLES
from protocols import GRPC, HTTP
from recordings import content, events, recording, replay, replayed
from serving import PATIENCE, eventually


def ask(protocol, place, number, **options):
    """One request of the model `add_sub`."""
    array = np.full((1, 16), number, np.int32)
    with protocol.connect(place) as client:
        answer = client.infer(
            "add_sub", [protocol.input("INPUT0", array), protocol.input("INPUT1", array)], **options
        )
        assert answer.as_numpy("OUTPUT0").tolist() == (2 * array).tolist()


def test_clients_get_the_same_and_a_replay_finds_it_again(server, tmp_path, protocol):
    with recording(tmp_path, server) as proxy:
        for number in range(5):
            ask(protocol, proxy, number, request_id=f"r{number}", headers={"x-tenant": "blue"})
    calls, answers = events(proxy.file, "request"), events(proxy.file, "answer")
    assert len(calls) == len(answers) == 5
    assert all(["x-tenant", "blue"] in call["headers"] for call in calls)
    assert b"r3" in content(calls[3]["body"])
    assert "recorded 5 calls" in proxy.log()
    report = replayed(proxy.file, server, tmp_path)
    assert (report["same"], report["different"], report["failed"]) == (5, 0, 0)
    (operation,) = report["operations"]
    assert operation["model"] == "add_sub"
    assert operation["operation"] == ("infer" if protocol is HTTP else "ModelInfer")
    assert operation["recorded_ms"]["count"] == operation["replayed_ms"]["count"] == 5


def test_other_answers_are_told_with_their_place(start, tmp_path):
    before, after = tmp_path / "before", tmp_path / "after"
    repository.add_sub(before)
    repository.add_sub(after)
    # The same inputs and outputs, and a difference in the place of the sum.
    model = repository.graph(
        "m (int32[batch, 16] INPUT0, int32[batch, 16] INPUT1) => (int32[batch, 16] OUTPUT0, int32[batch, 16] OUTPUT1)"
        " { OUTPUT0 = Sub(INPUT0, INPUT1)\n OUTPUT1 = Sub(INPUT0, INPUT1) }"
    )
    (after / "add_sub" / "1" / "model.onnx").write_bytes(model.SerializeToString())
    with recording(tmp_path, start(before)) as proxy:
        for protocol in (HTTP, GRPC):
            ask(protocol, proxy, 3)
    server = start(after)
    ended = replay(proxy.file, server)
    assert ended.returncode == 3, ended.stdout + ended.stderr
    assert "different 2" in ended.stdout
    assert "call 0, add_sub infer: output 'OUTPUT0': element 0 is 0, recorded 6" in ended.stdout
    assert "call 1, add_sub ModelInfer: output 'OUTPUT0': element 0 is 0, recorded 6" in ended.stdout
    assert replay(proxy.file, server, "--tolerance", 6).returncode == 0
    assert replay(proxy.file, server, "--no-compare").returncode == 0


def test_sequences_keep_their_order_whatever_the_speed(server, tmp_path):
    with recording(tmp_path, server) as proxy:
        for protocol in (HTTP, GRPC):
            with protocol.connect(proxy) as client:
                for step in range(20):
                    number = protocol.input("X", np.array([[step]], np.int32))
                    flags = {"sequence_start": step == 0, "sequence_end": step == 19}
                    client.infer("accumulate_direct", [number], sequence_id=4711, **flags)
    report = replayed(proxy.file, server, tmp_path, "--speed", 1000)
    assert report["same"] == 40, report
    assert report["waited_for_sequence"] > 0


def test_streams_are_recorded_message_by_message(server, tmp_path):
    with recording(tmp_path, server) as proxy:
        answers = queue.Queue()
        with tritonclient.grpc.InferenceServerClient(proxy.grpc) as client:
            client.start_stream(lambda result, error: answers.put((result, error)))
            for start in (3, 2):
                inputs = [GRPC.input("FROM", np.array([[start]])), GRPC.input("ROUNDS", np.array([[0]]))]
                client.async_stream_infer("countdown", inputs, request_id=str(start))
                for _ in range(start):
                    _, error = answers.get(timeout=PATIENCE)
                    assert error is None, error
            client.stop_stream()
        connection = http.client.HTTPConnection(proxy.http, timeout=PATIENCE)
        body = json.dumps({"FROM": 4, "ROUNDS": 0})
        connection.request("POST", "/v2/models/countdown/generate_stream", body)
        assert connection.getresponse().read().count(b"data: ") == 4
        connection.close()
    assert len(events(proxy.file, "message")) == 2
    assert len(events(proxy.file, "answer_message")) >= 5
    report = replayed(proxy.file, server, tmp_path)
    assert (report["same"], report["failed"]) == (2, 0), report


def recorded_with_gaps(folder, server, gaps_us):
    """A recording of calls, whose times are then changed so that they have these gaps."""
    with recording(folder, server) as proxy, HTTP.connect(proxy) as client:
        for number in range(len(gaps_us) + 1):
            client.get_model_metadata("add_sub", headers={"x-number": str(number)})
    lines = [json.loads(line) for line in proxy.file.read_text().splitlines()]
    dues = iter(itertools.accumulate(gaps_us, initial=0))
    for line in lines:
        if line["event"] == "request":
            line["at_us"] = next(dues)
    proxy.file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return proxy.file


def test_the_times_between_calls_are_kept(server, tmp_path):
    """Sent again through another recording: each call once, and the last one not before it is due."""
    gaps_us = [0, 50_000, 10_000, 30_000, 0, 500_000]
    file = recorded_with_gaps(tmp_path, server, gaps_us)
    again = tmp_path / "again"
    again.mkdir()
    with recording(again, server) as second:
        report = replayed(file, second, tmp_path)
    assert report["same"] == 7 and report["elapsed_s"] >= sum(gaps_us) / 1e6, report
    sent = [dict(call["headers"])["x-number"] for call in events(second.file, "request")]
    assert sorted(sent) == [str(number) for number in range(7)]


def test_a_faster_replay_ends_sooner(server, tmp_path):
    """The second call is due after ten days; a million times as fast, after a second."""
    file = recorded_with_gaps(tmp_path, server, [10 * 24 * 3600 * 10**6])
    report = replayed(file, server, tmp_path, "--speed", 10**6)
    assert report["same"] == 2 and report["elapsed_s"] >= 0.86, report


def test_secrets_are_passed_on_and_never_written(server, tmp_path):
    names = ("x-api-key", "Cookie", "X-Amz-Security-Token", "triton-grpc-protocol-admin", "x-mine", "who", "triton-grpc-protocol-who")
    secrets = {"Authorization": "Bearer sesame", **dict.fromkeys(names, "sesame")}
    restricted = ("--http-restricted-api", "trace:who=sesame", "--grpc-restricted-protocol", "trace:who=sesame")
    with recording(tmp_path, server, "--omit-header", "X-Mine", *restricted) as proxy:
        ask(HTTP, proxy, 1, headers=dict(secrets))
        ask(GRPC, proxy, 1, headers={name.lower(): value for name, value in secrets.items()})
    assert len(events(proxy.file, "request")) == 2
    assert "sesame" not in proxy.file.read_text()
    assert proxy.file.stat().st_mode & 0o777 == 0o600


def test_tensors_can_be_hidden(server, tmp_path):
    def say(place, protocol, text):
        with protocol.connect(place) as client:
            tensor = protocol.input("INPUT", np.array([text], object), "BYTES")
            outputs = None if protocol is GRPC else [protocol.output("OUTPUT", binary_data=False)]
            client.infer("identity_bytes", [tensor], outputs=outputs, request_id="kept")

    with recording(tmp_path, server, "--hide-tensors") as proxy:
        for protocol in (HTTP, GRPC):
            say(proxy, protocol, "password")
            ask(protocol, proxy, 0x41424344)
        body = {"INPUT": "password", "parameters": {"x": 1}}
        assert requests.post(f"http://{proxy.http}/v2/models/identity_bytes/generate", json=body, timeout=PATIENCE).ok
    text = proxy.file.read_bytes()
    bodies = [content(line["body"]) for kind in ("request", "answer") for line in events(proxy.file, kind)]
    assert len(bodies) == 10
    for hidden in (b"password", b"DCBA", str(0x41424344).encode(), str(2 * 0x41424344).encode()):
        assert hidden not in text and not any(hidden in body for body in bodies)
    assert sum(b"xxxxxxxx" in body for body in bodies) == 6
    assert sum(b"kept" in body for body in bodies) == 4
    # The calls are still calls, and answers to zeros are zeros.
    report = replayed(proxy.file, server, tmp_path)
    assert (report["same"], report["failed"]) == (5, 0), report


def test_calls_that_change_the_server_are_sent_on_request_only(start, tmp_path):
    models = tmp_path / "models"
    repository.add_sub(models)
    server = start(models, "--model-control-mode=explicit", "--load-model=add_sub")
    with recording(tmp_path, server) as proxy, HTTP.connect(proxy) as client:
        client.unload_model("add_sub")
        client.load_model("add_sub")
        client.get_model_repository_index()
    report = replayed(proxy.file, server, tmp_path)
    assert (report["answered"], report["not_sent"]) == (1, 2)
    report = replayed(proxy.file, server, tmp_path, "--all-calls")
    assert (report["answered"], report["not_sent"]) == (3, 0)


def test_limits_end_the_recording_and_not_the_traffic(server, tmp_path):
    with recording(tmp_path, server, "--max-calls", 2) as proxy:
        for number in range(4):
            ask(HTTP, proxy, number)
        eventually(lambda: "nothing more is recorded" in proxy.log(), "the message")
    assert len(events(proxy.file, "request")) == 2
    size = proxy.file.stat().st_size
    with recording(tmp_path, server, "--max-file-bytes", size) as proxy:
        for number in range(9):
            ask(HTTP, proxy, number)
    assert proxy.file.stat().st_size <= size


def test_bodies_without_room_are_passed_on_and_left_out(server, tmp_path):
    large = np.zeros(4000, np.float32)
    with recording(tmp_path, server, "--max-body-bytes", 10_000, "--max-memory-bytes", 50_000) as proxy:
        for protocol in (HTTP, GRPC):
            with protocol.connect(proxy) as client:
                answer = client.infer("identity_fp32", [protocol.input("INPUT", large)])
                assert answer.as_numpy("OUTPUT").shape == large.shape
            ask(protocol, proxy, 1)
    omitted = [call["body"].get("omitted") for call in events(proxy.file, "request")]
    assert omitted == ["longer than --max-body-bytes", None] * 2
    assert "4 bodies were left out" in proxy.log()
    report = replayed(proxy.file, server, tmp_path)
    assert (report["same"], report["not_sent"]) == (2, 2)


def test_a_server_that_is_gone_is_told_to_clients(start, tmp_path):
    models = tmp_path / "models"
    repository.add_sub(models)
    server = start(models)
    with recording(tmp_path, server) as proxy:
        ask(HTTP, proxy, 1)
        server.terminate()
        assert server.process.wait(PATIENCE) == 0
        with pytest.raises(tritonclient.http.InferenceServerException, match="does not answer"):
            ask(HTTP, proxy, 1)
        with pytest.raises(tritonclient.grpc.InferenceServerException, match="does not answer") as error:
            ask(GRPC, proxy, 1)
        assert error.value.status() == "StatusCode.UNAVAILABLE"
    ended = replay(proxy.file, server)
    assert ended.returncode == 1 and "no call was answered" in ended.stderr


def test_a_client_that_never_reads_holds_nobody_up(server, tmp_path):
    """63 clients are served beside one that sends requests and reads no answer."""
    large = json.dumps({"inputs": [{"name": "INPUT", "datatype": "FP32", "shape": [50_000], "data": [0] * 50_000}]})
    head = f"POST /v2/models/identity_fp32/infer HTTP/1.1\r\nHost: a\r\nContent-Length: {len(large)}\r\n\r\n"
    with recording(tmp_path, server, "--max-connections", 64, "--max-memory-bytes", 1_000_000) as proxy:
        host, port = proxy.http.split(":")
        with socket.create_connection((host, int(port)), PATIENCE) as stuck:
            stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stuck.settimeout(0.2)
            try:
                while True:
                    stuck.sendall((head + large).encode())
            except TimeoutError:
                pass
            callers = [threading.Thread(target=ask, args=(HTTP, proxy, number)) for number in range(63)]
            [caller.start() for caller in callers]
            [caller.join(PATIENCE) for caller in callers]
            assert not any(caller.is_alive() for caller in callers)


@pytest.mark.parametrize(
    "lines, words",
    [
        ("", "is empty"),
        ("{}\n", "is no recording of 'nereid record'"),
        ('{"event":"recording","form":9,"started_unix_us":0}\n', "has form 9; this program reads form 1"),
        ('{"event":"recording","form":1,"started_unix_us":0}\nx\n', ":2: expected value"),
        ('{"event":"recording","form":1,"started_unix_us":0}\n', "has no call that is sent"),
    ],
)
def test_a_file_that_is_none_is_refused_with_its_line(server, tmp_path, lines, words):
    file = tmp_path / "calls.jsonl"
    file.write_text(lines)
    ended = replay(file, server)
    assert ended.returncode == 1
    assert words in ended.stderr and "calls.jsonl" in ended.stderr


def test_the_example_of_the_documentation_can_be_sent(server, tmp_path):
    (example,) = [example for example in EXAMPLES if example.page == "docs/recording.md" and "lines" in example.modes]
    file = tmp_path / "calls.jsonl"
    file.write_text(example.text)
    report = replayed(file, server, tmp_path, code=3)
    # The model of the example is not there, so its answers are others.
    assert (report["answered"], report["different"], report["not_sent"]) == (2, 2, 0), report


def test_a_port_that_is_taken_is_named(server, tmp_path):
    with recording(tmp_path, server) as proxy:
        other = tmp_path / "other"
        other.mkdir()
        with pytest.raises(AssertionError, match="cannot listen at 127.0.0.1:.*Address already in use"):
            with recording(other, server, "--listen", proxy.http.split(":")[1]):
                pass
