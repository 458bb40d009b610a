"""Writes ensembles, their members, and a repository with those that most tests share.

The members are networks, which compute something, and test plug-ins of the C interface, which hold, fail, repeat, remember
or leave something out. All tensors are FP32 if nothing else is said, and batches have at most 8 rows.

| member | does |
|---|---|
| scale, shift | Y = tanh(1.7 X), Y = X + 0.1, four numbers |
| combine | SUM = A + B, PRODUCT = A * B |
| flat | Y = softmax(X), four numbers, no batches |
| double, negate, add | of one INT32, no batches |
| spread | Y = X times the number X |
| echo | OUTPUT0 = INPUT0, texts |
| halves | OUTPUT0 = INPUT0 and OUTPUT1 = INPUT1, no batches; INPUT0 may be left out, and then OUTPUT0 is |
| costly, costlier | OUTPUT0 = INPUT0, which may be left out; no batches |
| after | OUTPUT0 = INPUT0 |
| repeat | decoupled: a response for each number of IN, which is OUT, and its place IDX |
| endless | the same, and does not end before it is cancelled |
| sum | OUTPUT = the sum of the sequence's INPUT, INT32; SEEN = what the model was told about the sequence |
| faulty | OUTPUT = INPUT, and fails if the request's parameter `fail_at` says so |
| held, held_bounded, held_impatient, held_ranked | see `repository.py` |
| versions, classifier | see `repository.py` |
| image_preprocess_model, classification_model, segmentation_model | as in Triton's documentation of ensembles |
"""

import queue

import numpy as np
import repository as models
from held import build_backend
from protocols import GRPC
from repository import tensor
from serving import PATIENCE

# Libraries that the members need.
PLUGINS = ("identity", "repeat", "stateful", "failing")

NO_BATCHES = "max_batch_size: 0\n"
BATCHES = "max_batch_size: 8\n"
ONE_INSTANCE = "instance_group { count: 1 kind: KIND_CPU }\n"


def build_backends(folder):
    """Compiles the plug-ins. Returns the backend directory."""
    for name in PLUGINS:
        build_backend(folder, name)
    return folder


# ---- Configurations ----


def step(model, inputs, outputs, version=-1, more=""):
    """A step of an ensemble; the maps lead from the model's names to the ensemble's. Without a version it is version 0."""
    maps = "".join(
        f'    {kind} {{ key: "{key}" value: "{value}" }}\n'
        for kind, entries in (("input_map", inputs), ("output_map", outputs))
        for key, value in entries.items()
    )
    number = "" if version is None else f"    model_version: {version}\n"
    return f'  step {{\n    model_name: "{model}"\n{number}{maps}{more}  }}\n'


def config(name, tensors, *steps, more="", scheduling=""):
    return f'name: "{name}"\nplatform: "ensemble"\n{tensors}{more}ensemble_scheduling {{\n{scheduling}{"".join(steps)}}}\n'


def write(repository, name, tensors, *steps, **more):
    """Adds or replaces an ensemble; `tensors` is the part of its configuration with its inputs and outputs."""
    (repository / name / "1").mkdir(parents=True, exist_ok=True)
    (repository / name / "config.pbtxt").write_text(config(name, tensors, *steps, **more))


def write_plugin_model(repository, name, plugin, config):
    """Adds a model of a test plug-in, with one instance."""
    (repository / name / "1").mkdir(parents=True)
    text = f'name: "{name}"\nbackend: "{plugin}"\n{ONE_INSTANCE}{config}'
    (repository / name / "config.pbtxt").write_text(text)


def network(repository, name, graph, tensors, **weights):
    models.write(repository, name, models.graph(f"{name} {graph}", **weights), ONE_INSTANCE + tensors)


# ---- Members ----


