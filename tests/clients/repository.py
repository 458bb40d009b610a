"""Writes the models that the tests are served with.

| model | does |
|---|---|
| add_sub | OUTPUT0 = INPUT0 + INPUT1, OUTPUT1 = INPUT0 - INPUT1, INT32 [16], batches of 8 |
| counted, aside | the same for tests that count; nobody else calls them |
| identity_<datatype> | OUTPUT = INPUT of any length, no batching |
| matrix | the same for FP32 of two variable dimensions |
| classifier | a network of two layers with labels |
| versions | versions 1, 2 and 3: Y = X + version |
| picky | fails unless INDEX is below 3 |
| completed | has no configuration |
| accumulate_direct, accumulate_oldest | SUM = what the sequence has had so far, by implicit state |
| brief_direct, brief_oldest | the same; a sequence that is silent for 0.3 seconds ends |
| carried_direct, carried_oldest | SUM = CARRY + X, CARRY counting as 0 at START; clients carry the sum themselves |
| controls_direct, controls_oldest | FLAGS = START, END and READY as FP32, ID = CORRID |
| countdown, countdown_last | iterative: OUT counts from FROM down to 1, with each step an answer, or with the last |
| held, held_bounded, held_impatient, held_ranked | OUTPUT0 = INPUT0 when a test lets it: see `held.py` |
"""

import numpy as np
import onnx
import onnx.parser
from onnx import numpy_helper

# By the protocol's name: the configuration's and ONNX's.
DATATYPES = {
    "BOOL": ("TYPE_BOOL", "bool"),
    "UINT8": ("TYPE_UINT8", "uint8"),
    "UINT16": ("TYPE_UINT16", "uint16"),
    "UINT32": ("TYPE_UINT32", "uint32"),
    "UINT64": ("TYPE_UINT64", "uint64"),
    "INT8": ("TYPE_INT8", "int8"),
    "INT16": ("TYPE_INT16", "int16"),
    "INT32": ("TYPE_INT32", "int32"),
    "INT64": ("TYPE_INT64", "int64"),
    "FP16": ("TYPE_FP16", "float16"),
    "BF16": ("TYPE_BF16", "bfloat16"),
    "FP32": ("TYPE_FP32", "float"),
    "FP64": ("TYPE_FP64", "double"),
    "BYTES": ("TYPE_STRING", "string"),
}

LABELS = ["cat", "dog", "fish"]

HEADER = '<ir_version: 8, opset_import: ["": 17]>'


def graph(text, **weights):
    """A model from ONNX's text form; `weights` become initializers."""
    model = onnx.parser.parse_model(f"{HEADER}\n{text}")
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    onnx.checker.check_model(model)
    return model


def write(repository, name, model, config=None, version=1, labels=None):
    """Adds a version of a model; without `config` the server has to find out everything by itself."""
    folder = repository / name
    (folder / str(version)).mkdir(parents=True, exist_ok=True)
    onnx.save(model, folder / str(version) / "model.onnx")
    if config is not None:
        (folder / "config.pbtxt").write_text(f'name: "{name}"\nbackend: "onnxruntime"\n{config}')
    if labels:
        (folder / "labels.txt").write_text("\n".join(labels) + "\n")
    return folder


def tensor(kind, name, datatype, *dims, more=""):
    """An `input` or `output` block of a configuration."""
    return f'{kind} {{ name: "{name}" data_type: {DATATYPES[datatype][0]} dims: {list(dims)} {more} }}\n'


def add_sub(repository, name="add_sub"):
    model = graph(
        """
        add_sub (int32[batch, 16] INPUT0, int32[batch, 16] INPUT1)
            => (int32[batch, 16] OUTPUT0, int32[batch, 16] OUTPUT1)
        {
            OUTPUT0 = Add(INPUT0, INPUT1)
            OUTPUT1 = Sub(INPUT0, INPUT1)
        }"""
    )
    config = "max_batch_size: 8\n" + "".join(
        tensor(kind, f"{kind.upper()}{index}", "INT32", 16) for kind in ("input", "output") for index in (0, 1)
    )
    write(repository, name, model, config)


