"""Models of OpenVINO: a graph with and without configuration, batches, refusals by name."""

import json
import os
import pathlib
import shutil

import numpy as np
import processes
import programs
import pytest
from adders import refusal
from protocols import HTTP
from serving import BINARY, ROOT, Server, environment

LIBRARY = "NEREID_OPENVINO_LIBRARY"
FILES = ROOT / "crates/backend-openvino/tests/models"
BIAS = np.arange(4, dtype=np.float32)


ACCELERATED = """max_batch_size: 8
optimization { execution_accelerators { cpu_execution_accelerator { name: "openvino" } } }
parameters { key: "intra_op_thread_count" value { string_value: "1" } }
"""


def add(folder, name, file, config=None, backend="openvino"):
    """Adds a model that computes relu(x * 2 + BIAS)."""
    version = folder / name / "1"
    version.mkdir(parents=True)
    shutil.copy(FILES / file, version / f"model{pathlib.Path(file).suffix}")
    if file.endswith(".xml"):
        shutil.copy(FILES / file.replace(".xml", ".bin"), version / "model.bin")
    if config is not None:
        (folder / name / "config.pbtxt").write_text(f'backend: "{backend}"\n{config}')


def needs_library():
    if LIBRARY not in os.environ:
        programs.missing(f"{LIBRARY} names no library: 'pip install openvino' has it", programs.SETUP)


@pytest.fixture(scope="module")
def openvino_server(tmp_path_factory):
    needs_library()
    folder = tmp_path_factory.mktemp("models")
    add(folder, "plain", "affine.xml")
    add(folder, "graph", "affine.onnx", "max_batch_size: 8\n")
    add(folder, "accelerated", "affine.onnx", ACCELERATED, backend="onnxruntime")
    add(folder, "unknown", "affine.onnx", ACCELERATED.replace("openvino", "dnnl"), backend="onnxruntime")
    add(folder, "gpu", "affine.onnx", 'parameters { key: "TARGET_DEVICE" value { string_value: "GPU" } }\n')
    with Server(tmp_path_factory.mktemp("server"), folder, "--model-control-mode=explicit") as server:
        yield server


@pytest.mark.parametrize("name", ["plain", "graph", "accelerated"])
def test_models_answer_with_any_number_of_rows(protocol, openvino_server, name):
    with protocol.connect(openvino_server) as client:
        client.load_model(name)
        [entry] = protocol.json(client.get_model_metadata, name)["inputs"]
        for rows in (1, 4):
            given = np.linspace(-3, 3, rows * 4, dtype=np.float32).reshape(rows, 4)
            result = client.infer(name, [protocol.input(entry["name"], given)])
            np.testing.assert_array_equal(result.as_numpy("y"), np.maximum(given * 2 + BIAS, 0))


def test_other_devices_are_refused_by_name(openvino_server):
    with HTTP.connect(openvino_server) as client:
        _, text = refusal(client.load_model, "gpu")
        assert "'TARGET_DEVICE' is 'GPU', but models are served on the CPU only" in text


def test_a_model_of_onnx_runtime_may_have_openvino_as_its_accelerator(openvino_server):
    with HTTP.connect(openvino_server) as client:
        client.load_model("accelerated")
        config = client.get_model_config("accelerated")
        assert (config["backend"], config["platform"]) == ("onnxruntime", "onnxruntime_onnx")
        _, text = refusal(client.load_model, "unknown")
        assert "unknown Execution Accelerator 'dnnl' is requested" in text
    warning = "the parameter 'intra_op_thread_count' of model 'accelerated' has no effect: OpenVINO runs the model"
    openvino_server.wait_for_log(warning)


@pytest.mark.parametrize(
    "config, text",
    [
        ("max_batch_size: 8 output { name: 'z' data_type: TYPE_FP32 dims: 4 }", "unexpected inference output 'z', allowed outputs are: y"),
        ("input { name: 'x_alias' data_type: TYPE_INT64 dims: [ -1, 4 ] }", "datatype TYPE_INT64 for input 'x_alias', model provides TYPE_FP32"),
        ("parameters { key: 'TARGET_DEVICE' value { string_value: 'GPU' } }", "'TARGET_DEVICE' is 'GPU'"),
    ],
)
def test_a_check_tells_what_a_load_would_refuse(start, empty, config, text):
    add(empty, "wrong", "affine.xml", config)
    checked = processes.run([BINARY, "check", "--format=json", empty], env=environment())
    assert checked.returncode == 1 and [text in found["message"] for found in json.loads(checked.stdout)["findings"]] == [True]
    with HTTP.connect(start(empty, "--model-control-mode=explicit")) as client:
        _, refused = refusal(client.load_model, "wrong")
        assert text in refused


FROZEN = """platform: "tensorflow_graphdef"
max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: 4 }
output { name: "Relu" data_type: TYPE_FP32 dims: 4 }
"""


def test_models_of_tensorflow_are_served_by_their_platforms(protocol, start, empty):
    shutil.copytree(FILES / "affine.saved_model", empty / "saved/1/model.savedmodel")
    (empty / "frozen/1").mkdir(parents=True)
    shutil.copy(FILES / "affine.pb", empty / "frozen/1/model.graphdef")
    (empty / "frozen/config.pbtxt").write_text(FROZEN)
    checked = processes.run([BINARY, "check", "--strict", empty], env=environment())
    assert checked.returncode == 0, checked.stdout
    server = start(empty).wait_until_ready()
    with protocol.connect(server) as client:
        for name, output in (("saved", "y"), ("frozen", "Relu")):
            given = np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4)
            result = client.infer(name, [protocol.input("x", given)])
            np.testing.assert_array_equal(result.as_numpy(output), np.maximum(given * 2 + BIAS, 0))


def test_without_the_library_a_model_of_tensorflow_tells_what_to_install(start, empty):
    shutil.copytree(FILES / "affine.saved_model", empty / "saved/1/model.savedmodel")
    with HTTP.connect(start(empty, "--model-control-mode=explicit", variables={LIBRARY: "/nowhere"})) as client:
        _, refused = refusal(client.load_model, "saved")
        assert "unable to load OpenVINO from '/nowhere'" in refused and "pip install openvino" in refused