def write_networks(repository):
    x, y = tensor("input", "X", "FP32", 4), tensor("output", "Y", "FP32", 4)
    row, rows = "(float[4] X) => (float[4] Y)", "(float[batch, 4] X) => (float[batch, 4] Y)"
    scale = np.full(4, 1.7, np.float32)
    network(repository, "scale", f"{rows} {{ large = Mul(X, scale) Y = Tanh(large) }}", BATCHES + x + y, scale=scale)
    network(repository, "shift", f"{rows} {{ Y = Add(X, shift) }}", BATCHES + x + y, shift=np.full(4, 0.1, np.float32))
    network(repository, "flat", f"{row} {{ Y = Softmax(X) }}", NO_BATCHES + x + y)
    network(
        repository,
        "combine",
        "(float[batch, 4] A, float[batch, 4] B) => (float[batch, 4] SUM, float[batch, 4] PRODUCT)"
        "{ SUM = Add(A, B) PRODUCT = Mul(A, B) }",
        BATCHES
        + tensor("input", "A", "FP32", 4)
        + tensor("input", "B", "FP32", 4)
        + tensor("output", "SUM", "FP32", 4)
        + tensor("output", "PRODUCT", "FP32", 4),
    )


def write_integers(repository):
    x, y = tensor("input", "X", "INT32", 1), tensor("output", "Y", "INT32", 1)
    one = "(int32[1] X) => (int32[1] Y)"
    network(repository, "double", f"{one} {{ Y = Add(X, X) }}", NO_BATCHES + x + y)
    # Instances beside each other end in any order.
    beside = "instance_group { count: 3 }\n"
    network(repository, "double_beside", f"{one} {{ Y = Add(X, X) }}", NO_BATCHES + x + y + beside)
    network(repository, "negate", f"{one} {{ Y = Neg(X) }}", NO_BATCHES + x + y)
    network(
        repository,
        "add",
        "(int32[1] A, int32[1] B) => (int32[1] Y) { Y = Add(A, B) }",
        NO_BATCHES + tensor("input", "A", "INT32", 1) + tensor("input", "B", "INT32", 1) + y,
    )
    network(
        repository,
        "spread",
        "(int32[1] X) => (int32[copies] Y) { copies = Cast <to = 7> (X) Y = Expand(X, copies) }",
        NO_BATCHES + x + tensor("output", "Y", "INT32", -1),
    )


def write_plugin_models(repository):
    def pair(number, more=""):
        return tensor("input", f"INPUT{number}", "FP32", 1, more=more) + tensor("output", f"OUTPUT{number}", "FP32", 1)

    def plain(kind, datatype, *dims):
        return tensor(kind, kind.upper(), datatype, *dims)

    optional = pair(0, "optional: true")
    texts = tensor("input", "INPUT0", "BYTES", -1) + tensor("output", "OUTPUT0", "BYTES", -1)
    write_plugin_model(repository, "echo", "identity", NO_BATCHES + texts)
    write_plugin_model(repository, "halves", "identity", NO_BATCHES + optional + pair(1))
    write_plugin_model(repository, "costly", "identity", NO_BATCHES + optional)
    write_plugin_model(repository, "costlier", "identity", NO_BATCHES + optional)
    write_plugin_model(repository, "after", "identity", BATCHES + pair(0))
    repeat = (
        f"{NO_BATCHES}model_transaction_policy {{ decoupled: true }}\n"
        + tensor("input", "IN", "INT32", -1)
        + tensor("output", "OUT", "INT32", 1)
        + tensor("output", "IDX", "UINT32", 1)
    )
    write_plugin_model(repository, "repeat", "repeat", repeat)
    endless = 'parameters { key: "until_cancelled" value: { string_value: "true" } }\n'
    write_plugin_model(repository, "endless", "repeat", repeat + endless)
    control = "control_input [{{ name: '{0}' control [{{ kind: CONTROL_SEQUENCE_{0} int32_false_true: [0, 1] }}] }}]\n"
    zero = "initial_state: { data_type: TYPE_INT32 dims: [1] zero_data: true name: 'zero' }"
    state = f"state [{{ input_name: 'sum_in' output_name: 'sum_out' data_type: TYPE_INT32 dims: [1] {zero} }}]\n"
    write_plugin_model(
        repository,
        "sum",
        "stateful",
        f"{NO_BATCHES}sequence_batching {{ max_sequence_idle_microseconds: 60000000 oldest {{ max_candidate_sequences: 16 }}\n"
        f"{control.format('START')}{control.format('END')}{state} }}\n"
        + plain("input", "INT32", 1)
        + plain("output", "INT32", 1)
        + tensor("output", "SEEN", "BYTES", 1),
    )
    write_plugin_model(repository, "faulty", "failing", NO_BATCHES + plain("input", "FP32", 1) + plain("output", "FP32", 1))


