"""More models than memory: requests load their models within a budget, and others make room."""

import random

import numpy as np
import processes
import pytest
import python_backends
import repository as models
import requests
from adders import CONFIG, EXPLICIT, answer, index, loads, refusal
from callers import Callers
from protocols import GRPC, HTTP, metric
from serving import BINARY, PATIENCE, command, eventually, run_to_end

# Each instance of a model has a table of 256 KiB, and the budget is for a few models.
TABLE = np.ones(64 << 10, np.float32)
BUDGET = 2 << 20
NAMES = [f"m{number}" for number in range(20)]
PINNED = 'parameters { key: "MEMORY_PINNED" value { string_value: "true" } }\n'


def bulky(number):
    """Adds a number, by way of a table."""
    text = "bulky (float[1] X) => (float[1] Y) { Z = Mul(X, table) F = Gather(Z, first) Y = Add(F, number) }"
    return models.graph(text, table=TABLE, first=np.array([0]), number=np.array([number], np.float32))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for number, name in enumerate(NAMES):
        models.write(folder, name, bulky(number), CONFIG)
    models.write(folder, "pinned", bulky(100), CONFIG + PINNED)
    return folder


def budget(bytes_=BUDGET, *more):
    return [f"--model-memory-budget={bytes_}", *more]


def used(server):
    return metric(server, "nereid_model_memory_budget_used_bytes")


def explained(server):
    return requests.get(f"http://{server.http}/v2/explain", timeout=PATIENCE).json()["model_memory"]


def test_requests_of_many_clients_load_models_within_the_budget(start, folder, threads):
    server = start(folder, *budget())

    def prepare(protocol, client):
        chosen = random.Random(7)

        def ask():
            number = min(int(chosen.expovariate(0.3)), len(NAMES) - 1)
            assert answer(protocol, client, NAMES[number]) == number
            assert used(server) <= BUDGET

        return ask

    with Callers(server, threads, prepare) as callers:
        for _ in range(20):
            callers.wait_for_answers()
    counted = explained(server)
    assert counted["loads"] > counted["unloads"] > 0 and counted["refusals"] == 0, counted
    assert metric(server, "nereid_demand_loads_total") == counted["loads"]
    assert metric(server, "nereid_model_memory_budget_bytes") == BUDGET
    assert loads(server, "pinned") == 1
    places = {model["name"]: model["place"] for model in counted["models"]}
    assert places["pinned"] == "in" and "out" in places.values()


def test_a_model_that_would_be_loaded_is_ready_and_tells_its_metadata(protocol, start, folder):
    server = start(folder, *budget())
    with protocol.connect(server) as client:
        assert client.is_server_ready() and client.is_model_ready("m3")
        assert not client.is_model_ready("nobody")
        assert index(protocol, client)["m3"] == [(None, None, None)], "nothing is loaded yet"
        assert protocol.json(client.get_model_metadata, "m3")["versions"] == ["1"]
        assert index(protocol, client)["m3"] == [("1", "READY", None)]
        assert protocol.json(client.get_model_config, "m4")
        text = "Request for unknown model: 'nobody' is not found"
        assert refusal(answer, protocol, client, "nobody") == (protocol.status("NOT_FOUND"), text)


def test_a_stream_waits_for_the_models_of_its_requests(start, folder):
    server = start(folder, *budget())
    answers = []
    with GRPC.connect(server) as client:
        client.start_stream(lambda result, error: answers.append(error or result.as_numpy("Y").item()))
        order = [number for number in range(len(NAMES)) for _ in range(3)]
        for number in order:
            client.async_stream_infer(NAMES[number], [GRPC.input("X", np.zeros(1, np.float32))])
        client.async_stream_infer("nobody", [GRPC.input("X", np.zeros(1, np.float32))])
        eventually(lambda: len(answers) > len(order), "all answers")
        client.stop_stream()
    assert answers[:-1] == order
    assert "unknown model: 'nobody'" in str(answers[-1])