def identity(repository, datatype):
    onnx_type = DATATYPES[datatype][1]
    text = f"identity ({onnx_type}[length] INPUT) => ({onnx_type}[length] OUTPUT) {{ OUTPUT = Identity(INPUT) }}"
    config = tensor("input", "INPUT", datatype, -1) + tensor("output", "OUTPUT", datatype, -1)
    write(repository, f"identity_{datatype.lower()}", graph(text), "max_batch_size: 0\n" + config)


def matrix(repository):
    text = "matrix (float[rows, columns] INPUT) => (float[rows, columns] OUTPUT) { OUTPUT = Identity(INPUT) }"
    config = tensor("input", "INPUT", "FP32", -1, -1) + tensor("output", "OUTPUT", "FP32", -1, -1)
    write(repository, "matrix", graph(text), "max_batch_size: 0\n" + config)


def classifier_weights():
    random = np.random.default_rng(7)
    shapes = {"w1": (4, 8), "b1": (8,), "w2": (8, 3), "b2": (3,)}
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def classifier(repository):
    model = graph(
        """
        classifier (float[batch, 4] FEATURES) => (float[batch, 3] PROBABILITIES)
        {
            hidden = Gemm(FEATURES, w1, b1)
            active = Relu(hidden)
            scores = Gemm(active, w2, b2)
            PROBABILITIES = Softmax(scores)
        }""",
        **classifier_weights(),
    )
    config = "max_batch_size: 8\n" + tensor("input", "FEATURES", "FP32", 4)
    config += tensor("output", "PROBABILITIES", "FP32", 3, more='label_filename: "labels.txt"')
    write(repository, "classifier", model, config, labels=LABELS)


def versions(repository):
    for version in (1, 2, 3):
        text = "versions (float[batch, 1] X) => (float[batch, 1] Y) { Y = Add(X, number) }"
        model = graph(text, number=np.array([version], np.float32))
        config = "max_batch_size: 4\nversion_policy: { all {} }\n"
        write(
            repository,
            "versions",
            model,
            config + tensor("input", "X", "FP32", 1) + tensor("output", "Y", "FP32", 1),
            version,
        )


def picky(repository):
    """Fails inside an execution, because Gather looks beyond its table."""
    text = "picky (int64[length] INDEX) => (float[length] VALUE) { VALUE = Gather(numbers, INDEX) }"
    model = graph(text, numbers=np.array([10, 20, 30], np.float32))
    config = "max_batch_size: 0\n" + tensor("input", "INDEX", "INT64", -1) + tensor("output", "VALUE", "FP32", -1)
    write(repository, "picky", model, config)


def completed(repository):
    text = "completed (float[batch, 3] X) => (float[batch, 3] Y) { Y = Neg(X) }"
    write(repository, "completed", graph(text))


STRATEGIES = {
    "direct": "direct {{}}",
    "oldest": "oldest {{ max_candidate_sequences: {slots} }}",
}


def sequence_batching(strategy, more="", idle_seconds=60, slots=8):
    """Batching on 4 instances with as many slots each."""
    start = "{ kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1] }"
    return (
        f"max_batch_size: {slots}\n"
        "instance_group [{ count: 4 kind: KIND_CPU }]\n"
        "sequence_batching {\n"
        f"  max_sequence_idle_microseconds: {int(idle_seconds * 1e6)}\n"
        f'  control_input [{{ name: "START" control [{start}] }}]\n'
        f"  {STRATEGIES[strategy].format(slots=slots)}\n"
        f"  {more}\n"
        "}\n"
    )


