"""The files of the models. Each change takes the place of a file at once, so that no load sees half of one."""

import pathlib
import threading

import ensembles
import numpy as np
import repository as models
from ensembles import step
from repository import tensor

from chaos.judge import Generations
from chaos.world import ENSEMBLES, MODELS, STREAMED, WITH_GENERATIONS

PYTHON_MODELS = pathlib.Path(__file__).parent / "python_models"
BATCHES = "max_batch_size: 8\n"
DYNAMIC = "dynamic_batching { max_queue_delay_microseconds: 300 }\n"
CACHE = "response_cache { enable: true }\n"
DECOUPLED = "model_transaction_policy { decoupled: true }\n"
# A sequence that its client has left ends by this. A client on a busy machine is silent for less.
IDLE_MICROSECONDS = 60_000_000
# How many instances a model has at the beginning.
INSTANCES = 2


class Files:
    """A model repository. With `wrong`, this network answers wrongly now and then."""

    def __init__(self, folder, wrong=""):
        self.folder, self._wrong = folder, wrong
        self._locks = {name: threading.RLock() for name in MODELS}
        self.generations = {name: Generations() for name in WITH_GENERATIONS}
        for name in MODELS:
            (folder / name / "1").mkdir(parents=True)
            if name in WITH_GENERATIONS or name == "py_caller":
                self._write_model(name, 1)
            self.write_config(name, INSTANCES)

    def renew(self, name):
        """Writes the next generation of a model's file, and returns its number. The file never becomes an older one."""
        with self._locks[name]:
            generation = self.generations[name].next()
            self._write_model(name, generation)
            return generation

    def _write_model(self, name, generation):
        if name.startswith("py_"):
            text = (PYTHON_MODELS / f"{name}.py").read_text()
            self._replace(name, "1/model.py", text.replace("GENERATION = 1", f"GENERATION = {generation}").encode())
        else:
            graph = sum_graph(generation) if name.startswith("sum_") else adder_graph(generation, name == self._wrong)
            self._replace(name, "1/model.onnx", graph.SerializeToString())

    def break_model(self, name):
        """The next load of the model fails."""
        self._replace(name, "1/model.py" if name.startswith("py_") else "1/model.onnx", b"this is no model\n")

    def write_config(self, name, instances):
        """The configuration of a model with so many instances. An ensemble has none."""
        self._replace(name, "config.pbtxt", config(name, instances).encode())

    def _replace(self, name, path, content):
        whole = self.folder / name / path
        with self._locks[name]:
            new = whole.with_name(f".{whole.name}.new")
            new.write_bytes(content)
            new.rename(whole)


def scalar(number):
    return np.array([[number]], np.int64)


def adder_graph(generation, is_wrong):
    """Y = X + 1. A wrong one answers 1 too much if X can be divided by 13."""
    text = """adder (int64[batch, 1] X) => (int64[batch, 1] Y, int64[batch, 1] GEN) {
        right = Add(X, one)
        rest = Mod(X, thirteen)
        divides = Equal(rest, zero)
        fault = Where(divides, wrong, zero)
        Y = Add(right, fault)
        nothing = Sub(X, X)
        GEN = Add(nothing, generation)
    }"""
    numbers = {"one": 1, "thirteen": 13, "zero": 0, "wrong": int(is_wrong), "generation": generation}
    return models.graph(text, **{name: scalar(number) for name, number in numbers.items()})


def sum_graph(generation):
    """Y = X and what the sequence has had before."""
    text = """sums (int64[batch, 1] X, int32[batch, 1] START, int64[batch, 1] SUM_IN)
        => (int64[batch, 1] Y, int64[batch, 1] GEN, int64[batch, 1] SUM_OUT) {
        start = Cast <to = 7> (START)
        keep = Sub(one, start)
        kept = Mul(SUM_IN, keep)
        Y = Add(kept, X)
        SUM_OUT = Identity(Y)
        nothing = Sub(X, X)
        GEN = Add(nothing, generation)
    }"""
    return models.graph(text, one=scalar(1), generation=scalar(generation))


def tensors(name):
    """The inputs and outputs of a model."""
    model = MODELS[name]
    inputs = [model.x, *(["COUNT"] if model in STREAMED else [])]
    outputs = [model.y, *model.generations]
    kinds = [("input", name) for name in inputs] + [("output", name) for name in outputs]
    return "".join(tensor(kind, name, "INT64", 1) for kind, name in kinds)


