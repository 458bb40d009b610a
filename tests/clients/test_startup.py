"""How a server starts, and in which words it does not."""

import os
import socket

import processes
import pytest
import repository as models
import requests
from protocols import HTTP, add_sub_inputs
from serving import BINARY, LIBRARY, PATIENCE, command, environment, eventually, free_port, free_ports, http_status, run_to_end
from tritonclient.utils import InferenceServerException


@pytest.fixture
def half_broken(tmp_path):
    """A repository of one good and one bad model."""
    folder = tmp_path / "half_broken"
    folder.mkdir()
    models.add_sub(folder)
    models.broken(folder)
    return folder


BROKEN = "unexpected inference output 'NOPE', allowed outputs are: Y"

# Options, and what stands on stderr in the end.
BAD_LINES = {
    "an unknown option": (["--nonsense"], '"--nonsense"'),
    "a port that is no number": (
        ["--http-port=abc"],
        'Bad option: "--http-port".\nInvalid option value. Got abc',
    ),
    "a stray word": (["stray"], "Unexpected argument: stray"),
    "a wrong boolean": (["--strict-readiness=maybe"], "invalid value for bool option: maybe"),
    "one port for two protocols": (
        ["--http-port=17777", "--grpc-port=17777"],
        "The server cannot listen to HTTP requests and GRPC requests at the same address and port 0.0.0.0:17777",
    ),
}


@pytest.mark.parametrize("what", BAD_LINES)
def test_a_bad_command_line_is_refused(empty, what):
    options, text = BAD_LINES[what]
    ended = run_to_end(f"--model-repository={empty}", *options)
    assert ended.returncode == 1
    assert text in ended.stderr


def test_without_a_repository_there_is_no_server():
    ended = run_to_end("--http-port=0", "--grpc-port=0", "--metrics-port=0")
    assert ended.returncode == 1
    assert "error: creating server: Invalid argument - --model-repository must be specified" in ended.stderr


def test_agents_are_looked_for_somewhere(empty):
    ended = run_to_end(*command(empty, "--repoagent-directory=")[1:])
    assert ended.returncode == 1
    assert "error: creating server: Invalid argument - --repoagent-directory can not be empty" in ended.stderr


def test_a_repository_that_does_not_exist_is_named(tmp_path):
    ended = run_to_end(*command(tmp_path / "nowhere")[1:])
    assert ended.returncode == 1
    assert "error: creating server:" in ended.stderr and str(tmp_path / "nowhere") in ended.stderr


def test_a_repository_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").touch()
    ended = run_to_end(*command(tmp_path / "file")[1:])
    assert ended.returncode == 1
    assert "error: creating server: Invalid argument - repository path is not a valid directory" in ended.stderr


@pytest.fixture
def slow_start(tmp_path, gate, backend_option):
    """A server that loads a held model, its ports, and the hold. It ends with the test."""
    hold, folder = gate.hold(), tmp_path / "models"
    folder.mkdir()
    gate.write(folder, "slow", "max_batch_size: 1\n", hold)
    ports = dict(zip(("http", "grpc", "metrics"), free_ports(3), strict=True))
    line = command(folder, backend_option, *(f"--{name}-port={port}" for name, port in ports.items()))
    with processes.running(line, env=environment(), stdout=processes.DEVNULL, stderr=processes.DEVNULL) as server:
        try:
            hold.wait_until_running()
            yield ports, hold
        finally:
            server.kill()


def test_no_request_is_answered_before_the_models_are_loaded(slow_start):
    ports, hold = slow_start
    assert http_status(ports["http"], "/v2/health/live") is None and http_status(ports["metrics"], "/metrics") is None
    hold.release()
    eventually(lambda: http_status(ports["http"], "/v2/health/ready") == 200, "readiness")


def test_no_port_is_open_before_the_models_are_loaded(slow_start):
    """A probe that only connects must not take the server for ready."""
    ports, _ = slow_start
    for port in ports.values():
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=PATIENCE).close()


@pytest.mark.parametrize("service, option", [("HTTP", "http"), ("GRPC", "grpc"), ("Metrics", "metrics")])
def test_a_port_in_use_is_named(server, empty, service, option):
    taken = getattr(server, f"{option}_port")
    ended = run_to_end(*command(empty, f"--{option}-port={taken}")[1:])
    assert ended.returncode == 1
    expected = f"failed to start {service} service: Unavailable - Socket '127.0.0.1:{taken}' already in use"
    assert expected in ended.stderr