def write_held(repository, gate):
    queue_policy = "dynamic_batching {{ default_queue_policy {{ {} }} }}\n".format
    impatient = queue_policy("default_timeout_microseconds: 30000000 allow_timeout_override: true")
    gate.write(repository, "held", f"{BATCHES}dynamic_batching {{}}\n")
    gate.write(repository, "held_bounded", "max_batch_size: 1\n" + queue_policy("max_queue_size: 2"))
    gate.write(repository, "held_impatient", f"max_batch_size: 1\n{impatient}")
    ranks = "dynamic_batching { priority_levels: 2 default_priority_level: 2 }\n"
    gate.write(repository, "held_ranked", f"max_batch_size: 1\n{ranks}")


def write_documented(repository):
    """The members of the documentation's ensemble: a text becomes an image, the image classes and a segmentation."""
    random = np.random.default_rng(11)
    image = "3, 224, 224"
    network(
        repository,
        "image_preprocess_model",
        f"(string[batch, 1] RAW_IMAGE) => (float[batch, {image}] PREPROCESSED_OUTPUT)"
        "{"
        "    number = Cast <to = 1> (RAW_IMAGE)"
        "    pixels = MatMul(number, pattern)"
        "    PREPROCESSED_OUTPUT = Reshape(pixels, shape)"
        "}",
        "max_batch_size: 1\n"
        + tensor("input", "RAW_IMAGE", "BYTES", 1)
        + tensor("output", "PREPROCESSED_OUTPUT", "FP32", 3, 224, 224),
        pattern=random.normal(size=(1, 3 * 224 * 224)).astype(np.float32),
        shape=np.array([-1, 3, 224, 224], np.int64),
    )
    formatted = "max_batch_size: 1\n" + tensor("input", "FORMATTED_IMAGE", "FP32", 3, 224, 224)
    network(
        repository,
        "classification_model",
        f"(float[batch, {image}] FORMATTED_IMAGE) => (float[batch, 1000] CLASSIFICATION_OUTPUT)"
        "{"
        "    means = GlobalAveragePool(FORMATTED_IMAGE)"
        "    flat = Flatten(means)"
        "    CLASSIFICATION_OUTPUT = MatMul(flat, classes)"
        "}",
        formatted + tensor("output", "CLASSIFICATION_OUTPUT", "FP32", 1000),
        classes=random.normal(size=(3, 1000)).astype(np.float32),
    )
    network(
        repository,
        "segmentation_model",
        f"(float[batch, {image}] FORMATTED_IMAGE) => (float[batch, {image}] SEGMENTATION_OUTPUT)"
        "{ SEGMENTATION_OUTPUT = Conv(FORMATTED_IMAGE, mixture) }",
        formatted + tensor("output", "SEGMENTATION_OUTPUT", "FP32", 3, 224, 224),
        mixture=random.normal(size=(3, 3, 1, 1)).astype(np.float32),
    )


# ---- Ensembles ----


def write_documented_ensemble(repository):
    tensors = tensor("input", "IMAGE", "BYTES", 1)
    tensors += tensor("output", "CLASSIFICATION", "FP32", 1000) + tensor("output", "SEGMENTATION", "FP32", 3, 224, 224)
    write(
        repository,
        "ensemble_model",
        "max_batch_size: 1\n" + tensors,
        step("image_preprocess_model", {"RAW_IMAGE": "IMAGE"}, {"PREPROCESSED_OUTPUT": "preprocessed_image"}),
        step("classification_model", {"FORMATTED_IMAGE": "preprocessed_image"}, {"CLASSIFICATION_OUTPUT": "CLASSIFICATION"}),
        step("segmentation_model", {"FORMATTED_IMAGE": "preprocessed_image"}, {"SEGMENTATION_OUTPUT": "SEGMENTATION"}),
    )


