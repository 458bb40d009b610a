"""API keys: each client may use what its key permits, over both protocols, and learns of nothing else."""

import hashlib
import http.client
import json
import signal

import adders
import certificates
import grpc as grpc_library
import numpy as np
import processes
import pytest
import repository as models
import requests
from protocols import GRPC, HTTP, add_sub_inputs
from serving import BINARY, PATIENCE, eventually, run_to_end
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

KEYS = {"user": "key-of-user", "reader": "key-of-reader", "admin": "key-of-admin"}
UNKNOWN = ("the API key is not known", {"http": "401", "grpc": "StatusCode.UNAUTHENTICATED"})
MISSING = (
    "this request needs an API key: 'Authorization: Bearer <key>' or 'x-api-key: <key>'",
    {"http": "401", "grpc": "StatusCode.UNAUTHENTICATED"},
)


def denied(text):
    return text, {"http": "403", "grpc": "StatusCode.PERMISSION_DENIED"}


def entry(name, apis, patterns, key=None):
    digest = hashlib.sha256((key or KEYS[name]).encode()).hexdigest()
    return {"name": name, "sha256": digest, "apis": apis, "models": patterns}


def write_keys(path, *entries, anonymous=None):
    content = {"keys": list(entries)} | ({"anonymous": anonymous} if anonymous else {})
    certificates.replace(path, json.dumps(content).encode())


ENTRIES = [
    entry("user", ["health", "metadata", "inference", "statistics", "model-repository"], ["add_*", "secrte"]),
    entry("reader", ["metadata", "statistics"], ["*"]),
    entry("admin", ["*"], ["*"]),
]


@pytest.fixture
def keys(tmp_path):
    path = tmp_path / "keys.json"
    write_keys(path, *ENTRIES, anonymous={"apis": ["health"], "models": []})
    return path


@pytest.fixture
def guarded(start, tmp_path, keys):
    folder = tmp_path / "models"
    folder.mkdir()
    for name in ("add_sub", "secret"):
        models.add_sub(folder, name)
    return start(
        folder, f"--api-key-file={keys}", "--credential-reload-secs=1", "--http-header-forward-pattern=.*"
    ).wait_until_ready()


def bearer(name):
    return {"authorization": f"Bearer {KEYS[name]}"}


def refusal(protocol, question, *arguments, **named):
    with pytest.raises(InferenceServerException) as refused:
        question(*arguments, **named)
    status = refused.value.status()
    return refused.value.message(), {protocol.name: status}


def check_refusal(protocol, expected, question, *arguments, **named):
    text, statuses = expected
    assert refusal(protocol, question, *arguments, **named) == (text, {protocol.name: statuses[protocol.name]})


@pytest.mark.parametrize("protocol", [HTTP, GRPC], ids=lambda protocol: protocol.name)
def test_a_key_permits_its_apis_and_models(guarded, protocol):
    inputs, first = add_sub_inputs(protocol)
    with protocol.connect(guarded) as client:
        assert client.is_server_live() and client.is_server_ready()
        for headers in (bearer("user"), {"x-api-key": KEYS["user"]}):
            result = client.infer("add_sub", inputs, headers=headers)
            np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), first + 1000)
        check_refusal(protocol, MISSING, client.infer, "add_sub", inputs)
        check_refusal(protocol, UNKNOWN, client.infer, "add_sub", inputs, headers={"x-api-key": "guess"})
        other = denied("the API key 'user' does not permit model 'secret'")
        check_refusal(protocol, other, client.infer, "secret", inputs, headers=bearer("user"))
        # A model that does not exist is refused in the same words.
        other = denied("the API key 'user' does not permit model 'none'")
        check_refusal(protocol, other, client.get_model_metadata, "none", headers=bearer("user"))
        scope = denied("the API key 'reader' does not permit 'inference'")
        check_refusal(protocol, scope, client.infer, "add_sub", inputs, headers=bearer("reader"))
        scope = denied("the API key 'user' does not permit 'model-config'")
        check_refusal(protocol, scope, client.get_model_config, "add_sub", headers=bearer("user"))
        assert client.get_model_config("secret", headers=bearer("admin"))


@pytest.mark.parametrize("protocol", [HTTP, GRPC], ids=lambda protocol: protocol.name)
def test_a_misspelt_model_is_told_to_those_who_may_list_it(guarded, protocol):
    with protocol.connect(guarded) as client:
        for key, name, meant in [
            ("user", "add_sbu", ", did you mean 'add_sub'?"),
            ("admin", "secrte", ", did you mean 'secret'?"),
            ("reader", "secrte", ""),
            # The key permits this name, and not the one that is near.
            ("user", "secrte", ""),
        ]:
            text, _ = refusal(protocol, client.get_model_metadata, name, headers=bearer(key))
            assert text == f"Request for unknown model: '{name}' is not found{meant}"


