"""Models of vLLM: a backend in Python as Triton's, with a stand-in for vLLM itself.

No package has Triton's backend. So NEREID_TEST_VLLM_BACKEND names the folder `src` of a copy of the repository
`triton-inference-server/vllm_backend`, and the same tests run with it. `vllm_backend` asks the server for the same things,
and always runs.
"""

import contextlib
import json
import pathlib
import shutil

import numpy as np
import programs
import pytest
from protocols import GRPC, HTTP, metric
from python_backends import BUILT_IN
from serving import Server, eventually, reset
from test_generate import Generator

HERE = pathlib.Path(__file__).parent
VARIABLES = BUILT_IN.variables | {"PYTHONPATH": str(HERE / "stand_ins")}
CONFIG = 'backend: "vllm"\ninstance_group [{ count: 1 kind: KIND_MODEL }]\n'
PARAMETER = 'parameters {{ key: "{}" value: {{ string_value: "true" }} }}\n'.format
PROMPT = "one two three"


@pytest.fixture(scope="module", params=["own", pytest.param("triton", marks=pytest.mark.vllm_backend)])
def backends(request, tmp_path_factory):
    """A directory of backends in which `vllm` is."""
    source = HERE / "vllm_backend" if request.param == "own" else programs.of_no_package("NEREID_TEST_VLLM_BACKEND")
    folder = tmp_path_factory.mktemp("backends")
    shutil.copytree(source, folder / "vllm")
    return folder


def add(repository, name, more="", **arguments):
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text(CONFIG + more)
    (repository / name / "1/model.json").write_text(json.dumps({"model": "facebook/opt-125m"} | arguments))


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """A file that is there when a request has run since it was removed."""
    return tmp_path_factory.mktemp("engine") / "running"