def write_flows(repository):
    """Ensembles of networks: tensors and shapes."""
    fours = tensor("input", "INPUT", "FP32", 4) + tensor("output", "OUTPUT", "FP32", 4)
    chain = (
        step("scale", {"X": "INPUT"}, {"Y": "scaled"}),
        step("shift", {"X": "scaled"}, {"Y": "shifted"}),
        step("scale", {"X": "shifted"}, {"Y": "OUTPUT"}),
    )
    write(repository, "chain", BATCHES + fours, *chain)
    # Steps need not be in the order of their execution.
    write(repository, "backward_chain", BATCHES + fours, *reversed(chain))
    results = tensor("output", "SUM", "FP32", 4) + tensor("output", "PRODUCT", "FP32", 4)
    four = tensor("input", "INPUT", "FP32", 4)
    write(
        repository,
        "diamond",
        BATCHES + four + results,
        step("scale", {"X": "INPUT"}, {"Y": "left"}),
        step("shift", {"X": "INPUT"}, {"Y": "right"}),
        step("combine", {"A": "left", "B": "right"}, {"SUM": "SUM", "PRODUCT": "PRODUCT"}),
    )
    write(
        repository,
        "nested",
        BATCHES + four + tensor("output", "MIDDLE", "FP32", 4) + results,
        step("chain", {"INPUT": "INPUT"}, {"OUTPUT": "MIDDLE"}),
        step("diamond", {"INPUT": "MIDDLE"}, {"SUM": "SUM", "PRODUCT": "PRODUCT"}),
    )
    write(
        repository,
        "latest_first",
        BATCHES + four + tensor("output", "LATE", "FP32", 4) + tensor("output", "EARLY", "FP32", 4),
        step("scale", {"X": "INPUT"}, {"Y": "EARLY"}),
        step("shift", {"X": "EARLY"}, {"Y": "LATE"}),
    )
    # One tensor for two inputs of one step; an output that nobody takes.
    square = step("combine", {"A": "INPUT", "B": "INPUT"}, {"PRODUCT": "OUTPUT"})
    write(repository, "square", BATCHES + fours, square)
    flat_inside = (
        step("scale", {"X": "INPUT"}, {"Y": "scaled"}),
        step("flat", {"X": "scaled"}, {"Y": "flattened"}),
        step("shift", {"X": "flattened"}, {"Y": "OUTPUT"}),
    )
    write(repository, "flat_inside", BATCHES + fours, *flat_inside)
    write(repository, "flat_outside", NO_BATCHES + fours, *flat_inside)
    one = tensor("input", "INPUT", "FP32", 1)
    outputs = "".join(tensor("output", name, "FP32", 1) for name in ("FIRST", "THIRD", "LATEST"))
    write(
        repository,
        "two_versions",
        "max_batch_size: 4\n" + one + outputs,
        step("versions", {"X": "INPUT"}, {"Y": "FIRST"}, 1),
        step("versions", {"X": "INPUT"}, {"Y": "THIRD"}, 3),
        step("versions", {"X": "INPUT"}, {"Y": "LATEST"}),
    )
    classes = tensor("output", "CLASSES", "FP32", 3)
    write(
        repository,
        "labelled",
        BATCHES + tensor("input", "INPUT", "FP32", 4) + classes,
        step("shift", {"X": "INPUT"}, {"Y": "shifted"}),
        step("classifier", {"FEATURES": "shifted"}, {"PROBABILITIES": "CLASSES"}),
    )
    texts = tensor("input", "INPUT", "BYTES", -1) + tensor("output", "OUTPUT", "BYTES", -1)
    write(
        repository,
        "texts",
        NO_BATCHES + texts,
        step("echo", {"INPUT0": "INPUT"}, {"OUTPUT0": "middle"}),
        step("echo", {"INPUT0": "middle"}, {"OUTPUT0": "OUTPUT"}),
    )


def write_optional(repository):
    """Ensembles with inputs and outputs that may be absent."""
    inputs = tensor("input", "MAYBE", "FP32", 1, more="optional: true") + tensor("input", "ALWAYS", "FP32", 1)
    outputs = tensor("output", "MAYBE_OUT", "FP32", 1) + tensor("output", "ALWAYS_OUT", "FP32", 1)
    write(
        repository,
        "optional",
        NO_BATCHES + inputs + outputs,
        step("halves", {"INPUT0": "MAYBE", "INPUT1": "ALWAYS"}, {"OUTPUT0": "maybe", "OUTPUT1": "always"}),
        step("halves", {"INPUT0": "maybe", "INPUT1": "always"}, {"OUTPUT0": "MAYBE_OUT", "OUTPUT1": "ALWAYS_OUT"}),
    )
    # The optional input of the member is not connected, so it never has the output.
    write(
        repository,
        "unconnected",
        NO_BATCHES + tensor("input", "ALWAYS", "FP32", 1) + outputs,
        step("costly", {"INPUT0": "ALWAYS"}, {"OUTPUT0": "always"}),
        step("halves", {"INPUT1": "always"}, {"OUTPUT0": "MAYBE_OUT", "OUTPUT1": "ALWAYS_OUT"}),
    )
    costs = tensor("output", "COSTLY", "FP32", 1) + tensor("output", "COSTLIER", "FP32", 1)
    write(
        repository,
        "conditional",
        NO_BATCHES + inputs + tensor("output", "ALWAYS_OUT", "FP32", 1) + costs,
        step("halves", {"INPUT0": "MAYBE", "INPUT1": "ALWAYS"}, {"OUTPUT0": "found", "OUTPUT1": "ALWAYS_OUT"}),
        step("costly", {"INPUT0": "found"}, {"OUTPUT0": "COSTLY"}),
        step("costlier", {"INPUT0": "COSTLY"}, {"OUTPUT0": "COSTLIER"}),
    )