def accumulate(repository, strategy, name="accumulate", **batching):
    model = graph(
        """
        accumulate (int32[batch, 1] X, int32[batch, 1] START, int32[batch, 1] SUM_IN)
            => (int32[batch, 1] SUM, int32[batch, 1] SUM_OUT)
        {
            one = Constant <value_ints = [1]> ()
            whole = Cast <to = 6> (one)
            keep = Sub(whole, START)
            kept = Mul(SUM_IN, keep)
            SUM = Add(kept, X)
            SUM_OUT = Identity(SUM)
        }"""
    )
    state = 'state [{ input_name: "SUM_IN" output_name: "SUM_OUT" data_type: TYPE_INT32 dims: [1] }]'
    config = sequence_batching(strategy, state, **batching) + tensor("input", "X", "INT32", 1) + tensor("output", "SUM", "INT32", 1)
    write(repository, f"{name}_{strategy}", model, config)


def carried(repository, strategy):
    model = graph(
        """
        carried (int32[batch, 1] X, int32[batch, 1] CARRY, int32[batch, 1] START) => (int32[batch, 1] SUM)
        {
            one = Constant <value_ints = [1]> ()
            whole = Cast <to = 6> (one)
            keep = Sub(whole, START)
            kept = Mul(CARRY, keep)
            SUM = Add(kept, X)
        }"""
    )
    inputs = tensor("input", "X", "INT32", 1) + tensor("input", "CARRY", "INT32", 1)
    write(repository, f"carried_{strategy}", model, sequence_batching(strategy) + inputs + tensor("output", "SUM", "INT32", 1))


def controls(repository, strategy):
    model = graph(
        """
        controls (float[batch, 1] START, float[batch, 1] END, float[batch, 1] READY, uint64[batch, 1] CORRID, int32[batch, 1] X)
            => (float[batch, 3] FLAGS, uint64[batch, 1] ID)
        {
            FLAGS = Concat <axis = 1> (START, END, READY)
            ID = Identity(CORRID)
        }"""
    )
    control = '  control_input {{ name: "{0}" control {{ kind: CONTROL_SEQUENCE_{0} {1} }} }}\n'.format
    inputs = "".join(control(name, "fp32_false_true: [0, 1]") for name in ("START", "END", "READY"))
    inputs += control("CORRID", "data_type: TYPE_UINT64")
    config = f"max_batch_size: 4\nsequence_batching {{\n  {STRATEGIES[strategy].format(slots=4)}\n{inputs}}}\n"
    tensors = tensor("input", "X", "INT32", 1) + tensor("output", "FLAGS", "FP32", 3) + tensor("output", "ID", "UINT64", 1)
    write(repository, f"controls_{strategy}", model, config + tensors)


def countdown(repository, name, decoupled):
    """A step per number, each after as many multiplications of matrices as the largest ROUNDS says; 8 requests share a step."""
    model = graph(
        """
        countdown (int64[batch, 1] FROM, int64[batch, 1] ROUNDS, bool[batch, 1] START, int64[batch, 1] COUNT)
            => (int64[batch, 1] OUT, int64[batch, 1] NEXT, bool[batch, 1] DONE)
        <int64 one = {1}, float nothing = {0.0}, bool yes = {1}>
        {
            rounds = ReduceMax <keepdims = 0> (ROUNDS)
            last = Loop <body = round (int64 i, bool go, float[64, 64] state) => (bool again, float[64, 64] next) {
                again = Identity(go)
                next = MatMul(state, turn)
            }> (rounds, yes, turn)
            worn = ReduceMax <keepdims = 0> (last)
            zero_float = Mul(worn, nothing)
            zero = Cast <to = 7> (zero_float)
            now = Where(START, FROM, COUNT)
            OUT = Add(now, zero)
            NEXT = Sub(OUT, one)
            DONE = LessOrEqual(OUT, one)
        }""",
        # Moves rows around, so that numbers stay as they are however often it is applied.
        turn=np.roll(np.eye(64, dtype=np.float32), 1, axis=0),
    )
    config = "max_batch_size: 8\n" + tensor("input", "FROM", "INT64", 1) + tensor("input", "ROUNDS", "INT64", 1)
    config += tensor("output", "OUT", "INT64", 1)
    config += f"model_transaction_policy {{ decoupled: {str(decoupled).lower()} }}\n"
    config += """
        sequence_batching {
          iterative_sequence: true
          oldest { max_candidate_sequences: 8 }
          control_input { name: "START" control { kind: CONTROL_SEQUENCE_START bool_false_true: [false, true] } }
          state { input_name: "COUNT" output_name: "NEXT" data_type: TYPE_INT64 dims: 1 }
        }
        instance_group { count: 1 kind: KIND_CPU }
        parameters { key: "intra_op_thread_count" value: { string_value: "1" } }
        parameters { key: "ITERATION_DONE_OUTPUT" value: { string_value: "DONE" } }
    """
    write(repository, name, model, config)