@pytest.fixture(scope="module")
def server(backends, running, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    add(folder, "chat", PARAMETER("REPORT_CUSTOM_METRICS"), running=str(running))
    options = [*BUILT_IN.options, f"--backend-directory={backends}"]
    with Server(tmp_path_factory.mktemp("server"), folder, *options, variables=VARIABLES) as server:
        yield server.wait_until_ready()


@pytest.fixture
def generator(server):
    generator = Generator(server)
    with contextlib.closing(generator.connection):
        yield generator


def test_the_backend_completes_the_configuration(server, protocol):
    with protocol.connect(server) as client:
        config = protocol.json(client.get_model_config, "chat")
    config = config.get("config", config)
    assert (config["backend"], config.get("max_batch_size", 0)) == ("vllm", 0)
    assert config["model_transaction_policy"] == {"decoupled": True}
    assert config["instance_group"][0]["kind"] == "KIND_MODEL"
    inputs = {tensor["name"]: tensor.get("optional", False) for tensor in config["input"]}
    assert not inputs.pop("text_input") and all(inputs.values())
    assert {"text_output", "finish_reason"} <= {tensor["name"] for tensor in config["output"]}


def test_generate(generator):
    def text(**members):
        status, answer = generator.generate("chat", {"text_input": PROMPT, **members})
        assert status == 200, answer
        return answer["text_output"]

    assert text() == PROMPT + PROMPT
    assert text(exclude_input_in_output=True) == PROMPT
    # The other members of the request are its parameters.
    assert text(exclude_input_in_output=True, max_tokens=2) == "one two"
    assert text(exclude_input_in_output=True, sampling_parameters=json.dumps({"max_tokens": 1, "n": 2})) == ["one", "one"]


def test_more_outputs(generator):
    wanted = ("return_finish_reason", "return_num_input_tokens", "return_num_output_tokens")
    request = {"text_input": PROMPT, "exclude_input_in_output": True, "max_tokens": 2, **dict.fromkeys(wanted, True)}
    status, answer = generator.generate("chat", request)
    assert status == 200, answer
    said = {name: answer[name] for name in ("text_output", "finish_reason", "num_input_tokens", "num_output_tokens")}
    assert said == {"text_output": "one two", "finish_reason": "length", "num_input_tokens": 3, "num_output_tokens": 2}


def test_wrong_parameters(generator):
    status, answer = generator.generate("chat", {"text_input": PROMPT, "max_words": 2})
    assert status >= 400 and answer["error"].startswith("Error generating stream: ")


def test_events(generator):
    status, events = generator.stream("chat", {"text_input": PROMPT, "stream": True})
    assert (status, [event["text_output"] for event in events]) == (200, ["one", " two", " three"])


def stream_request(prompt):
    return [GRPC.input("text_input", np.array([prompt], np.object_)), GRPC.input("stream", np.array([True]))]


def test_a_stream_of_grpc(server, threads):
    def words(prompt):
        said = []
        with GRPC.connect(server) as client:
            client.start_stream(lambda result, error: said.append(error or result.as_numpy("text_output")[0].decode()))
            client.async_stream_infer("chat", stream_request(prompt))
            client.stop_stream()
        return said

    prompts = [f"{index} and {index + 1}" for index in range(8)]
    assert list(threads.map(words, prompts)) == [[f"{index}", " and", f" {index + 1}"] for index in range(8)]


@pytest.mark.parametrize("streams", [False, True], ids=["generate", "generate_stream"])
def test_a_client_that_has_gone_ends_its_request(server, running, streams):
    before = server.log().count("Successfully cancelled the request")
    running.unlink(missing_ok=True)
    generator = Generator(server)
    path = "generate_stream" if streams else "generate"
    body = json.dumps({"text_input": "for ever", "stream": streams})
    generator.connection.request("POST", f"/v2/models/chat/{path}", body)
    eventually(running.exists, "the request to run")
    reset(generator.connection)
    generator.connection.close()
    server.wait_for_log("Successfully cancelled the request", before + 1)


def test_metrics_of_the_engine(server, generator):
    def total(name, **labels):
        return metric(server, name, model="chat", version=1, **labels)

    generator.generate("chat", {"text_input": PROMPT})
    tokens = total("vllm:prompt_tokens_total")
    times = total("vllm:e2e_request_latency_seconds_count")
    generator.generate("chat", {"text_input": PROMPT})
    eventually(lambda: total("vllm:prompt_tokens_total") == tokens + 3, "the tokens of the prompt")
    eventually(lambda: total("vllm:e2e_request_latency_seconds_count") == times + 1, "the time of the request")


def test_an_engine_that_is_dead_unloads_its_model(start, backends, empty, tmp_path):
    broken = tmp_path / "broken"
    add(empty, "chat", PARAMETER("ENABLE_VLLM_HEALTH_CHECK"), broken=str(broken))
    options = ["--model-control-mode=explicit", "--load-model=chat", f"--backend-directory={backends}"]
    server = start(empty, *BUILT_IN.options, *options, variables=VARIABLES).wait_until_ready()
    generator = Generator(server)
    with contextlib.closing(generator.connection):
        assert generator.generate("chat", {"text_input": PROMPT})[0] == 200
        broken.touch()
        status, answer = generator.generate("chat", {"text_input": PROMPT})
    assert (status, answer["error"]) == (503, "Model is unavailable due to unhealthy vLLM engine")
    with HTTP.connect(server) as client:
        eventually(lambda: not client.is_model_ready("chat"), "the model to be unloaded")


def test_an_engine_that_does_not_start(start, backends, empty):
    add(empty, "chat", fails="no device has enough memory")
    options = [f"--backend-directory={backends}", "--exit-on-error=false"]
    server = start(empty, *BUILT_IN.options, *options, variables=VARIABLES)
    server.wait_for_log("no device has enough memory")


def test_an_interpreter_without_vllm(start, backends, empty):
    add(empty, "chat")
    options = [f"--backend-directory={backends}", "--exit-on-error=false"]
    server = start(empty, *BUILT_IN.options, *options, variables=BUILT_IN.variables)
    server.wait_for_log("No module named 'vllm'")
