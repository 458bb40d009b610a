"""The rules of inputs and outputs hold for the models of every backend alike.

Each model gives its inputs back as it sees them, so that an answer shows which shape the model saw, and which one a client
sees of what the model gave.
"""

from dataclasses import dataclass

import ensembles
import numpy as np
import plugins
import pytest
import python_backends
import repository as models
from held import build_backend
from serving import Server
from tritonclient.utils import InferenceServerException


@dataclass(frozen=True)
class Case:
    """The dims and the reshape of inputs and of outputs; what is sent, and the shape of the answer."""

    max_batch: int
    inputs: tuple
    outputs: tuple
    sent: tuple
    received: tuple

    @property
    def seen(self):
        """The dims that the model sees, and gives."""
        dims, reshape = self.inputs
        return dims if reshape is None else reshape

    def config(self, name=None):
        """With the name, the configuration of a member that sees the same without a reshape."""
        ends = {"input": self.inputs, "output": self.outputs}
        if name:
            ends = dict.fromkeys(ends, (self.seen, None))
        tensors = [
            models.tensor(kind, f"{kind.upper()}{number}", "FP32", *dims, more=reshaped(reshape))
            for kind, (dims, reshape) in ends.items()
            for number in (0, 1)
        ]
        return f"max_batch_size: {self.max_batch}\n{''.join(tensors)}"


def reshaped(shape):
    return "" if shape is None else f"reshape {{ shape: {list(shape)} }}"


CASES = {
    "plain": Case(0, ((2, 3), None), ((2, 3), None), (2, 3), (2, 3)),
    "batched": Case(4, ((2, 3), None), ((2, 3), None), (2, 2, 3), (2, 2, 3)),
    "empty": Case(4, ((-1,), None), ((-1,), None), (2, 0), (2, 0)),
    "reshaped": Case(0, ((2, 3), (3, 2)), ((2, 3), (3, 2)), (2, 3), (2, 3)),
    "rows": Case(4, ((2, 3), (3, 2)), ((2, 3), (3, 2)), (2, 2, 3), (2, 2, 3)),
    "input": Case(4, ((2, 3), (6,)), ((6,), None), (2, 2, 3), (2, 6)),
    "output": Case(4, ((6,), None), ((2, 3), (6,)), (2, 6), (2, 2, 3)),
    "scalars": Case(4, ((1,), ()), ((1,), ()), (3, 1), (3, 1)),
    "open_input": Case(4, ((-1, 1, -1), (-1, -1)), ((-1, -1), None), (2, 5, 1, 7), (2, 5, 7)),
    "open_output": Case(4, ((-1, -1), None), ((-1, 1, -1), (-1, -1)), (2, 5, 7), (2, 5, 1, 7)),
}
ECHO = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([self.output(tensor) for tensor in request.inputs()]) for request in requests]

    def output(self, tensor):
        return pb_utils.Tensor(tensor.name().replace("IN", "OUT"), tensor.as_numpy())
"""


def write_onnx(folder, name, case, config):
    sizes = [f"d{place}" if size == -1 else str(size) for place, size in enumerate(case.seen)]
    dims = ", ".join((["rows"] if case.max_batch else []) + sizes)
    tensors = [", ".join(f"float[{dims}] {kind}{number}" for number in (0, 1)) for kind in ("INPUT", "OUTPUT")]
    nodes = "OUTPUT0 = Identity(INPUT0) OUTPUT1 = Identity(INPUT1)"
    models.write(folder, name, models.graph(f"echo ({tensors[0]}) => ({tensors[1]}) {{ {nodes} }}"), config)


def write_python(folder, name, case, config):
    plugins.python_model(folder, name, text=ECHO, config=config)


def write_plugin(folder, name, case, config):
    ensembles.write_plugin_model(folder, name, "identity", config)


def write_ensemble(folder, name, case, config):
    member, inner = f"{name}_member", case.config(name)
    if not case.seen:
        # The member has a dimension, which it does not see: a model without dims would be completed.
        config, inner = Case(case.max_batch, ((1,), None), ((1,), None), (), ()).config(), config
    write_onnx(folder, member, case, inner)
    maps = [{f"{kind}{number}": f"{kind}{number}" for number in (0, 1)} for kind in ("INPUT", "OUTPUT")]
    ensembles.write(folder, name, config, ensembles.step(member, *maps))


KINDS = {"onnx": write_onnx, "python": write_python, "plugin": write_plugin, "ensemble": write_ensemble, "triton": write_python}


@pytest.fixture(scope="module", params=[*list(KINDS)[:-1], pytest.param("triton", marks=plugins.needed)])
def kind(request):
    """A kind of models. `triton` are those in Python that Triton's backend runs."""
    return request.param


