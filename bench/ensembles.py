"""Writes the ensembles of the benchmarks and their members, for our server and for the reference.

Usage: ensembles.py FOLDER. Writes FOLDER/ours and, for the pipelines, FOLDER/reference. Members are ONNX models; the
reference runs them with ONNX Runtime inside its Python backend.

pipeline        resize_normalise, net, top_k: an image of bytes becomes the five best of 100 classes. net takes 1 to 2 ms
                of processor time for an image
light_pipeline  the same with light_net, which takes a small part of that: here calls cost as much as computing
photo_pipeline  shrink_normalise, patch_net, top_k: the usual sizes of a photo, 256 by 256 bytes in three colours, and of a
                network's input, 224 by 224 FP32: here moving the tensor between the two costs as much as computing
one_step, five_steps  tiny once, and tiny five times in a row
flood           producer makes 1 MiB of each number, consumer reduces it and takes ten times as long

All members except tiny have one instance with one thread, so that nothing but the steps runs at the same time.
"""

import pathlib
import sys

import models
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CLASSES, BEST = [100], [5]
BATCH = 16
# What comes from the client and what the nets get, each in three colours.
SMALL, PHOTO = ([64, 64, 3], [3, 32, 32]), ([256, 256, 3], [3, 224, 224])
# Sizes of each pipeline, its first member, and its net: layers, channels, and the size of the first layer's patches.
PIPELINES = {
    "pipeline": (SMALL, "resize_normalise", "net", (6, 64, None)),
    "light_pipeline": (SMALL, "resize_normalise", "light_net", (2, 12, None)),
    "photo_pipeline": (PHOTO, "shrink_normalise", "patch_net", (1, 32, 16)),
}

# The tensor between producer and consumer is a square of this size: 1 MiB of FP32. The consumer multiplies it by a
# matrix of so many columns: that many set how long it takes.
SQUARE, COLUMNS = 512, 128

ONE_THREAD = """\
instance_group [ { count: 1 kind: KIND_CPU } ]
parameters { key: "intra_op_thread_count" value { string_value: "1" } }
"""

TYPES = {"UINT8": TensorProto.UINT8, "FP32": TensorProto.FLOAT, "INT64": TensorProto.INT64}


class Member:
    """A model: its nodes, constants, and named tensors with datatypes and dimensions."""

    def __init__(self, inputs, outputs):
        self.inputs, self.outputs = inputs, outputs
        self.nodes, self.constants, self.random = [], [], np.random.default_rng(1)

    def node(self, operator, inputs, outputs, **attributes):
        self.nodes.append(helper.make_node(operator, inputs, outputs, **attributes))

    def constant(self, name, values):
        self.constants.append(numpy_helper.from_array(values, name))
        return name

    def weights(self, name, *shape):
        fan_in = int(np.prod(shape[1:]))
        return self.constant(name, self.random.normal(0, fan_in**-0.5, shape).astype(np.float32))

    def model(self, leading):
        """The dimensions in `leading` stand before those of each tensor."""

        def described(tensors):
            return [helper.make_tensor_value_info(name, TYPES[kind], [*leading, *dims]) for name, kind, dims in tensors]

        graph = helper.make_graph(self.nodes, "bench", described(self.inputs), described(self.outputs), self.constants)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.checker.check_model(made)
        return made


def resize_normalise(image, pixels):
    member = Member([("IMAGE", "UINT8", image)], [("PIXELS", "FP32", pixels)])
    scales = member.constant("scales", np.array([1, 1, pixels[1] / image[0], pixels[2] / image[1]], np.float32))
    mean = member.constant("mean", np.array([123.7, 116.3, 103.5], np.float32).reshape(1, 3, 1, 1))
    factor = member.constant("factor", np.array([0.0171, 0.0175, 0.0174], np.float32).reshape(1, 3, 1, 1))
    member.node("Cast", ["IMAGE"], ["floats"], to=TensorProto.FLOAT)
    member.node("Transpose", ["floats"], ["planes"], perm=[0, 3, 1, 2])
    member.node("Resize", ["planes", "", scales], ["small"], mode="linear")
    member.node("Sub", ["small", mean], ["centred"])
    member.node("Mul", ["centred", factor], ["PIXELS"])
    return member


def net(pixels, layers, channels, patch):
    member = Member([("PIXELS", "FP32", pixels)], [("SCORES", "FP32", CLASSES)])
    current, depth = "PIXELS", pixels[0]
    for layer in range(layers):
        size = patch or 3
        kernel = member.weights(f"kernel{layer}", channels, depth, size, size)
        form = {"strides": [patch] * 2} if patch else {"pads": [1, 1, 1, 1]}
        member.node("Conv", [current, kernel], [f"conv{layer}"], **form)
        member.node("Relu", [f"conv{layer}"], [f"layer{layer}"])
        current, depth = f"layer{layer}", channels
    member.node("GlobalAveragePool", [current], ["pooled"])
    member.node("Flatten", ["pooled"], ["flat"])
    member.node("Gemm", ["flat", member.weights("weights", *CLASSES, channels)], ["SCORES"], transB=1)
    return member


