"""Models of PyTorch through the server, with a stand-in for PyTorch: what the server adds to the backend in Python.

The backend itself has tests beside it. `test_pytorch.py` has PyTorch itself.
"""

import os
import sys

import numpy as np
import pytest
from protocols import GRPC, HTTP
from python_backends import BUILT_IN
from serving import ROOT, eventually

TESTS = ROOT / "crates" / "backend-python" / "python" / "tests"
sys.path.insert(0, str(TESTS))

import pytorch_archives as archives  # noqa: E402

STAND_IN = BUILT_IN.variables | {"PYTHONPATH": str(TESTS / "stand_in")}
ADD_SUB = "def forward(a, b):\n    return a + b, a - b\n"
TENSORS = """
max_batch_size: 8
input { name: "a" data_type: TYPE_FP32 dims: 2 }
input { name: "b" data_type: TYPE_FP32 dims: 2 }
output { name: "SUM" data_type: TYPE_FP32 dims: 2 }
output { name: "DIFFERENCE" data_type: TYPE_FP32 dims: 2 }
"""


def add(repository, name, source=ADD_SUB, config=TENSORS):
    folder = repository / name / "1"
    folder.mkdir(parents=True, exist_ok=True)
    (folder.parent / "config.pbtxt").write_text(config)
    return archives.script(folder / "model.pt", source)


def ask(server, model, protocol=GRPC):
    first, second = np.float32([[5, 6], [7, 8]]), np.float32([[1, 2], [3, 4]])
    with protocol.connect(server) as client:
        result = client.infer(model, [protocol.input("a", first), protocol.input("b", second)])
    return result.as_numpy("SUM").tolist(), result.as_numpy("DIFFERENCE").tolist()


EXPECTED = [[6, 8], [10, 12]], [[4, 4], [4, 4]]


@pytest.mark.parametrize("choice", ["", 'backend: "pytorch"', 'platform: "pytorch_libtorch"'])
def test_the_file_the_backend_or_the_platform_chooses_pytorch(start, empty, choice, protocol):
    add(empty, "net", config=f"{choice}\n{TENSORS}")
    server = start(empty, *BUILT_IN.options, variables=STAND_IN).wait_until_ready()
    assert ask(server, "net", protocol) == EXPECTED
    with HTTP.connect(server) as client:
        config = client.get_model_config("net")
    assert (config["backend"], config["platform"], len(config["instance_group"])) == ("pytorch", "pytorch_libtorch", 1)


def test_a_backend_in_the_directory_of_backends_comes_first(start, empty, tmp_path):
    add(empty, "net")
    backend = tmp_path / "backends" / "pytorch"
    backend.mkdir(parents=True)
    (backend / "model.py").write_text("raise ImportError('this is the backend of the user')")
    options = [f"--backend-directory={backend.parent}", "--exit-on-error=false"]
    server = start(empty, *BUILT_IN.options, *options, variables=STAND_IN)
    server.wait_for_log("this is the backend of the user")


def test_a_model_whose_interpreter_lacks_torch_tells_what_to_install(start, empty):
    add(empty, "net")
    server = start(empty, *BUILT_IN.options, "--exit-on-error=false", variables=BUILT_IN.variables)
    server.wait_for_log("the model needs the package torch: install it by")
    assert "-m pip install torch" in server.log()


def test_a_changed_file_is_loaded_again(start, empty):
    path = add(empty, "net")
    options = ["--model-control-mode=explicit", "--load-model=net"]
    server = start(empty, *BUILT_IN.options, *options, variables=STAND_IN).wait_until_ready()
    assert ask(server, "net") == EXPECTED
    archives.script(path, "def forward(a, b):\n    return a, b\n")
    with HTTP.connect(server) as client:
        client.load_model("net")
    eventually(lambda: ask(server, "net")[1] == [[1, 2], [3, 4]], "the answers of the new file")


# Tells the threads and the process of its instance.
TELLING = """
import os
import numpy as np
import torch

def forward(a, b):
    told = np.full_like(a.array, torch.settings["threads"])
    return torch.Tensor(told), torch.Tensor(np.full_like(told, os.getpid() % 100_000))
"""


def test_instances_are_processes_with_their_shares_of_the_processors(start, empty, threads):
    add(empty, "net", TELLING, TENSORS + "instance_group { count: 2 kind: KIND_CPU }\n")
    server = start(empty, *BUILT_IN.options, variables=STAND_IN).wait_until_ready()
    share = max(1, len(os.sched_getaffinity(0)) // 2)

    def processes_of_some():
        answers = list(threads.map(lambda _: ask(server, "net"), range(32)))
        assert {told[0][0] for told, _ in answers} == {share}
        return {process[0][0] for _, process in answers}

    eventually(lambda: len(processes_of_some()) == 2, "answers of both instances")


def test_errors_of_the_network_reach_the_client_in_one_line(start, empty, protocol):
    add(empty, "net", "def forward(a, b):\n    raise ValueError('no\\nsuch thing')\n")
    server = start(empty, *BUILT_IN.options, variables=STAND_IN).wait_until_ready()
    with pytest.raises(Exception, match="PyTorch execute failure: model 'net': no such thing$"):
        ask(server, "net", protocol)
    server.wait_for_log("in forward")


def test_a_misspelt_parameter_is_told(start, empty):
    add(empty, "net", config=TENSORS + 'parameters { key: "INFERENCE_MODES" value { string_value: "1" } }\n')
    server = start(empty, *BUILT_IN.options, variables=STAND_IN).wait_until_ready()
    server.wait_for_log("backend 'pytorch' does not know it, did you mean 'INFERENCE_MODE'?")
