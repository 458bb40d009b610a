#!/usr/bin/env python3
"""Makes the models of the tests, beside this file.

    make_models.py ir           needs the packages openvino and onnx
    make_models.py tensorflow   needs the package tensorflow-cpu
    make_models.py paddle       needs the package paddlepaddle

The models are committed, so that the tests need none of these packages but openvino, whose library they load. All
weights are written out here: a model that is made again is the same.
"""
import pathlib
import shutil
import sys
import tempfile

import numpy as np

HERE = pathlib.Path(__file__).parent

# What the models of all formats compute: y = relu(x * 2 + [0, 1, 2, 3]).
BIAS = np.arange(4, dtype=np.float32)


def make_ir():
    import onnx
    import openvino as ov
    from openvino import opset13 as op

    def save(name, outputs, inputs):
        model = ov.Model(outputs, inputs, name)
        ov.save_model(model, HERE / f"{name}.xml", compress_to_fp16=False)
        weights = HERE / f"{name}.bin"
        if weights.stat().st_size == 0:
            weights.unlink()

    def parameter(shape, element, *names):
        node = op.parameter(shape, element, name=names[0] if names else "anonymous")
        node.output(0).set_names(set(names))
        return node

    def named(node, *names):
        node.output(0).set_names(set(names))
        return node

    # The same as the other formats. The input has two names, and its layout tells where the batch is.
    x = parameter([-1, 4], np.float32, "x", "x_alias")
    x.set_layout(ov.Layout("[N,C]"))
    twice = op.multiply(x, op.constant(np.float32(2)))
    y = named(op.relu(op.add(twice, op.constant(BIAS))), "y")
    save("affine", [y], [x])

    # A small network, for results that a lower precision would change.
    x = parameter([-1, 8], np.float32, "x")
    weights = np.sin(np.arange(8 * 8, dtype=np.float32)).reshape(8, 8)
    hidden = op.tanh(op.matmul(x, op.constant(weights), False, False))
    y = named(op.matmul(hidden, op.constant(weights), False, False), "y")
    save("network", [y], [x])

    # Sum and difference of whole numbers; the second output has no name.
    a, b = parameter([-1, 2], np.int64, "a"), parameter([-1, 2], np.int64, "b")
    save("pair", [named(op.add(a, b), "sum"), op.subtract(a, b)], [a, b])

    # The shape of the output is known only after a run.
    x = parameter([-1], np.int32, "x")
    save("positions", [named(op.non_zero(x, "i64"), "positions")], [x])

    # Outputs that are inputs.
    x, s = parameter([-1, 3], np.float32, "x"), parameter([-1], ov.Type.string, "s")
    save("unchanged", [named(op.result(x), "x_out"), named(op.result(s), "s_out")], [x, s])

    # One input of each type that the protocols have.
    types = "boolean u8 u16 u32 u64 i8 i16 i32 i64 f16 bf16 f32 f64".split()
    inputs = [parameter([2], getattr(ov.Type, name), name) for name in types]
    save("types", [named(op.convert(node, "f64"), f"{name}_f64") for name, node in zip(types, inputs)], inputs)

    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node("Mul", ["x", "two"], ["twice"]),
            onnx.helper.make_node("Add", ["twice", "bias"], ["sum"]),
            onnx.helper.make_node("Relu", ["sum"], ["y"]),
        ],
        "affine",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 4])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch", 4])],
        [onnx.numpy_helper.from_array(np.float32(2), "two"), onnx.numpy_helper.from_array(BIAS, "bias")],
    )
    opset = onnx.helper.make_opsetid("", 17)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8), HERE / "affine.onnx")


def make_tensorflow():
    import tensorflow as tf
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    class Affine(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, name="x")])
        def __call__(self, x):
            return {"y": tf.nn.relu(x * 2.0 + tf.constant(BIAS))}

    module = Affine()
    function = module.__call__.get_concrete_function()
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(module, folder, signatures={"serving_default": function})
        target = HERE / "affine.saved_model"
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        shutil.copy(pathlib.Path(folder) / "saved_model.pb", target)
        variables = pathlib.Path(folder) / "variables"
        shutil.copytree(variables, target / "variables")
        converter = tf.lite.TFLiteConverter.from_saved_model(folder)
        (HERE / "affine.tflite").write_bytes(converter.convert())
    frozen = convert_variables_to_constants_v2(function)
    (HERE / "affine.pb").write_bytes(frozen.graph.as_graph_def().SerializeToString(deterministic=True))


def make_paddle():
    import os

    os.environ["FLAGS_enable_pir_api"] = "0"
    import paddle

    paddle.enable_static()
    program, startup = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(program, startup):
        x = paddle.static.data("x", [-1, 4], "float32")
        y = paddle.nn.functional.relu(x * 2.0 + paddle.assign(BIAS))
        executor = paddle.static.Executor(paddle.CPUPlace())
        executor.run(startup)
        path = str(HERE / "affine")
        paddle.static.save_inference_model(path, [x], [y], executor, program=program)
    # Each operator has the stack of the code that made it, with paths of the machine that ran it.
    saved = paddle.base.proto.framework_pb2.ProgramDesc.FromString((HERE / "affine.pdmodel").read_bytes())
    for operator in (operator for block in saved.blocks for operator in block.ops):
        kept = [attribute for attribute in operator.attrs if attribute.name != "op_callstack"]
        del operator.attrs[:]
        operator.attrs.extend(kept)
    (HERE / "affine.pdmodel").write_bytes(saved.SerializeToString(deterministic=True))


if __name__ == "__main__":
    makers = {"ir": make_ir, "tensorflow": make_tensorflow, "paddle": make_paddle}
    if sys.argv[1:] and all(kind in makers for kind in sys.argv[1:]):
        for kind in sys.argv[1:]:
            makers[kind]()
    else:
        sys.exit(__doc__)
