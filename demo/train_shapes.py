"""Makes three models that tell the shape in a picture: `picture` decodes and scales it, `shape` is a small
convolutional network, and the ensemble `shape_of_picture` passes a request through both.

Usage: train_shapes.py FOLDER. Writes FOLDER/models/{picture,shape,shape_of_picture}. The filters of the convolution
are fixed: they see edges of eight directions. The layers behind them are trained.
"""

import pathlib
import sys
import time

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from sklearn.neural_network import MLPClassifier

import shapes

SIDE = 32
POOLED = 4
DIRECTIONS = 8
SEEN, HELD_OUT = 2400, 400

PICTURE = f"""\
# A PNG or JPEG picture becomes a tensor. There is no model file.
backend: "image"
max_batch_size: 32
input [ {{ name: "encoded" data_type: TYPE_STRING dims: [ 1 ] }} ]
output [ {{ name: "pixels" data_type: TYPE_FP32 dims: [ 3, {SIDE}, {SIDE} ] }} ]
parameters {{ key: "RESIZE" value: {{ string_value: "pad" }} }}
parameters {{ key: "SCALE" value: {{ string_value: "0.003921569" }} }}
dynamic_batching {{}}
"""

SHAPE = f"""\
backend: "onnxruntime"
max_batch_size: 32
input [ {{ name: "pixels" data_type: TYPE_FP32 dims: [ 3, {SIDE}, {SIDE} ] }} ]
output [ {{ name: "probabilities" data_type: TYPE_FP32 dims: [ {len(shapes.SHAPES)} ] label_filename: "labels.txt" }} ]
dynamic_batching {{}}
"""

ENSEMBLE = f"""\
platform: "ensemble"
max_batch_size: 32
input [ {{ name: "picture" data_type: TYPE_STRING dims: [ 1 ] }} ]
output [ {{ name: "shape" data_type: TYPE_FP32 dims: [ {len(shapes.SHAPES)} ] label_filename: "labels.txt" }} ]
ensemble_scheduling {{
  step [
    {{
      model_name: "picture"
      model_version: -1
      input_map {{ key: "encoded" value: "picture" }}
      output_map {{ key: "pixels" value: "pixels" }}
    }},
    {{
      model_name: "shape"
      model_version: -1
      input_map {{ key: "pixels" value: "pixels" }}
      output_map {{ key: "probabilities" value: "shape" }}
    }}
  ]
}}
"""


def filters():
    """Edges of each direction: 5 x 5 weights for each of three colours."""
    y, x = np.mgrid[-2:3, -2:3]
    weights = []
    for direction in np.arange(DIRECTIONS) * 2 * np.pi / DIRECTIONS:
        slope = x * np.cos(direction) + y * np.sin(direction)
        edge = slope * np.exp(-(x * x + y * y) / 3)
        weights.append(np.repeat((edge / abs(edge).sum())[None], 3, axis=0))
    return np.array(weights, np.float32)


def features(pixels, weights):
    """What the convolution, Relu and the average of each field give, as the network computes them."""
    windows = np.lib.stride_tricks.sliding_window_view(pixels.sum(axis=1), (5, 5), axis=(1, 2))
    # The three colours have the same weights, so they are added first.
    edges = np.einsum("nyxij,fij->nfyx", windows, weights[:, 0]).clip(0)
    field = edges.shape[-1] // POOLED
    return edges.reshape(len(pixels), DIRECTIONS, POOLED, field, POOLED, field).mean(axis=(3, 5)).reshape(len(pixels), -1)


def to_onnx(weights, network):
    """Conv, Relu, AveragePool, and the trained layers."""
    field = (SIDE - 4) // POOLED
    nodes = [
        helper.make_node("Conv", ["pixels", "filters"], ["edges"]),
        helper.make_node("Relu", ["edges"], ["bright"]),
        helper.make_node("AveragePool", ["bright"], ["fields"], kernel_shape=[field, field], strides=[field, field]),
        helper.make_node("Flatten", ["fields"], ["layer0"]),
    ]
    constants = [numpy_helper.from_array(weights, "filters")]
    last = len(network.coefs_)
    for index, (layer, bias) in enumerate(zip(network.coefs_, network.intercepts_), start=1):
        constants.append(numpy_helper.from_array(layer.astype(np.float32), f"weights{index}"))
        constants.append(numpy_helper.from_array(bias.astype(np.float32), f"bias{index}"))
        inputs = [f"layer{index - 1}", f"weights{index}", f"bias{index}"]
        nodes.append(helper.make_node("Gemm", inputs, [f"sum{index}"]))
        if index < last:
            nodes.append(helper.make_node("Relu", [f"sum{index}"], [f"layer{index}"]))
    nodes.append(helper.make_node("Softmax", [f"sum{last}"], ["probabilities"], axis=1))
    graph = helper.make_graph(
        nodes,
        "shape",
        [helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["batch", 3, SIDE, SIDE])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", len(shapes.SHAPES)])],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model


def main():
    models = pathlib.Path(sys.argv[1]) / "models"
    random = np.random.default_rng(7)
    started = time.monotonic()
    numbers = np.arange(SEEN + HELD_OUT) % len(shapes.SHAPES)
    drawn = np.array([shapes.draw(shapes.SHAPES[number], SIDE, random) for number in numbers])
    weights = filters()
    known = features(drawn.transpose(0, 3, 1, 2).astype(np.float32) / 255, weights)
    # The trained layers get numbers of about 1. The scale becomes a part of the filters.
    weights /= known.std()
    known /= known.std()
    network = MLPClassifier(hidden_layer_sizes=(48,), max_iter=60, random_state=7, early_stopping=False, tol=1e-3)
    network.fit(known[:SEEN], numbers[:SEEN])
    right = (network.predict(known[SEEN:]) == numbers[SEEN:]).mean()
    print(f"   {SEEN} pictures in {time.monotonic() - started:.1f} s; {right:.1%} of {HELD_OUT} others right")

    for name, config in [("picture", PICTURE), ("shape", SHAPE), ("shape_of_picture", ENSEMBLE)]:
        (models / name / "1").mkdir(parents=True, exist_ok=True)
        (models / name / "config.pbtxt").write_text(config)
    for name in ["shape", "shape_of_picture"]:
        (models / name / "labels.txt").write_text("\n".join(shapes.SHAPES) + "\n")
    onnx.save(to_onnx(weights, network), models / "shape" / "1" / "model.onnx")
    print(f"   wrote {models / 'picture'}, {models / 'shape'} and the ensemble {models / 'shape_of_picture'}")


main()