def test_a_port_in_use_costs_no_loading(server, half_broken):
    """The port is complained about, not the model."""
    ended = run_to_end(*command(half_broken, f"--http-port={server.http_port}")[1:])
    assert ended.returncode == 1
    assert "already in use" in ended.stderr and "failed to load" not in ended.stdout + ended.stderr


def test_a_bad_model_ends_the_server_with_its_reason(half_broken):
    ended = run_to_end(*command(half_broken)[1:])
    assert ended.returncode == 1
    assert "error: creating server: Internal - failed to load all models" in ended.stderr
    output = ended.stdout + ended.stderr
    assert BROKEN in output and "UNAVAILABLE: Invalid argument" in output and "READY" in output


def test_a_bad_model_may_be_left_out(start, half_broken):
    server = start(half_broken, "--exit-on-error=false")
    with HTTP.connect(server) as client:
        assert client.is_server_live()
        assert not client.is_server_ready()
        assert client.is_model_ready("add_sub") and not client.is_model_ready("broken")
        index = {entry["name"]: entry for entry in client.get_model_repository_index()}
        assert index["add_sub"]["state"] == "READY"
        assert index["broken"]["state"] == "UNAVAILABLE"
        assert BROKEN in index["broken"]["reason"]
        assert client.infer("add_sub", add_sub_inputs(HTTP)[0]).as_numpy("OUTPUT0") is not None
        with pytest.raises(InferenceServerException) as refusal:
            client.infer("broken", add_sub_inputs(HTTP)[0])
        unknown = "Request for unknown model: 'broken' has no available versions: version 1 is UNAVAILABLE: "
        assert refusal.value.message().startswith(unknown) and BROKEN in refusal.value.message()
        assert refusal.value.status() == "404"


def test_a_server_may_be_ready_without_all_its_models(start, half_broken):
    server = start(half_broken, "--exit-on-error=false", "--strict-readiness=false").wait_until_ready()
    with HTTP.connect(server) as client:
        assert client.is_server_ready() and not client.is_model_ready("broken")


def test_a_file_that_is_no_model_is_named_with_its_reason(start, tmp_path):
    folder = tmp_path / "garbage"
    folder.mkdir()
    models.add_sub(folder)
    (folder / "add_sub" / "1" / "model.onnx").write_bytes(b"this is no model")
    server = start(folder, "--exit-on-error=false")
    with HTTP.connect(server) as client:
        (entry,) = client.get_model_repository_index()
    assert (entry["name"], entry["state"]) == ("add_sub", "UNAVAILABLE")
    assert "onnx runtime error" in entry["reason"]


def test_a_configuration_that_cannot_be_read_is_named_in_the_log(start, tmp_path):
    folder = tmp_path / "unreadable"
    folder.mkdir()
    models.add_sub(folder)
    (folder / "add_sub" / "config.pbtxt").write_text("max_batch_size: many")
    server = start(folder, "--exit-on-error=false")
    assert "add_sub" in server.log() and "max_batch_size" in server.log()


def test_a_library_that_does_not_exist_is_named(tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    models.add_sub(folder)
    variables = environment() | {LIBRARY: "/nowhere/libonnxruntime.so"}
    ended = processes.run(command(folder), env=variables)
    assert ended.returncode == 1
    assert "/nowhere/libonnxruntime.so" in ended.stdout + ended.stderr


def test_help_goes_to_standard_output():
    ended = run_to_end("--help")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "--model-repository" in ended.stdout and "--exit-timeout-secs" in ended.stdout


def test_ports_may_be_chosen(start, empty):
    port = free_port()
    server = start(empty, f"--http-port={port}")
    assert server.http_port == port
    assert requests.get(f"http://127.0.0.1:{port}/v2/health/ready", timeout=PATIENCE).status_code == 200


def test_an_endpoint_may_be_left_out(empty):
    """Its line is not in the log, and the others serve."""
    line = command(empty, "--allow-grpc=false", "--allow-metrics=false")
    with processes.running(line, env=environment(), stdout=processes.PIPE, stderr=processes.STDOUT, text=True) as own:
        output = ""
        for text in own.stdout:
            output += text
            if "Started HTTPService" in text:
                own.terminate()
        assert own.wait(PATIENCE) == 0, output
    assert "GRPCInferenceService" not in output and "Metrics Service" not in output


def test_the_binary_is_the_one_asked_for():
    assert os.access(BINARY, os.X_OK), f"{BINARY} is not there: cargo build -p server"
