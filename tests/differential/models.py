"""The models that requests of generated cases are for: what they take and give, and their configurations."""

from dataclasses import dataclass

from differential.servers import write_model
from tritonclient.utils import triton_to_np_dtype

KINDS_OF_NUMBERS = "BOOL UINT8 UINT16 UINT32 UINT64 INT8 INT16 INT32 INT64 FP16 FP32 FP64"
NUMBERS = {datatype: triton_to_np_dtype(datatype) for datatype in KINDS_OF_NUMBERS.split()}
DATATYPES = (*NUMBERS, "BF16", "BYTES")


@dataclass(frozen=True)
class TensorSpec:
    """An input or output. `dims` are without the batch; -1 is open."""

    name: str
    datatype: str
    dims: tuple
    more: str = ""

    def config(self, kind):
        datatype = "STRING" if self.datatype == "BYTES" else self.datatype
        return f'{kind} {{ name: "{self.name}" data_type: TYPE_{datatype} dims: {list(self.dims)} {self.more} }}\n'


@dataclass(frozen=True)
class ModelSpec:
    """A model: its file, its batch limit (0: no batches), its tensors, and further lines of its configuration."""

    name: str
    file: str
    max_batch: int
    inputs: tuple
    outputs: tuple
    more: str = ""
    labels: tuple = ()

    @property
    def decoupled(self):
        return "decoupled: true" in self.more

    def write(self, repository):
        config = f"max_batch_size: {self.max_batch}\n{self.more}\n"
        config += "".join(tensor.config("input") for tensor in self.inputs)
        config += "".join(tensor.config("output") for tensor in self.outputs)
        if self.file:
            write_model(repository, self.name, self.file, config, self.labels)
        else:
            # An ensemble.
            (repository / self.name / "1").mkdir(parents=True)
            (repository / self.name / "config.pbtxt").write_text(f'name: "{self.name}"\nplatform: "ensemble"\n{config}')


def echo(name, max_batch, *tensors, **more):
    """A model that gives back what it gets; tensors are a rest of a name, a datatype, dims and more of their configuration."""

    def named(begin):
        return tuple(TensorSpec(begin + rest, *about) for rest, *about in tensors)

    # What an input may be, an output may not.
    outputs = tuple(TensorSpec(one.name, one.datatype, one.dims, one.more.replace("optional: true", "")) for one in named("O"))
    return ModelSpec(name, "echo", max_batch, named("I"), outputs, **more)


OPTIONAL = "optional: true"
LABELS = 'label_filename: "labels.txt"'
STEP = """ensemble_scheduling { step [
  { model_name: "two" model_version: -1 input_map { key: "IA" value: "IX" } input_map { key: "IB" value: "IY" }
    output_map { key: "OA" value: "between" } output_map { key: "OB" value: "OY" } },
  { model_name: "one" model_version: -1 input_map { key: "IA" value: "between" } output_map { key: "OA" value: "OX" } }] }"""

MODELS = (
    echo("two", 0, ("A", "INT32", (2,)), ("B", "FP32", (2,))),
    echo("one", 0, ("A", "INT32", (-1,))),
    echo("batched", 4, ("A", "INT32", (2,)), ("B", "BYTES", (1,))),
    echo("open", 0, ("A", "FP32", (-1, 3, -1)), ("B", "BYTES", (-1,), OPTIONAL)),
    echo("kinds", 8, *((datatype, datatype, (-1,), OPTIONAL) for datatype in DATATYPES)),
    echo("loose", 4, ("A", "UINT8", (2, 2), OPTIONAL), ("B", "FP64", (-1,), OPTIONAL)),
    echo("scalar", 4, ("A", "INT64", (1,), "reshape { shape: [] }"), ("B", "INT16", (2, 3), "reshape { shape: [3, 2] }")),
    ModelSpec(
        "ranked",
        "echo",
        4,
        (TensorSpec("IA", "FP32", (4,)), TensorSpec("IB", "INT8", (3,))),
        (TensorSpec("OA", "FP32", (4,), LABELS), TensorSpec("OB", "INT8", (3,))),
        labels=("cat", "", "fish"),
    ),
    ModelSpec("heard", "heard", 0, (TensorSpec("IA", "INT32", (1,)),), (TensorSpec("HEARD", "BYTES", (1,)),)),
    ModelSpec("failing", "failing", 0, (TensorSpec("WAY", "INT32", (1,)),), (TensorSpec("BACK", "INT32", (1,)),)),
    ModelSpec(
        "counter",
        "counter",
        0,
        (TensorSpec("COUNT", "INT32", (1,)), TensorSpec("ERROR", "INT32", (1,), OPTIONAL)),
        (TensorSpec("INDEX", "INT32", (1,)),),
        more="model_transaction_policy { decoupled: true }",
    ),
    ModelSpec(
        "steps",
        "",
        0,
        (TensorSpec("IX", "INT32", (2,)), TensorSpec("IY", "FP32", (2,))),
        (TensorSpec("OX", "INT32", (2,)), TensorSpec("OY", "FP32", (2,))),
        more=STEP,
    ),
)
