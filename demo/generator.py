"""A network that continues a text character by character, as an ONNX model of one step.

The model remembers in implicit state what it needs between steps: the last characters (CONTEXT), how many it has
written (COUNT) and its random number (RANDOM). Each run writes one character for each request of the batch and says in
DONE which requests are finished. So requests of any length run together, and one may join while others are half way.

A request brings text_input (its first character counts), max_tokens and a seed; the same three give the same text.
"""

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

MODULUS = 1 << 31

CONFIG = """\
name: "{name}"
backend: "onnxruntime"
max_batch_size: {batch}
# Each answer has one character; a request has as many answers as characters.
model_transaction_policy {{ decoupled: true }}
input [
  {{ name: "text_input" data_type: TYPE_STRING dims: [ 1 ] }},
  {{ name: "max_tokens" data_type: TYPE_INT64 dims: [ 1 ] }},
  {{ name: "seed" data_type: TYPE_INT64 dims: [ 1 ] }}
]
output [ {{ name: "text_output" data_type: TYPE_STRING dims: [ 1 ] }} ]
sequence_batching {{
  iterative_sequence: true
  oldest {{ max_candidate_sequences: {batch} }}
  control_input [ {{ name: "START" control [ {{ kind: CONTROL_SEQUENCE_START bool_false_true: [ false, true ] }} ] }} ]
  state [
    {{ input_name: "CONTEXT" output_name: "CONTEXT_OUT" data_type: TYPE_INT64 dims: [ {context} ] }},
    {{ input_name: "COUNT" output_name: "COUNT_OUT" data_type: TYPE_INT64 dims: [ 1 ] }},
    {{ input_name: "RANDOM" output_name: "RANDOM_OUT" data_type: TYPE_INT64 dims: [ 1 ] }}
  ]
}}
instance_group [ {{ count: 1 kind: KIND_CPU }} ]
# A request whose row of this output is true is finished; the others run again.
parameters {{ key: "ITERATION_DONE_OUTPUT" value: {{ string_value: "DONE" }} }}
"""


@dataclass
class Weights:
    """The alphabet and the layers; the first character of the alphabet stands before every text."""

    alphabet: list
    # [characters, width]
    embedding: np.ndarray
    # Matrix and bias of each layer; the last gives a score for each character.
    layers: list


def to_onnx(weights, context, temperature, end=None):
    """One step. `context` characters are looked at; a text ends with the character `end`, if there is one."""
    nodes, constants = [], []

    def constant(name, values, dtype=np.int64):
        constants.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def node(operator, inputs, output, **attributes):
        nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    one = constant("one", [1])
    modulus = constant("modulus", [MODULUS])

    def scrambled(number, factor, addend, output):
        product = node("Mul", [number, constant(f"{output}_factor", [factor])], f"{output}_product")
        total = node("Add", [product, constant(f"{output}_addend", [addend])], f"{output}_total")
        return node("Mod", [total, modulus], output)

    # A text begins with its prompt, after characters of number 0.
    letters = numpy_helper.from_array(np.array([letter.encode() for letter in weights.alphabet], object), "letters")
    constants.append(letters)
    node("Equal", ["text_input", "letters"], "is_letter")
    prompt = node("ArgMax", [node("Cast", ["is_letter"], "letter_score", to=TensorProto.FLOAT)], "prompt", axis=1, keepdims=1)
    last = constant("last", [np.iinfo(np.int64).max])
    axis = constant("axis", [1])

    def moved(before, letter, output):
        kept = node("Slice", [before, one, last, axis], f"{output}_kept")
        return node("Concat", [kept, letter], output, axis=1)

    seen = node("Where", ["START", moved("CONTEXT", prompt, "beginning"), "CONTEXT"], "seen")
    small_seed = node("Mod", ["seed", modulus], "small_seed")
    number = node("Where", ["START", scrambled(small_seed, 1_640_531_527, 1, "first"), "RANDOM"], "number")

    # The score of each character.
    constant("embedding", weights.embedding, np.float32)
    node("Gather", ["embedding", seen], "embedded")
    width = context * weights.embedding.shape[1]
    current = node("Reshape", ["embedded", constant("flat", [-1, width])], "layer")
    for index, (matrix, bias) in enumerate(weights.layers):
        names = [constant(f"weights{index}", matrix, np.float32), constant(f"bias{index}", bias, np.float32)]
        current = node("Gemm", [current, *names], f"sum{index}")
        if index + 1 < len(weights.layers):
            current = node("Relu", [current], f"layer{index}")
    scaled = node("Div", [current, constant("temperature", [temperature], np.float32)], "scaled")
    chances = node("Softmax", [scaled], "chances", axis=1)

    # The first character up to which the chances add up to more than a random number between 0 and 1.
    scrambled(number, 1_103_515_245, 12_345, "RANDOM_OUT")
    upper = node("Div", ["RANDOM_OUT", constant("low_bits", [256])], "upper_bits")
    dice = node(
        "Mul",
        [node("Cast", [upper], "upper_float", to=TensorProto.FLOAT), constant("unit", [2.0**-23], np.float32)],
        "dice",
    )
    sums = node("CumSum", [chances, constant("columns", 1)], "sums")
    below = node("LessOrEqual", [sums, dice], "below")
    count = node("ReduceSum", [node("Cast", [below], "below_number", to=TensorProto.INT64), axis], "place", keepdims=1)
    picked = node("Min", [count, constant("highest", [len(weights.alphabet) - 1])], "picked")

    node("Gather", ["letters", picked], "text_output")
    moved(seen, picked, "CONTEXT_OUT")
    node("Add", ["COUNT", one], "COUNT_OUT")
    enough = node("GreaterOrEqual", ["COUNT_OUT", "max_tokens"], "DONE" if end is None else "enough")
    if end is not None:
        ends = node("Equal", [picked, constant("end", [weights.alphabet.index(end)])], "ends")
        node("Or", [enough, ends], "DONE")

    def tensor(name, kind, dims):
        return helper.make_tensor_value_info(name, kind, ["batch", dims])

    numbers = [("CONTEXT", context), ("COUNT", 1), ("RANDOM", 1)]
    inputs = [tensor("text_input", TensorProto.STRING, 1), tensor("START", TensorProto.BOOL, 1)]
    inputs += [tensor(name, TensorProto.INT64, 1) for name in ("max_tokens", "seed")]
    inputs += [tensor(name, TensorProto.INT64, dims) for name, dims in numbers]
    outputs = [tensor("text_output", TensorProto.STRING, 1), tensor("DONE", TensorProto.BOOL, 1)]
    outputs += [tensor(f"{name}_OUT", TensorProto.INT64, dims) for name, dims in numbers]
    graph = helper.make_graph(nodes, "generator", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    onnx.checker.check_model(model)
    return model


def write(repository, name, weights, context, batch, temperature, end=None):
    """Adds a generator to a model repository."""
    version = repository / name / "1"
    version.mkdir(parents=True, exist_ok=True)
    (repository / name / "config.pbtxt").write_text(CONFIG.format(name=name, batch=batch, context=context))
    onnx.save(to_onnx(weights, context, temperature, end), version / "model.onnx")