def write_streams(repository):
    """Ensembles with decoupled members, and with a sequence."""
    numbers, out = tensor("input", "IN", "INT32", -1), tensor("output", "OUT", "INT32", 1)
    place = tensor("output", "IDX", "UINT32", 1)
    repeat = step("repeat", {"IN": "IN"}, {"OUT": "number", "IDX": "IDX"})
    double = step("double", {"X": "number"}, {"Y": "OUT"})
    write(repository, "repeated", NO_BATCHES + numbers + out + place, repeat, double)
    write(
        repository,
        "repeated_join",
        NO_BATCHES + numbers + out,
        step("repeat", {"IN": "IN"}, {"OUT": "number"}),
        step("double", {"X": "number"}, {"Y": "doubled"}),
        step("negate", {"X": "number"}, {"Y": "negated"}),
        step("add", {"A": "doubled", "B": "negated"}, {"Y": "OUT"}),
    )
    # Each number as often as it says.
    write(
        repository,
        "repeated_square",
        NO_BATCHES + numbers + out,
        step("repeat", {"IN": "IN"}, {"OUT": "number"}),
        step("spread", {"X": "number"}, {"Y": "copies"}),
        step("repeat", {"IN": "copies"}, {"OUT": "OUT"}),
    )
    write(
        repository,
        "repeated_nested",
        NO_BATCHES + numbers + out + place,
        step("repeated", {"IN": "IN"}, {"OUT": "doubled", "IDX": "IDX"}),
        step("double", {"X": "doubled"}, {"Y": "OUT"}),
    )
    sums = tensor("input", "INPUT", "INT32", 1) + tensor("output", "DOUBLED", "INT32", 1) + tensor("output", "SEEN", "BYTES", 1)
    write(
        repository,
        "doubled_sum",
        NO_BATCHES + sums,
        step("sum", {"INPUT": "INPUT"}, {"OUTPUT": "sum", "SEEN": "SEEN"}),
        step("double", {"X": "sum"}, {"Y": "DOUBLED"}),
    )
    sums = tensor("input", "INPUT", "INT32", 1) + tensor("output", "SUM", "INT32", 1)
    write(
        repository,
        "sum_of_doubles",
        NO_BATCHES + sums,
        step("double_beside", {"X": "INPUT"}, {"Y": "double"}),
        step("sum", {"INPUT": "double"}, {"OUTPUT": "SUM"}),
    )