def test_an_operator_prefetches_and_withdraws(protocol, start, folder):
    server = start(folder, EXPLICIT, *budget())
    with protocol.connect(server) as client:
        client.load_model("m1")
        assert loads(server, "m1") == 1 and answer(protocol, client, "m1") == 1
        client.unload_model("m1")
        eventually(lambda: ("1", "UNAVAILABLE", "unloaded") in index(protocol, client)["m1"], "the unload")
        assert not client.is_model_ready("m1")
        assert refusal(answer, protocol, client, "m1")[0] == protocol.status("NOT_FOUND")
        client.load_model("m1")
        assert answer(protocol, client, "m1") == 1
        assert answer(protocol, client, "m2") == 2, "a request loads it"


def test_what_cannot_fit_is_refused_with_its_size(protocol, start, folder):
    server = start(folder, *budget(700_000))
    with protocol.connect(server) as client:
        # Each of the two instances of the pinned model has a table.
        code, text = refusal(answer, protocol, client, "m1")
        assert code == protocol.status("UNAVAILABLE")
        assert text.startswith("model 'm1' needs ") and "--model-memory-budget has 700000, of which" in text
        assert answer(protocol, client, "pinned") == 100
    why = next(model["why"] for model in explained(server)["models"] if model["name"] == "m1")
    assert why == f"it was refused: {text}"


def test_the_command_tells_why_models_are_in_memory(start, folder):
    server = start(folder, *budget())
    with HTTP.connect(server) as client:
        assert answer(HTTP, client, "m5") == 5
    line = [str(BINARY), "explain", "--url", server.http]
    told = processes.run(line, check=True).stdout
    assert "memory of models: " in told and f"of {BUDGET} bytes" in told
    assert "pinned: in" in told and "it stays in memory: it is pinned" in " ".join(told.split())
    assert "m0: out" in told and "no request has asked for it" in " ".join(told.split())
    told = processes.run([*line, "m0"], check=True).stdout
    assert "m0: out" in told and "m1" not in told
    told = processes.run([*line, "nobody"])
    assert told.returncode != 0 and "unknown model: 'nobody'" in told.stderr


@pytest.mark.parametrize("option", ["--model-control-mode=poll", "--model-namespacing=true"])
def test_options_that_do_not_go_together_are_refused(folder, option):
    ended = run_to_end(*command(folder, *budget(), option)[1:])
    assert ended.returncode == 1
    assert f"'--model-memory-budget' cannot be used with '{option.removesuffix('=true')}'" in ended.stderr


CALLER = """\
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            name = pb_utils.get_input_tensor_by_name(request, "NAME").as_numpy().flat[0].decode()
            x = pb_utils.Tensor("X", np.zeros(1, np.float32))
            call = pb_utils.InferenceRequest(model_name=name, requested_output_names=["Y"], inputs=[x])
            answer = call.exec()
            if answer.has_error():
                answers.append(pb_utils.InferenceResponse([], error=answer.error()))
            else:
                answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", answer.output_tensors()[0].as_numpy())]))
        return answers
"""


def test_models_load_the_models_that_they_call(start_python, python_backend, folder, tmp_path):
    """A model in Python calls models that are not in memory. Its own processes count, too."""
    repository = tmp_path / "all"
    repository.mkdir()
    for name in NAMES:
        (repository / name).symlink_to(folder / name)
    (repository / "caller" / "1").mkdir(parents=True)
    (repository / "caller" / "1" / "model.py").write_text(CALLER)
    tensors = models.tensor("input", "NAME", "BYTES", 1) + models.tensor("output", "Y", "FP32", 1)
    (repository / "caller" / "config.pbtxt").write_text(f'backend: "python" max_batch_size: 0\n{tensors}')
    size = 200 << 20
    server = start_python(repository, *budget(size))
    with HTTP.connect(server) as client:
        for number, name in enumerate(NAMES):
            inputs = [HTTP.input("NAME", np.array([name], np.object_))]
            assert client.infer("caller", inputs).as_numpy("Y").item() == number
        of_caller = next(model for model in explained(server)["models"] if model["name"] == "caller")
        # Triton's library does not report the memory of its processes.
        assert of_caller["measured"] == (python_backend == python_backends.BUILT_IN), of_caller
        assert of_caller["bytes"] > 1 << 20 or not of_caller["measured"], of_caller
