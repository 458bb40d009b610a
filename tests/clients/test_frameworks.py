"""`nereid tune` and `nereid explain` with models of forests, OpenVINO and PyTorch (a stand-in for PyTorch)."""

import numpy as np
import processes
import pytest
import repository as models
import xgboost
from protocols import GRPC
from python_backends import BUILT_IN
from serving import BINARY, environment
from test_explain import explained, facts
from test_openvino import add, needs_library
from test_pytorch_stand_in import STAND_IN, TENSORS, archives

ROWS = np.arange(40, dtype=np.float32).reshape(10, 4)
NAMED = "instance_group [ { count: 1 kind: KIND_CPU } ]\n"


def write_forest(folder):
    (folder / "forest/1").mkdir(parents=True)
    xgboost.XGBRegressor(n_estimators=4, max_depth=3, n_jobs=1).fit(ROWS, np.arange(10)).save_model(folder / "forest/1/xgboost.json")
    (folder / "forest/config.pbtxt").write_text(f'backend: "fil"\nmax_batch_size: 64\n{NAMED}')


def write_openvino(folder):
    needs_library()
    add(folder, "openvino", "affine.xml", f"max_batch_size: 64\n{NAMED}")


def write_pytorch(folder):
    (folder / "pytorch/1").mkdir(parents=True)
    archives.script(folder / "pytorch/1/model.pt", "def forward(a, b):\n    return a + b, a - b\n")
    (folder / "pytorch/config.pbtxt").write_text(f"{NAMED}{TENSORS}")


WRITERS = {"forest": write_forest, "openvino": write_openvino, "pytorch": write_pytorch}
# What a tuning of a model may set.
THREADS = {"forest": None, "openvino": "INFERENCE_NUM_THREADS", "pytorch": "INTRA_OP_THREAD_COUNT"}


def ask(client, name):
    """An answer of the model to one row."""
    tensors = GRPC.json(client.get_model_metadata, name)
    width = int(tensors["inputs"][0]["shape"][-1])
    inputs = [GRPC.input(tensor["name"], np.ones((1, width), np.float32)) for tensor in tensors["inputs"]]
    return client.infer(name, inputs).as_numpy(tensors["outputs"][0]["name"]).tolist()


@pytest.mark.parametrize("name", WRITERS)
def test_a_tuned_model_is_checked_and_answers_as_before(name, empty, tmp_path, start):
    WRITERS[name](empty)
    with GRPC.connect(start(empty, *BUILT_IN.options, variables=STAND_IN).wait_until_ready()) as client:
        before = ask(client, name)
    line = [BINARY, "tune", name, "--model-repository", empty, "--output", tmp_path / "tuned", "--concurrency", "1,8", "--time", 8]
    ended = processes.run([*map(str, line), "--", *BUILT_IN.options], env=environment() | STAND_IN)
    assert ended.returncode == 0 and "requests/s at p99" in ended.stdout, ended.stderr
    tuned = (tmp_path / "tuned/config.pbtxt").read_text()
    assert "intra_op_thread_count" not in tuned and (THREADS[name] is None or THREADS[name] in tuned), tuned
    (empty / name / "config.pbtxt").write_text(tuned)
    checked = processes.run([BINARY, "check", "--strict", empty], env=environment() | STAND_IN)
    assert checked.returncode == 0, checked.stdout
    with GRPC.connect(start(empty, *BUILT_IN.options, variables=STAND_IN).wait_until_ready()) as client:
        assert ask(client, name) == before


def test_models_of_each_framework_are_explained(empty, start):
    for write in WRITERS.values():
        write(empty)
    server = start(empty, *BUILT_IN.options, variables=STAND_IN).wait_until_ready()
    with GRPC.connect(server) as client:
        for name in WRITERS:
            ask(client, name)
    for name, backend in (("forest", "fil"), ("openvino", "openvino"), ("pytorch", "pytorch")):
        model = explained(server, name)
        assert (model["state"], model["backend"], model["requests"]["succeeded"]) == ("READY", backend, 1)
        [memory] = model["memory"]
        assert facts(model) and memory["byte_size"] > 0, model