def write_troubled(repository):
    """Ensembles whose members fail, and whose members wait for a test."""
    one = tensor("input", "INPUT", "FP32", 1) + tensor("output", "OUTPUT", "FP32", 1)
    write(
        repository,
        "may_fail",
        NO_BATCHES + one,
        step("faulty", {"INPUT": "INPUT"}, {"OUTPUT": "middle"}),
        step("costly", {"INPUT0": "middle"}, {"OUTPUT0": "OUTPUT"}),
    )
    write(repository, "may_fail_inside", NO_BATCHES + one, step("may_fail", {"INPUT": "INPUT"}, {"OUTPUT": "OUTPUT"}))
    # Two branches that fail at the same time.
    outputs = tensor("output", "FIRST", "FP32", 1) + tensor("output", "SECOND", "FP32", 1)
    write(
        repository,
        "may_fail_twice",
        NO_BATCHES + tensor("input", "INPUT", "FP32", 1) + outputs,
        step("faulty", {"INPUT": "INPUT"}, {"OUTPUT": "FIRST"}),
        step("faulty", {"INPUT": "INPUT"}, {"OUTPUT": "SECOND"}),
    )
    # It ends when the client goes away.
    endless = step("endless", {"IN": "IN"}, {"OUT": "number"}), step("double", {"X": "number"}, {"Y": "OUT"})
    write(
        repository,
        "endless_inside",
        NO_BATCHES + tensor("input", "IN", "INT32", -1) + tensor("output", "OUT", "INT32", 1),
        *endless,
    )
    held = tensor("input", "INPUT0", "FP32", 1) + tensor("input", "HOLD", "INT64", 1) + tensor("output", "OUTPUT0", "FP32", 1)
    for member, batches in {"held": 8, "held_bounded": 1, "held_impatient": 1, "held_ranked": 1}.items():
        write(
            repository,
            f"{member}_inside",
            f"max_batch_size: {batches}\n{held}",
            step(member, {"INPUT0": "INPUT0", "HOLD": "HOLD"}, {"OUTPUT0": "passed"}),
            step("after", {"INPUT0": "passed"}, {"OUTPUT0": "OUTPUT0"}),
        )


def write_all(repository, gate):
    """Writes all of the members and ensembles; `gate` holds the held models."""
    write_networks(repository)
    write_integers(repository)
    write_plugin_models(repository)
    write_held(repository, gate)
    write_documented(repository)
    models.versions(repository)
    models.classifier(repository)
    write_documented_ensemble(repository)
    write_flows(repository)
    write_optional(repository)
    write_streams(repository)
    write_troubled(repository)
    return repository


# ---- What clients ask ----


def ask(protocol, client, model, arrays, outputs=None, **options):
    """A model's result for named arrays; with all outputs, or with those that are named."""
    inputs = [protocol.input(name, array) for name, array in arrays.items()]
    outputs = outputs and [protocol.output(name) for name in outputs]
    return client.infer(model, inputs, outputs=outputs, **options)


def outputs_of(result):
    """The arrays of a result by name."""
    response = result.get_response()
    named = response["outputs"] if isinstance(response, dict) else response.outputs
    names = [output["name"] if isinstance(output, dict) else output.name for output in named]
    return {name: result.as_numpy(name) for name in names}


def infer(protocol, client, model, arrays, outputs=None, **options):
    """The arrays that a model answers with, by name."""
    return outputs_of(ask(protocol, client, model, arrays, outputs, **options))


def parameters_of(result):
    """The parameters of a response."""
    response = result.get_response()
    if isinstance(response, dict):
        return response.get("parameters", {})
    return {key: getattr(value, value.WhichOneof("parameter_choice")) for key, value in response.parameters.items()}


def executions(protocol, client, *names):
    """How often each of these models has been executed, all versions together."""

    def count(name):
        found = protocol.json(client.get_inference_statistics, name)["model_stats"]
        return sum(version.get("execution_count", 0) for version in found)

    return [count(name) for name in names]


class Executed:
    """A context that tells how often each of some models has been executed in it."""

    def __init__(self, protocol, client, *names):
        self._count = lambda: executions(protocol, client, *names)

    def __enter__(self):
        self._before = self._count()
        return self

    def times(self):
        return [after - before for before, after in zip(self._before, self._count(), strict=True)]

    def __exit__(self, *_):
        pass


class Stream:
    """A stream of a client of gRPC, whose answers can be waited for."""

    def __init__(self, client):
        self.client, self.answers = client, queue.Queue()
        client.start_stream(lambda result, error: self.answers.put((result, error)))

    def send(self, model, arrays, **options):
        inputs = [GRPC.input(name, array) for name, array in arrays.items()]
        self.client.async_stream_infer(model, inputs, enable_empty_final_response=True, **options)

    def next(self):
        """The next result. An error is raised."""
        result, error = self.answers.get(timeout=PATIENCE)
        if error is not None:
            raise error
        return result

    def all(self):
        """The arrays of each response to one request. The last, without any, is left out."""
        results = [self.next()]
        while not parameters_of(results[-1])["triton_final_response"]:
            results.append(self.next())
        responses = [outputs_of(result) for result in results]
        assert all(responses[:-1]), "only the last response may be empty"
        return responses if responses[-1] else responses[:-1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.stop_stream(cancel_requests=True)
