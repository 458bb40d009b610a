"""Writes the models that `nereid tune` is measured with.

Usage: tune_models.py FOLDER. Writes FOLDER/mlp, FOLDER/conv and FOLDER/scorer.

mlp      three layers of 512: a batch costs little more than one row
conv     the convolutional net of models.py: a batch costs as much as its rows
scorer   a model in Python that does not batch: products of matrices with NumPy, and a loop in Python
"""

import pathlib
import sys

import models
import numpy as np
from onnx import helper, numpy_helper

MLP_WIDTH, MLP_LAYERS, MLP_CLASSES = 512, 3, 10

SCORER = """\
import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        random = np.random.default_rng(7)
        self.weights = random.normal(0, 0.06, (256, 256)).astype(np.float32)

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        vector = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
        for _ in range(20):
            vector = np.tanh(vector @ self.weights)
        words = sum(len(str(number)) for number in vector.tolist())
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.array([words], np.float32))])
"""


def mlp():
    random = np.random.default_rng(2)
    nodes, constants, current = [], [], "INPUT0"
    sizes = [MLP_WIDTH] * (MLP_LAYERS + 1) + [MLP_CLASSES]
    for index, (rows, columns) in enumerate(zip(sizes, sizes[1:])):
        values = random.normal(0, rows**-0.5, (rows, columns)).astype(np.float32)
        constants.append(numpy_helper.from_array(values, f"weights{index}"))
        is_last = index == len(sizes) - 2
        following = "OUTPUT0" if is_last else f"layer{index}"
        product = following if is_last else f"product{index}"
        nodes.append(helper.make_node("MatMul", [current, f"weights{index}"], [product]))
        if not is_last:
            nodes.append(helper.make_node("Relu", [product], [following]))
        current = following
    return models.model(nodes, ["batch", MLP_WIDTH], ["batch", MLP_CLASSES], constants)


def main():
    folder = pathlib.Path(sys.argv[1])
    batched = "dynamic_batching { }"
    models.write(folder, "mlp", models.config("mlp", "onnxruntime", 16, MLP_WIDTH, MLP_CLASSES, batched), mlp())
    image = ", ".join(map(str, models.CONV_IMAGE))
    config = models.config("conv", "onnxruntime", 8, image, models.CONV_CLASSES, batched)
    models.write(folder, "conv", config, models.conv())
    models.write(folder, "scorer", models.config("scorer", "python", 0, 256, 1), python=SCORER)


if __name__ == "__main__":
    main()