@pytest.fixture(scope="module")
def server(tmp_path_factory, kind):
    folder = tmp_path_factory.mktemp("models")
    for name, case in CASES.items():
        KINDS[kind](folder, name, case, case.config())
    python_backend = python_backends.TRITON if kind == "triton" else python_backends.BUILT_IN
    options = python_backend.options
    if kind == "plugin":
        options += (f"--backend-directory={build_backend(tmp_path_factory.mktemp('backends'))}",)
    directory = tmp_path_factory.mktemp("server")
    with Server(directory, folder, *options, variables=python_backend.variables) as server:
        yield server.wait_until_ready()


def inputs_of(protocol, shape, datatype=np.float32):
    count = int(np.prod(shape))
    arrays = [np.arange(begin, begin + count).astype(datatype).reshape(shape) for begin in (0, 1000)]
    return [protocol.input(f"INPUT{number}", array) for number, array in enumerate(arrays)], arrays


@pytest.mark.parametrize("name", CASES)
def test_clients_and_models_see_the_shapes_of_the_configuration(protocol, client, name):
    case = CASES[name]
    inputs, arrays = inputs_of(protocol, case.sent)
    answer = ensembles.outputs_of(client.infer(name, inputs))
    assert list(answer) == ["OUTPUT0", "OUTPUT1"]
    for array, received in zip(arrays, answer.values(), strict=True):
        assert received.shape == case.received
        assert received.ravel().tolist() == array.ravel().tolist()


def test_a_client_gets_the_outputs_that_it_wants(protocol, client):
    inputs, arrays = inputs_of(protocol, (2, 2, 3))
    answer = ensembles.outputs_of(client.infer("rows", inputs, outputs=[protocol.output("OUTPUT1")]))
    assert list(answer) == ["OUTPUT1"]
    assert answer["OUTPUT1"].tolist() == arrays[1].tolist()


SENT = (2, 2, 3)
FAULTS = {
    "an input is missing": (lambda protocol: inputs_of(protocol, SENT)[0][:1], None, "expected 2 inputs but got 1 inputs"),
    "an input is unknown": (
        lambda protocol: [inputs_of(protocol, SENT)[0][0], protocol.input("OTHER", np.zeros(SENT, np.float32))],
        None,
        "unexpected inference input 'OTHER' for model 'rows'",
    ),
    "an output is unknown": (lambda protocol: inputs_of(protocol, SENT)[0], "OTHER", "unexpected inference output 'OTHER'"),
    "another datatype": (
        lambda protocol: inputs_of(protocol, SENT, np.int32)[0],
        None,
        "inference input 'INPUT0' data-type is 'INT32', but model 'rows' expects 'FP32'",
    ),
    # The shape that the model sees is not that of clients.
    "another shape": (
        lambda protocol: inputs_of(protocol, (2, 3, 2))[0],
        None,
        "unexpected shape for input 'INPUT0' for model 'rows'. Expected [-1,2,3], got [2,3,2].",
    ),
    "another rank": (
        lambda protocol: inputs_of(protocol, (2, 3))[0],
        None,
        "unexpected shape for input 'INPUT0' for model 'rows'. Expected [-1,2,3], got [2,3].",
    ),
    "too many rows": (
        lambda protocol: inputs_of(protocol, (5, 2, 3))[0],
        None,
        "inference request batch-size must be <= 4 for 'rows'",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_rule_is_told_in_the_same_words(protocol, client, fault):
    inputs, output, words = FAULTS[fault]
    outputs = output and [protocol.output(output)]
    with pytest.raises(InferenceServerException) as refused:
        client.infer("rows", inputs(protocol), outputs=outputs)
    assert refused.value.status() == protocol.status("INVALID_ARGUMENT")
    assert words in refused.value.message()
