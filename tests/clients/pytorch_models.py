"""Writes a repository with models of PyTorch. It runs in an interpreter that has torch: `python pytorch_models.py FOLDER`.

| model | does | file |
|---|---|---|
| scripted, traced | OUTPUT__0 = a + b, OUTPUT__1 = a - b | TorchScript |
| named | the same, with the names of the arguments | TorchScript |
| two_instances | the same, on two instances | TorchScript |
| exported | RESULT[sum] = ARGS[0] + ARGS[1], RESULT[parts][0] = ARGS[0] - ARGS[1] | an exported program |
| keyword | RESULT[0] = ARGS[0] + KWARGS[b], RESULT[1] = ARGS[0] - KWARGS[b] | an exported program |
| single | RESULT = ARGS[0] + ARGS[1] | an exported program |
| compiled | as `exported` | a package of AOTInductor |
| fixed | the same, with its columns in the configuration | the same package |
| misfit | the same, with other columns in the configuration | the same package |
| matrix | RESULT = two linear layers of INPUT__0 | a package of AOTInductor |
| source | Y = 3 X, weights in model.pt | model.py |
| dictionary | OUTPUT__0 = x + y, of one dictionary | TorchScript |
| listed, keyed | FIRST = x, SECOND = 2 x, of a list and of a dictionary | TorchScript |
| shouted | strings in upper case | TorchScript |
| bfloat | OUTPUT__0 = 2 x in BF16 | TorchScript |
| in_place | OUTPUT__0 = x + 1, written into the input | TorchScript |
| accumulated | OUTPUT__0 = the sum of a sequence, by implicit state | TorchScript |
| pair | Y = scripted of X and X, an ensemble | - |
| voice | the probability of speech, of the package silero-vad | TorchScript |
"""

import pathlib
import shutil
import sys
import warnings

import numpy
import torch

ADD_SUB_NAMES = (("INPUT__0", "INPUT__1"), ("OUTPUT__0", "OUTPUT__1"))


class AddSub(torch.nn.Module):
    def forward(self, a, b):
        return a + b, a - b


class Single(torch.nn.Module):
    def forward(self, a, b):
        return a + b


class Nested(torch.nn.Module):
    def forward(self, a, b):
        return {"sum": a + b, "parts": (a - b,)}


class Dictionary(torch.nn.Module):
    def forward(self, tensors: dict[str, torch.Tensor]):
        return tensors["x"] + tensors["y"]


class Listed(torch.nn.Module):
    def forward(self, x):
        return [x, 2 * x]


class Keyed(torch.nn.Module):
    def forward(self, x):
        return {"SECOND": 2 * x, "FIRST": x}


class Shouted(torch.nn.Module):
    def forward(self, texts: list[str]):
        return [text.upper() for text in texts]


class Doubled(torch.nn.Module):
    def forward(self, x):
        return 2 * x


class InPlace(torch.nn.Module):
    def forward(self, x):
        return x.add_(1)


class Accumulated(torch.nn.Module):
    def forward(self, x, state):
        return x + state, x + state


SOURCE = """
import torch
from torch.nn import Linear


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return self.weight * x
"""

STATE = """
sequence_batching {
  oldest { max_candidate_sequences: 4 }
  state {
    input_name: "INPUT__1" output_name: "OUTPUT__1" data_type: TYPE_FP32 dims: [ 1 ]
    initial_state { name: "zeros" data_type: TYPE_FP32 dims: [ 1 ] zero_data: true }
  }
}
"""

PAIR = """
platform: "ensemble"
max_batch_size: 8
input { name: "X" data_type: TYPE_FP32 dims: [ 4 ] }
output { name: "Y" data_type: TYPE_FP32 dims: [ 4 ] }
ensemble_scheduling {
  step {
    model_name: "scripted" model_version: -1
    input_map { key: "INPUT__0" value: "X" } input_map { key: "INPUT__1" value: "X" }
    output_map { key: "OUTPUT__0" value: "Y" }
  }
}
"""


def tensor(kind, name, dims, datatype):
    return f'{kind} {{ name: "{name}" data_type: TYPE_{datatype} dims: {list(dims)} }}\n'


def config(names, dims=(4,), batch=8, datatype="FP32", more=""):
    inputs = "".join(tensor("input", name, dims, datatype) for name in names[0])
    outputs = "".join(tensor("output", name, dims, datatype) for name in names[1])
    return f"max_batch_size: {batch}\n{inputs}{outputs}{more}"


class Repository:
    def __init__(self, folder):
        self._folder = folder

    def version(self, name, config):
        folder = self._folder / name / "1"
        folder.mkdir(parents=True)
        (folder.parent / "config.pbtxt").write_text(config)
        return folder

    def script(self, name, network, config):
        torch.jit.script(network.eval()).save(str(self.version(name, config) / "model.pt"))