@pytest.mark.parametrize("protocol", [HTTP, GRPC], ids=lambda protocol: protocol.name)
def test_lists_show_only_the_models_of_the_key(guarded, protocol):
    def named(question, member, headers):
        options = {} if protocol is HTTP else {"as_json": True}
        answer = question(headers=headers, **options)
        entries = answer if isinstance(answer, list) else answer[member]
        return sorted(found["name"] for found in entries)

    with protocol.connect(guarded) as client:
        for question, member in (
            (client.get_model_repository_index, "models"),
            (client.get_inference_statistics, "model_stats"),
        ):
            assert named(question, member, bearer("user")) == ["add_sub"]
            assert named(question, member, bearer("admin")) == ["add_sub", "secret"]
        other = denied("the API key 'user' does not permit model 'secret'")
        check_refusal(protocol, other, client.get_inference_statistics, "secret", headers=bearer("user"))


def test_the_list_of_models_and_readiness_show_only_those_of_the_key(guarded):
    listed = requests.get(f"http://{guarded.http}/v2/models", headers=bearer("user"), timeout=PATIENCE).json()
    assert [model["name"] for model in listed["models"]] == ["add_sub"]
    refused = requests.get(f"http://{guarded.http}/v2/models", timeout=PATIENCE)
    assert (refused.status_code, refused.headers["WWW-Authenticate"]) == (401, "Bearer")


def test_readiness_names_only_the_models_of_the_key(start, tmp_path, keys):
    folder = tmp_path / "models"
    for name in ("add_broken", "secret_broken"):
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "1" / "model.onnx").write_text("this is no model")
    server = start(folder, f"--api-key-file={keys}", "--exit-on-error=false")

    def named(**headers):
        answer = requests.get(f"http://{server.http}/v2/health/ready", headers=headers, timeout=PATIENCE)
        assert answer.status_code == 400
        return sorted(model["name"] for model in answer.json()["not_ready"])

    assert named() == []
    assert named(**bearer("user")) == ["add_broken"]
    assert named(**bearer("admin")) == ["add_broken", "secret_broken"]


def test_a_request_is_refused_before_its_body_comes(guarded):
    """The client would wait for `100 Continue`."""
    connection = http.client.HTTPConnection("127.0.0.1", guarded.http_port, timeout=PATIENCE)
    connection.putrequest("POST", "/v2/models/secret/infer")
    for name, value in (bearer("user") | {"Content-Length": "1000000", "Expect": "100-continue"}).items():
        connection.putheader(name, value)
    connection.endheaders()
    assert connection.getresponse().status == 403
    connection.close()


def test_each_request_of_a_stream_is_checked(guarded):
    inputs, _ = add_sub_inputs(GRPC)
    results = []
    with GRPC.connect(guarded) as client:
        client.start_stream(lambda result, error: results.append((result, error)), headers=bearer("user"))
        for model in ("add_sub", "secret", "add_sub"):
            client.async_stream_infer(model, inputs)
        eventually(lambda: len(results) == 3, "three answers")
        client.stop_stream()
    texts = [error and error.message() for _, error in results]
    assert texts == [None, "the API key 'user' does not permit model 'secret'", None]


