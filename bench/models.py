"""Writes the models of the benchmarks, for our server and for the reference.

Usage: models.py FOLDER. Writes FOLDER/ours and FOLDER/reference, two repositories with the same model names, inputs
and outputs. Ours are ONNX models. The reference has no ONNX backend in its wheel: what only moves bytes is served
there by the C identity backend of reference_backend.c, what computes by ONNX Runtime inside its Python backend.

tiny      16 floats plus one: all cost is the server's
mlp       a network that takes a few milliseconds for a batch of 8, hardly more than for one; one instance, so that
          16 callers keep one batch running and one waiting
large4    identity of 4 MiB
large16   identity of 16 MiB
"""

import pathlib
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

MLP_WIDTHS = [256] + [1024] * 8 + [16]

PYTHON_MLP = """\
import os

import numpy as np
import onnxruntime
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        folder = os.path.join(args["model_repository"], args["model_version"])
        self.session = onnxruntime.InferenceSession(os.path.join(folder, "model.onnx"), providers=["CPUExecutionProvider"])

    def execute(self, requests):
        inputs = [pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy() for request in requests]
        (output,) = self.session.run(None, {"INPUT0": np.concatenate(inputs)})
        answers, first = [], 0
        for rows in map(len, inputs):
            tensor = pb_utils.Tensor("OUTPUT0", output[first : first + rows])
            answers.append(pb_utils.InferenceResponse([tensor]))
            first += rows
        return answers
"""


def config(name, backend, max_batch_size, inputs, outputs, more=""):
    return f"""\
name: "{name}"
backend: "{backend}"
max_batch_size: {max_batch_size}
input [ {{ name: "INPUT0" data_type: TYPE_FP32 dims: [ {inputs} ] }} ]
output [ {{ name: "OUTPUT0" data_type: TYPE_FP32 dims: [ {outputs} ] }} ]
{more}
"""


def model(nodes, inputs, outputs, constants=()):
    graph = helper.make_graph(
        nodes,
        "bench",
        [helper.make_tensor_value_info("INPUT0", TensorProto.FLOAT, inputs)],
        [helper.make_tensor_value_info("OUTPUT0", TensorProto.FLOAT, outputs)],
        list(constants),
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(made)
    return made


def tiny():
    one = numpy_helper.from_array(np.ones(1, np.float32), "one")
    node = helper.make_node("Add", ["INPUT0", "one"], ["OUTPUT0"])
    return model([node], ["batch", 16], ["batch", 16], [one])


def mlp():
    random = np.random.default_rng(1)
    nodes, constants, current = [], [], "INPUT0"
    for index, (rows, columns) in enumerate(zip(MLP_WIDTHS, MLP_WIDTHS[1:])):
        weights = random.normal(0, rows**-0.5, (rows, columns)).astype(np.float32)
        constants.append(numpy_helper.from_array(weights, f"weights{index}"))
        last = index + 2 == len(MLP_WIDTHS)
        product = "OUTPUT0" if last else f"product{index}"
        nodes.append(helper.make_node("MatMul", [current, f"weights{index}"], [product]))
        if not last:
            nodes.append(helper.make_node("Relu", [product], [f"layer{index}"]))
            current = f"layer{index}"
    return model(nodes, ["batch", MLP_WIDTHS[0]], ["batch", MLP_WIDTHS[-1]], constants)


def identity(elements):
    return model([helper.make_node("Identity", ["INPUT0"], ["OUTPUT0"])], [elements], [elements])


def write(repository, name, text, onnx_model=None, python=None):
    version = repository / name / "1"
    version.mkdir(parents=True, exist_ok=True)
    (repository / name / "config.pbtxt").write_text(text)
    if onnx_model is not None:
        onnx.save(onnx_model, version / "model.onnx")
    if python is not None:
        (version / "model.py").write_text(python)


def main():
    folder = pathlib.Path(sys.argv[1])
    ours, reference = folder / "ours", folder / "reference"

    write(ours, "tiny", config("tiny", "onnxruntime", 64, 16, 16), tiny())
    write(reference, "tiny", config("tiny", "identity", 64, 16, 16))

    first, last = MLP_WIDTHS[0], MLP_WIDTHS[-1]
    batched = "dynamic_batching { } instance_group [ { count: 1 kind: KIND_CPU } ]"
    write(ours, "mlp", config("mlp", "onnxruntime", 8, first, last, batched), mlp())
    write(reference, "mlp", config("mlp", "python", 8, first, last, batched), mlp(), PYTHON_MLP)

    for name, elements in [("large4", 1 << 20), ("large16", 1 << 22)]:
        write(ours, name, config(name, "onnxruntime", 0, elements, elements), identity(elements))
        write(reference, name, config(name, "identity", 0, elements, elements))


main()