def broken(repository, name="broken"):
    """A model whose configuration asks for an output that its graph does not have."""
    text = "broken (float[length] X) => (float[length] Y) { Y = Identity(X) }"
    config = "max_batch_size: 0\n" + tensor("input", "X", "FP32", -1) + tensor("output", "NOPE", "FP32", -1)
    write(repository, name, graph(text), config)


def write_all(repository, gate):
    """Writes the whole table above; `gate` holds the held models."""
    for name in ("add_sub", "counted", "aside"):
        add_sub(repository, name)
    for datatype in DATATYPES:
        identity(repository, datatype)
    matrix(repository)
    classifier(repository)
    versions(repository)
    for strategy in STRATEGIES:
        accumulate(repository, strategy)
        accumulate(repository, strategy, "brief", idle_seconds=0.3)
        controls(repository, strategy)
        carried(repository, strategy)
    countdown(repository, "countdown", decoupled=True)
    countdown(repository, "countdown_last", decoupled=False)
    picky(repository)
    completed(repository)
    gate.write(repository, "held", "max_batch_size: 8\ndynamic_batching {}\n")
    gate.write(
        repository,
        "held_bounded",
        "max_batch_size: 1\ndynamic_batching { default_queue_policy { max_queue_size: 2 } }\n",
    )
    gate.write(
        repository,
        "held_impatient",
        "max_batch_size: 1\ndynamic_batching { default_queue_policy {"
        " default_timeout_microseconds: 30000000 allow_timeout_override: true } }\n",
    )
    gate.write(
        repository,
        "held_ranked",
        "max_batch_size: 1\ndynamic_batching { priority_levels: 2 default_priority_level: 2 }\n",
    )
    return repository


MANY_NETWORKS = """max_batch_size: 8
input { name: "X" data_type: TYPE_FP32 dims: 16 }
output { name: "Y" data_type: TYPE_FP32 dims: 16 }
instance_group { count: 2 kind: KIND_CPU }
dynamic_batching { preferred_batch_size: [ 4, 8 ] max_queue_delay_microseconds: 100 }
"""
MANY_PICTURES = """backend: "image"
max_batch_size: 8
input { name: "P" data_type: TYPE_STRING dims: 1 }
output { name: "O" data_type: TYPE_FP32 dims: [ 3, 224, 224 ] }
parameters { key: "RESIZE" value { string_value: "crop" } }
"""


def write_many(folder, count):
    """Many models for a check: half of them are networks, half are of the backend for pictures. `network1` has a mistake, so
    that a command that looks at nothing finds too little."""
    copy = graph("copy (float[N, 16] X) => (float[N, 16] Y) { Y = Identity(X) }")
    for number in range(count):
        if number % 2:
            write(folder, f"network{number}", copy, MANY_NETWORKS)
        else:
            (folder / f"picture{number}" / "1").mkdir(parents=True)
            (folder / f"picture{number}" / "config.pbtxt").write_text(MANY_PICTURES)
    write(folder, "network1", copy, MANY_NETWORKS.replace('"Y" data_type: TYPE_FP32', '"Y" data_type: TYPE_INT8'))
