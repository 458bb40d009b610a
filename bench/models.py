"""Writes the models of the benchmarks, for our server and for the reference.

Usage: models.py FOLDER. Writes FOLDER/ours and FOLDER/reference, two repositories with the same model names, inputs
and outputs. Ours are ONNX models. The reference has no ONNX backend in its wheel: what only moves bytes is served
there by the C identity backend of reference_backend.c, what computes by ONNX Runtime inside its Python backend.

tiny      16 floats plus one: all cost is the server's
plugin    tiny, but by the same C identity backend on both servers: what a plug-in costs
tiny_sequence  tiny behind a sequence batcher: what a sequence costs
conv      a small convolutional net, a few milliseconds for a batch of 8; one instance, so that 16 callers keep one batch
          running and one waiting; one thread, so that the load has a processor of its own
large4    identity of 4 MiB
large16   identity of 16 MiB
table     a table of 64 MiB that is computed when the model is loaded, and looked up by 16 indices: loading it takes long,
          executing it does not

And one more, with FOLDER/generation.json the requests for it: seven of eight want 10 tokens, the eighth 200.

Ours also has three models for clients that take more than their share:

patient     tiny with a queue that waits for more requests than ever come
rows        the C identity backend with rows of a million floats
repeat      a C backend that answers with as many responses as its input has values

generation  a network that generates a text, of random numbers: what it says is nonsense, what it costs is not. Its
            weights are what a step costs, nearly whatever the number of requests that share it
"""

import json
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "demo"))

import generator
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

TABLE_ROWS, TABLE_WIDTH = 1 << 20, 16

GENERATION_CONTEXT, GENERATION_WIDTH, GENERATION_HIDDEN, GENERATION_LAYERS = 16, 64, 1024, 4
GENERATION_BATCH, GENERATION_LENGTHS = 32, (10, 200)

CONV_IMAGE, CONV_CHANNELS, CONV_LAYERS, CONV_CLASSES = [3, 32, 32], 32, 6, 10

REPEAT = """\
backend: "repeat"
max_batch_size: 0
input [ { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] }, { name: "IDX" data_type: TYPE_UINT32 dims: [ 1 ] } ]
model_transaction_policy { decoupled: true }
instance_group [ { kind: KIND_CPU } ]
"""

