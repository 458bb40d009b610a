"""Trains a small network on scikit-learn's digits and writes it as a model repository.

Usage: train.py FOLDER. Writes FOLDER/models/digits (config.pbtxt, 1/model.onnx) and FOLDER/held_out.npz, the digits
that were kept from training.
"""

import pathlib
import sys
import time

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

CONFIG = """\
name: "digits"
backend: "onnxruntime"
max_batch_size: 64
input [ { name: "image" data_type: TYPE_FP32 dims: [ 64 ] } ]
output [ { name: "probabilities" data_type: TYPE_FP32 dims: [ 10 ] } ]
# Requests that arrive within half a millisecond of each other are run together.
dynamic_batching { max_queue_delay_microseconds: 500 }
"""


def to_onnx(network):
    """The layers of a trained MLPClassifier as Gemm, Relu and Softmax."""
    nodes, constants, current = [], [], "image"
    for index, (weights, bias) in enumerate(zip(network.coefs_, network.intercepts_)):
        constants.append(numpy_helper.from_array(weights.astype(np.float32), f"weights{index}"))
        constants.append(numpy_helper.from_array(bias.astype(np.float32), f"bias{index}"))
        nodes.append(helper.make_node("Gemm", [current, f"weights{index}", f"bias{index}"], [f"sum{index}"]))
        current = f"sum{index}"
        if index + 1 < len(network.coefs_):
            nodes.append(helper.make_node("Relu", [current], [f"layer{index}"]))
            current = f"layer{index}"
    nodes.append(helper.make_node("Softmax", [current], ["probabilities"], axis=1))
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 64])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", 10])],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model


def main():
    folder = pathlib.Path(sys.argv[1])
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32)
    seen, held_out, seen_labels, held_out_labels = train_test_split(
        images, labels, test_size=360, random_state=7, stratify=labels
    )
    network = MLPClassifier(hidden_layer_sizes=(64, 32), max_iter=1, warm_start=True, random_state=7)
    started = time.monotonic()
    said = started
    for epoch in range(60):
        network.partial_fit(seen, seen_labels, classes=range(10))
        if time.monotonic() - said > 1:
            said = time.monotonic()
            print(f"   epoch {epoch + 1}: loss {network.loss_:.3f}", flush=True)
    taken = time.monotonic() - started
    print(f"   {len(seen)} images, 60 epochs in {taken:.1f} s, final loss {network.loss_:.3f}")

    version = folder / "models" / "digits" / "1"
    version.mkdir(parents=True, exist_ok=True)
    (version.parent / "config.pbtxt").write_text(CONFIG)
    onnx.save(to_onnx(network), version / "model.onnx")
    np.savez(folder / "held_out.npz", images=held_out, labels=held_out_labels)
    print(f"   wrote {version.parent}; kept {len(held_out)} images for the test")


main()