def write_scripts(repository):
    repository.script("scripted", AddSub(), config(ADD_SUB_NAMES))
    repository.script("named", AddSub(), 'backend: "pytorch"\n' + config((("b", "a"), ("SUM", "DIFFERENCE"))))
    one = "instance_group { count: 2 kind: KIND_CPU }\n"
    repository.script("two_instances", AddSub(), config(ADD_SUB_NAMES, more=one + "dynamic_batching { }\n"))
    examples = torch.ones(2, 4), torch.ones(2, 4)
    traced = repository.version("traced", 'platform: "pytorch_libtorch"\n' + config(ADD_SUB_NAMES, dims=(-1,)))
    torch.jit.trace(AddSub(), examples).save(str(traced / "model.pt"))
    repository.script("dictionary", Dictionary(), config((("y", "x"), ("OUTPUT__0",))))
    repository.script("listed", Listed(), config((("x",), ("FIRST", "SECOND"))))
    repository.script("keyed", Keyed(), config((("x",), ("FIRST", "SECOND"))))
    repository.script("shouted", Shouted(), config((("texts",), ("OUTPUT__0",)), (-1,), 0, "STRING"))
    repository.script("bfloat", Doubled(), config((("x",), ("OUTPUT__0",)), (-1,), 0, "BF16"))
    repository.script("in_place", InPlace(), config((("x",), ("OUTPUT__0",)), (-1,), 0))
    repository.script("accumulated", Accumulated(), config((("INPUT__0",), ("OUTPUT__0",)), (1,), 4, more=STATE))
    repository.version("pair", PAIR)


def write_exported(repository):
    rows = torch.export.Dim("rows", min=1, max=64)
    examples = torch.ones(2, 4), torch.ones(2, 4)
    shapes = {"a": {0: rows}, "b": {0: rows}}
    program = torch.export.export(AddSub(), examples[:1], {"b": examples[1]}, dynamic_shapes=shapes)
    names = ("ARGS[0]", "KWARGS[b]"), ("RESULT[0]", "RESULT[1]")
    torch.export.save(program, repository.version("keyword", config(names)) / "model.pt2")
    program = torch.export.export(Single(), examples, dynamic_shapes=shapes)
    names = ("ARGS[0]", "ARGS[1]"), ("RESULT",)
    torch.export.save(program, repository.version("single", config(names)) / "model.pt2")
    program = torch.export.export(Nested(), examples, dynamic_shapes=shapes)
    # The datatype and the columns of `-1` are for the tests of wrong inputs.
    names = ("ARGS[0]", "ARGS[1]"), ("RESULT[parts][0]", "RESULT[sum]")
    torch.export.save(program, repository.version("exported", config(names, dims=(-1,))) / "model.pt2")
    folder = repository.version("compiled", config(names, dims=(-1,)))
    torch._inductor.aoti_compile_and_package(program, package_path=str(folder / "model.pt2"))
    two = "instance_group { count: 2 kind: KIND_CPU }\ndynamic_batching { }\n"
    for name, columns, more in (("fixed", 4, two), ("misfit", 3, "")):
        copy = repository.version(name, config(names, dims=(columns,), more=more))
        shutil.copy(folder / "model.pt2", copy / "model.pt2")


def write_matrix(repository):
    torch.manual_seed(5)
    network = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8)).eval()
    rows = torch.export.Dim("rows", min=1, max=64)
    with torch.no_grad():
        program = torch.export.export(network, (torch.ones(2, 256),), dynamic_shapes=({0: rows},))
        torch.set_num_threads(1)
        expected = network(torch.linspace(-3, 3, 4 * 256).reshape(4, 256))
    tensors = tensor("input", "INPUT__0", [256], "FP32") + tensor("output", "RESULT", [8], "FP32")
    more = 'parameters { key: "INTRA_OP_THREAD_COUNT" value { string_value: "1" } }\n'
    folder = repository.version("matrix", f"max_batch_size: 8\n{tensors}{more}")
    torch._inductor.aoti_compile_and_package(program, package_path=str(folder / "model.pt2"))
    numpy.save(folder / "expected.npy", expected.numpy())


def write_source(repository):
    options = 'string_value: "{\\"backend\\": \\"eager\\"}"'
    compile_options = f'parameters {{ key: "TORCH_COMPILE_OPTIONAL_PARAMETERS" value {{ {options} }} }}\n'
    text = 'backend: "pytorch"\nruntime: "model.py"\n' + config((("X",), ("Y",)), more=compile_options)
    folder = repository.version("source", text)
    (folder / "model.py").write_text(SOURCE)
    torch.save({"weight": torch.tensor([3.0])}, folder / "model.pt")


def write_voice(repository):
    import silero_vad

    rate = tensor("input", "sr", [1], "INT64")
    text = f"{tensor('input', 'x', [1, -1], 'FP32')}{rate}{tensor('output', 'OUTPUT__0', [1, 1], 'FP32')}"
    folder = repository.version("voice", text)
    file = pathlib.Path(silero_vad.__file__).parent / "data" / "silero_vad.jit"
    (folder / "model.pt").write_bytes(file.read_bytes())


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    models = Repository(pathlib.Path(sys.argv[1]))
    for write in (write_scripts, write_exported, write_matrix, write_source, write_voice):
        write(models)