def top_k():
    member = Member([("SCORES", "FP32", CLASSES)], [("INDICES", "INT64", BEST), ("VALUES", "FP32", BEST)])
    count = member.constant("count", np.array(BEST, np.int64))
    member.node("TopK", ["SCORES", count], ["VALUES", "INDICES"])
    return member


def producer():
    member = Member([("SEED", "FP32", [1])], [("SQUARE", "FP32", [SQUARE, SQUARE])])
    member.node("Expand", ["SEED", member.constant("shape", np.array([SQUARE, SQUARE], np.int64))], ["SQUARE"])
    return member


def consumer():
    member = Member([("SQUARE", "FP32", [SQUARE, SQUARE])], [("SUM", "FP32", [1])])
    member.node("MatMul", ["SQUARE", member.weights("matrix", SQUARE, COLUMNS)], ["product"])
    member.node("ReduceSum", ["product"], ["sum"], keepdims=0)
    member.node("Reshape", ["sum", member.constant("one", np.array([1], np.int64))], ["SUM"])
    return member


def tensors(kind, described):
    each = [f'{{ name: "{name}" data_type: TYPE_{datatype} dims: {dims} }}' for name, datatype, dims in described]
    return f"{kind} [ {', '.join(each)} ]\n"


def write_member(repository, name, member, max_batch_size, more="", backend="onnxruntime"):
    text = f'name: "{name}"\nbackend: "{backend}"\nmax_batch_size: {max_batch_size}\n'
    text += tensors("input", member.inputs) + tensors("output", member.outputs) + more
    python = models.PYTHON_ONNX if backend == "python" else None
    models.write(repository, name, text, member.model(["batch"] if max_batch_size else []), python)


def write_ensemble(repository, name, max_batch_size, inputs, outputs, steps):
    """Each of the steps is a member's name with its maps from the member's tensors to those of the ensemble."""
    text = f'name: "{name}"\nplatform: "ensemble"\nmax_batch_size: {max_batch_size}\n'
    text += tensors("input", inputs) + tensors("output", outputs) + "ensemble_scheduling {\n"
    for member, *maps in steps:
        text += f'  step {{\n    model_name: "{member}"\n    model_version: -1\n'
        for kind, entries in zip(("input_map", "output_map"), maps, strict=True):
            text += "".join(f'    {kind} {{ key: "{key}" value: "{value}" }}\n' for key, value in entries.items())
        text += "  }\n"
    models.write(repository, name, text + "}\n")


def write_chain(repository, name, max_batch_size, members):
    """The members one after the other; a tensor has the same name in all of them."""

    def same(described):
        return {name: name for name, _, _ in described}

    steps = [(name, same(member.inputs), same(member.outputs)) for name, member in members.items()]
    first, *_, last = members.values()
    write_ensemble(repository, name, max_batch_size, first.inputs, last.outputs, steps)


def write_pipelines(repository, backend, more):
    members = {"top_k": top_k()}
    for name, ((image, pixels), first, second, layers) in PIPELINES.items():
        members |= {first: resize_normalise(image, pixels), second: net(pixels, *layers)}
        write_chain(repository, name, BATCH, {member: members[member] for member in (first, second, "top_k")})
    for name, member in members.items():
        write_member(repository, name, member, BATCH, f"dynamic_batching {{ }}\n{more}", backend)


def write_steps(repository):
    models.write(repository, "tiny", models.config("tiny", "onnxruntime", 64, 16, 16), models.tiny())
    inputs, outputs = [("INPUT0", "FP32", [16])], [("OUTPUT0", "FP32", [16])]
    for name, count in (("one_step", 1), ("five_steps", 5)):
        between = ["INPUT0", *(f"between{number}" for number in range(1, count)), "OUTPUT0"]
        steps = [("tiny", {"INPUT0": before}, {"OUTPUT0": after}) for before, after in zip(between, between[1:])]
        write_ensemble(repository, name, 64, inputs, outputs, steps)


def write_flood(repository):
    members = {"producer": producer(), "consumer": consumer()}
    for name, member in members.items():
        write_member(repository, name, member, 0, ONE_THREAD)
    write_chain(repository, "flood", 0, members)


def main():
    folder = pathlib.Path(sys.argv[1])
    ours, reference = folder / "ours", folder / "reference"
    write_pipelines(ours, "onnxruntime", ONE_THREAD)
    write_pipelines(reference, "python", "instance_group [ { count: 1 kind: KIND_CPU } ]\n")
    write_steps(ours)
    write_flood(ours)


main()