# A model in Python that runs a network of one input with ONNX Runtime.
PYTHON_ONNX = """\
import os

import numpy as np
import onnxruntime
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        folder = os.path.join(args["model_repository"], args["model_version"])
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(
            os.path.join(folder, "model.onnx"), options, providers=["CPUExecutionProvider"]
        )
        (self.input,) = [tensor.name for tensor in self.session.get_inputs()]
        self.outputs = [tensor.name for tensor in self.session.get_outputs()]

    def execute(self, requests):
        inputs = [pb_utils.get_input_tensor_by_name(request, self.input).as_numpy() for request in requests]
        computed = self.session.run(self.outputs, {self.input: np.concatenate(inputs)})
        answers, first = [], 0
        for rows in map(len, inputs):
            of_request = [values[first : first + rows] for values in computed]
            tensors = map(pb_utils.Tensor, self.outputs, of_request)
            answers.append(pb_utils.InferenceResponse(list(tensors)))
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


def conv():
    random = np.random.default_rng(1)
    nodes, constants, current, channels = [], [], "INPUT0", CONV_IMAGE[0]

    def constant(name, *shape):
        fan_in = int(np.prod(shape[1:]))
        values = random.normal(0, fan_in**-0.5, shape).astype(np.float32)
        constants.append(numpy_helper.from_array(values, name))
        return name

    for index in range(CONV_LAYERS):
        weights = constant(f"kernel{index}", CONV_CHANNELS, channels, 3, 3)
        nodes.append(helper.make_node("Conv", [current, weights], [f"conv{index}"], pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"conv{index}"], [f"layer{index}"]))
        current, channels = f"layer{index}", CONV_CHANNELS
    nodes.append(helper.make_node("GlobalAveragePool", [current], ["pooled"]))
    nodes.append(helper.make_node("Flatten", ["pooled"], ["flat"]))
    weights = constant("weights", CONV_CLASSES, CONV_CHANNELS)
    nodes.append(helper.make_node("Gemm", ["flat", weights], ["OUTPUT0"], transB=1))
    return model(nodes, ["batch", *CONV_IMAGE], ["batch", CONV_CLASSES], constants)


def table():
    """ONNX Runtime computes what depends on constants only when it loads a model."""
    random = np.random.default_rng(5)
    values = numpy_helper.from_array(random.random((TABLE_ROWS, TABLE_WIDTH), np.float32), "values")
    nodes = [
        helper.make_node("Softmax", ["values"], ["shares"]),
        helper.make_node("Log", ["shares"], ["table"]),
        helper.make_node("Cast", ["INPUT0"], ["indices"], to=TensorProto.INT64),
        helper.make_node("Gather", ["table", "indices"], ["rows"]),
        helper.make_node("ReduceMean", ["rows"], ["OUTPUT0"], axes=[2], keepdims=0),
    ]
    return model(nodes, ["batch", 16], ["batch", 16], [values])


def identity(elements):
    return model([helper.make_node("Identity", ["INPUT0"], ["OUTPUT0"])], [elements], [elements])


def generation():
    """A generator without an end but that of the tokens asked for."""
    random, alphabet = np.random.default_rng(3), [chr(code) for code in range(32, 127)]

    def of(rows, columns):
        return random.normal(0, (2 / rows) ** 0.5, (rows, columns)).astype(np.float32)

    sizes = [GENERATION_CONTEXT * GENERATION_WIDTH, *[GENERATION_HIDDEN] * GENERATION_LAYERS, len(alphabet)]
    layers = [(of(*shape), np.zeros(shape[1], np.float32)) for shape in zip(sizes, sizes[1:])]
    return generator.Weights(alphabet, of(len(alphabet), GENERATION_WIDTH), layers)


def generation_requests():
    """The long ones come at random places, the same in every run."""
    random = np.random.default_rng(4)
    short, long = GENERATION_LENGTHS
    # Two hundred times one of eight, shuffled, so that the mix is exact.
    lengths = random.permutation([long, *[short] * 7] * 200)
    return [
        {"text_input": [chr(65 + seed % 26)], "max_tokens": [int(length)], "seed": [seed]}
        for seed, length in enumerate(lengths)
    ]


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
    for repository in (ours, reference):
        write(repository, "plugin", config("plugin", "identity", 64, 16, 16))
    sequences = "sequence_batching { oldest { max_candidate_sequences: 64 } }"
    write(ours, "tiny_sequence", config("tiny_sequence", "onnxruntime", 64, 16, 16, sequences), tiny())
    write(reference, "tiny_sequence", config("tiny_sequence", "identity", 64, 16, 16, sequences))

    queue = "dynamic_batching { preferred_batch_size: [ 1000000 ] max_queue_delay_microseconds: 3600000000 }"
    write(ours, "patient", config("patient", "onnxruntime", 1_000_000, 16, 16, queue), tiny())
    write(ours, "repeat", REPEAT)
    write(ours, "rows", config("rows", "identity", 16, 1_000_000, 1_000_000))

    image = ", ".join(map(str, CONV_IMAGE))
    batched = "dynamic_batching { } instance_group [ { count: 1 kind: KIND_CPU } ]"
    one_thread = batched + ' parameters { key: "intra_op_thread_count" value { string_value: "1" } }'
    write(ours, "conv", config("conv", "onnxruntime", 8, image, CONV_CLASSES, one_thread), conv())
    write(reference, "conv", config("conv", "python", 8, image, CONV_CLASSES, batched), conv(), PYTHON_ONNX)

    write(ours, "table", config("table", "onnxruntime", 64, 16, 16), table())
    write(reference, "table", config("table", "python", 64, 16, 16), table(), PYTHON_ONNX)

    for name, elements in [("large4", 1 << 20), ("large16", 1 << 22)]:
        write(ours, name, config(name, "onnxruntime", 0, elements, elements), identity(elements))
        write(reference, name, config(name, "identity", 0, elements, elements))

    generator.write(ours, "generation", generation(), GENERATION_CONTEXT, GENERATION_BATCH, temperature=1.0)
    (folder / "generation.json").write_text(json.dumps(generation_requests()))


if __name__ == "__main__":
    main()