def test_a_stream_without_a_key_is_refused(guarded):
    with grpc_library.insecure_channel(guarded.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        with pytest.raises(grpc_library.RpcError) as refused:
            list(stub.ModelStreamInfer(iter([service_pb2.ModelInferRequest(model_name="add_sub")])))
        assert refused.value.code() == grpc_library.StatusCode.UNAUTHENTICATED


def test_keys_are_taken_away_and_given_without_a_restart(guarded, keys):
    with HTTP.connect(guarded) as client:
        inputs, _ = add_sub_inputs(HTTP)

        def status(key):
            try:
                client.infer("add_sub", inputs, headers={"x-api-key": key})
            except InferenceServerException as error:
                return error.status()
            return "200"

        assert (status(KEYS["user"]), status("new")) == ("200", "401")
        write_keys(keys, entry("new", ["inference"], ["*"], "new"))
        eventually(lambda: status("new") == "200", "the new key")
        assert status(KEYS["user"]) == "401"
        certificates.replace(keys, b'{"keys": "key-in-the-wrong-place"}')
        guarded.wait_for_log("the API keys stay as they were")
        assert status("new") == "200"


def test_keys_are_never_logged(start, tmp_path, keys):
    folder = tmp_path / "models"
    folder.mkdir()
    models.add_sub(folder)
    server = start(folder, f"--api-key-file={keys}", "--log-verbose=9").wait_until_ready()
    for protocol in (HTTP, GRPC):
        with protocol.connect(server) as client:
            inputs, _ = add_sub_inputs(protocol)
            client.infer("add_sub", inputs, headers=bearer("admin"))
            refusal(protocol, client.infer, "add_sub", inputs, headers={"x-api-key": "guessed-key"})
    certificates.replace(keys, b'{"keys": [{"name": "x", "sha256": "key-in-the-wrong-place"}]}')
    server.process.send_signal(signal.SIGHUP)
    server.wait_for_log("the API keys stay as they were")
    log = server.log()
    for secret in (*KEYS.values(), "guessed-key", "wrong-place", ENTRIES[2]["sha256"]):
        assert secret not in log


def test_an_ensemble_needs_no_permission_for_its_members(start, tmp_path, keys):
    """The key names the ensemble only."""
    folder = tmp_path / "models"
    folder.mkdir()
    models.add_sub(folder, "member")
    (folder / "whole" / "1").mkdir(parents=True)
    tensors = "\n".join(
        f'{kind} [ {{ name: "{name}" data_type: TYPE_INT32 dims: [ 16 ] }} ]'
        for kind, name in (("input", "INPUT0"), ("input", "INPUT1"), ("output", "OUTPUT0"))
    )
    step = """
        platform: "ensemble" max_batch_size: 8
        ensemble_scheduling { step [ { model_name: "member" model_version: -1
            input_map { key: "INPUT0" value: "INPUT0" } input_map { key: "INPUT1" value: "INPUT1" }
            output_map { key: "OUTPUT0" value: "OUTPUT0" } } ] }
    """
    (folder / "whole" / "config.pbtxt").write_text(tensors + step)
    write_keys(keys, entry("user", ["inference"], ["whole"]))
    server = start(folder, f"--api-key-file={keys}")
    with HTTP.connect(server) as client:
        inputs, first = add_sub_inputs(HTTP)
        result = client.infer("whole", inputs, headers=bearer("user"))
        np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), first + 1000)
        other = denied("the API key 'user' does not permit model 'member'")
        check_refusal(HTTP, other, client.infer, "member", inputs, headers=bearer("user"))


def test_a_key_permits_to_load_only_its_models(start, tmp_path, keys):
    folder = adders.repository_of(tmp_path, "a", "b")
    write_keys(keys, entry("user", ["model-repository"], ["a"]))
    server = start(folder, adders.EXPLICIT, f"--api-key-file={keys}")
    for protocol in (HTTP, GRPC):
        with protocol.connect(server) as client:
            client.load_model("a", headers=bearer("user"))
            other = denied("the API key 'user' does not permit model 'b'")
            check_refusal(protocol, other, client.load_model, "b", headers=bearer("user"))
            check_refusal(protocol, other, client.unload_model, "b", headers=bearer("user"))
            client.unload_model("a", headers=bearer("user"))


def test_the_command_makes_keys_and_digests(tmp_path):
    made = run_to_end("api-key")
    lines = dict(line.split(":") for line in made.stdout.splitlines())
    key, digest = lines["key"].strip(), lines["sha256"].strip()
    assert made.returncode == 0 and digest == hashlib.sha256(key.encode()).hexdigest() and len(key) == 64
    asked = processes.run([BINARY, "api-key", "--hash"], input=f"{key}\n", check=True)
    assert asked.stdout == f"{digest}\n"
    assert run_to_end("api-key", "more").returncode == 2


def test_a_file_that_breaks_a_rule_ends_the_start(tmp_path):
    path = tmp_path / "keys.json"
    folder = tmp_path / "models"
    folder.mkdir()
    for content, text in (
        (None, "No such file"),
        (b"{", "EOF"),
        (b'{"keys":[{"name":"x","key":"plain"}]}', "unknown field `key`"),
    ):
        if content:
            path.write_bytes(content)
        ports = ("--http-port=0", "--grpc-port=0", "--metrics-port=0")
        ended = run_to_end(f"--model-repository={folder}", *ports, f"--api-key-file={path}")
        assert ended.returncode == 1 and str(path) in ended.stderr and text in ended.stderr