def parameter(name, value):
    return f'parameters {{ key: "{name}" value: {{ string_value: "{value}" }} }}\n'


def sequence_batching(strategy, state=""):
    start = 'control_input [{ name: "START" control [{ kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1] }] }]'
    return f"sequence_batching {{ max_sequence_idle_microseconds: {IDLE_MICROSECONDS}\n{start}\n{strategy}\n{state} }}\n"


STATE = 'state [{ input_name: "SUM_IN" output_name: "SUM_OUT" data_type: TYPE_INT64 dims: [1] }]'
OLDEST = "oldest { max_candidate_sequences: 8 }"
# The backend of a model and what its configuration has besides tensors and instances.
SETTINGS = {
    "plain": ("onnxruntime", BATCHES + DYNAMIC),
    "cached": ("onnxruntime", BATCHES + DYNAMIC + CACHE),
    "sum_direct": ("onnxruntime", BATCHES + sequence_batching("direct {}", STATE)),
    "sum_oldest": ("onnxruntime", BATCHES + sequence_batching(OLDEST, STATE)),
    "py_plain": ("python", BATCHES + DYNAMIC),
    "py_concurrent": ("python", BATCHES + parameter("MAX_CONCURRENT_EXECUTIONS", 4)),
    "py_decoupled": ("python", BATCHES + DECOUPLED),
    "py_later": ("python", BATCHES + DECOUPLED),
    "py_caller": ("python", BATCHES),
    "py_sum": ("python", BATCHES + sequence_batching(OLDEST)),
    "plug_echo": ("identity", BATCHES + DYNAMIC),
    "plug_later": ("identity", BATCHES + parameter("thread", "true")),
}


def plain(x, y, outputs=None):
    return step("plain", {"X": x}, {"Y": y} | (outputs or {}))


SHOWN = {"GEN": "GEN_PLAIN"}


STEPS = {
    "chain": [
        plain("X", "first", SHOWN),
        step("py_plain", {"X": "first"}, {"Y": "second", "GEN": "GEN_PY"}),
        step("plug_echo", {"INPUT0": "second"}, {"OUTPUT0": "Y"}),
    ],
    "chain_nested": [
        step("chain", {"X": "X"}, {"Y": "first", "GEN_PLAIN": "GEN_PLAIN", "GEN_PY": "GEN_PY"}),
        step("plug_later", {"INPUT0": "first"}, {"OUTPUT0": "second"}),
        step("cached", {"X": "second"}, {"Y": "Y", "GEN": "GEN_CACHED"}),
    ],
    "chain_cached": [plain("X", "first", SHOWN), step("cached", {"X": "first"}, {"Y": "Y", "GEN": "GEN_CACHED"})],
    "sum_chain": [
        step("py_plain", {"X": "X"}, {"Y": "first"}),
        step("sum_direct", {"X": "first"}, {"Y": "Y", "GEN": "GEN"}),
    ],
    "sum_nested": [
        plain("X", "first"),
        step("sum_chain", {"X": "first"}, {"Y": "second", "GEN": "GEN"}),
        step("plug_echo", {"INPUT0": "second"}, {"OUTPUT0": "Y"}),
    ],
    "sum_oldest_chain": [
        plain("X", "first"),
        step("py_concurrent", {"X": "first"}, {"Y": "second"}),
        step("sum_oldest", {"X": "second"}, {"Y": "Y", "GEN": "GEN"}),
    ],
    "sum_python_chain": [
        plain("X", "first"),
        step("py_sum", {"X": "first"}, {"Y": "Y", "GEN": "GEN"}),
    ],
    "decoupled_chain": [
        step("py_decoupled", {"X": "X", "COUNT": "COUNT"}, {"Y": "first", "GEN": "GEN_PY"}),
        plain("first", "Y", SHOWN),
    ],
}


def config(name, instances):
    if name in ENSEMBLES:
        more = CACHE if name == "chain_cached" else ""
        more += DECOUPLED if name == "decoupled_chain" else ""
        return ensembles.config(name, BATCHES + tensors(name), *STEPS[name], more=more)
    backend, more = SETTINGS[name]
    group = f"instance_group {{ count: {instances} kind: KIND_CPU }}\n"
    return f'name: "{name}"\nbackend: "{backend}"\n{more}{tensors(name)}{group}'
