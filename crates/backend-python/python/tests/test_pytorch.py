"""Models of PyTorch, with a stand-in for PyTorch: arguments, batches, outputs, errors and settings."""

import json
import pathlib
import sys

import numpy as np
import pytest
import pytorch_archives as archives
from nereid_host import TritonModelException
from nereid_tensor import Tensor

sys.path.insert(0, str(pathlib.Path(__file__).parent / "stand_in"))

import nereid_pytorch  # noqa: E402
import torch  # noqa: E402

ADD_SUB = "def forward(a, b):\n    return a + b, a - b\n"


class Request:
    def __init__(self, **arrays):
        self._inputs = [Tensor(name, np.asarray(array)) for name, array in arrays.items()]

    def inputs(self):
        return self._inputs


def tensors(described):
    """Tensors of a configuration: each word has a name, and its datatype behind a colon unless it is FP32."""
    words = [word.partition(":") for word in described.split()]
    return [{"name": name, "data_type": f"TYPE_{datatype or 'FP32'}", "dims": [-1]} for name, _, datatype in words]


class Loader:
    """Loads models from a directory of its own."""

    def __init__(self, directory, host):
        self.directory = directory
        self.host = host
        host.model_dir = str(directory)
        torch.settings.clear()

    def load(self, source, inputs="a b", outputs="OUTPUT__0 OUTPUT__1", kind="CPU", **config):
        if source is not None:
            archives.script(self.directory / "model.pt", source)
        parameters = {name: {"string_value": value} for name, value in config.pop("parameters", {}).items()}
        config |= {"input": tensors(inputs), "output": tensors(outputs), "parameters": parameters}
        model = nereid_pytorch.TritonPythonModel()
        model.initialize(
            {
                "model_config": json.dumps(config),
                "model_name": "m",
                "model_instance_kind": kind,
                "model_instance_device_id": "1",
                "model_instance_threads": "3",
            }
        )
        return model

    def refusal(self, *arguments, **config):
        with pytest.raises(TritonModelException) as error:
            self.load(*arguments, **config)
        return str(error.value)


@pytest.fixture
def loader(tmp_path, host):
    return Loader(tmp_path, host)


def answers(model, *requests):
    """The outputs of each response as lists, or the text of its error."""
    return [
        response.error().message()
        if response.has_error()
        else {tensor.name(): tensor.as_numpy().tolist() for tensor in response.output_tensors()}
        for response in model.execute(list(requests))
    ]


def row(*numbers):
    return np.array([numbers], np.float32)


def test_requests_of_a_batch_run_together(loader):
    model = loader.load(ADD_SUB, max_batch_size=8)
    two_rows = np.vstack([row(1, 2), row(3, 4)])
    assert answers(model, Request(a=row(5, 6), b=row(1, 1)), Request(a=two_rows, b=two_rows)) == [
        {"OUTPUT__0": [[6, 7]], "OUTPUT__1": [[4, 5]]},
        {"OUTPUT__0": [[2, 4], [6, 8]], "OUTPUT__1": [[0, 0], [0, 0]]},
    ]
    assert torch.settings["joined"] == 2


def test_requests_of_other_shapes_run_apart(loader):
    model = loader.load(ADD_SUB, max_batch_size=8)
    requests = [Request(a=row(*numbers), b=row(*numbers)) for numbers in ([1, 2], [3], [4, 5])]
    assert [answer["OUTPUT__0"] for answer in answers(model, *requests)] == [[[2, 4]], [[6]], [[8, 10]]]


def test_without_batches_each_request_runs_alone(loader):
    model = loader.load(ADD_SUB, outputs="OUTPUT__0", max_batch_size=0)
    requests = [Request(a=np.float32([1]), b=np.float32([2])), Request(a=np.float32([3, 4]), b=np.float32([5, 6]))]
    assert answers(model, *requests) == [{"OUTPUT__0": [3]}, {"OUTPUT__0": [8, 10]}]
    assert "joined" not in torch.settings


def test_memory_of_a_request_is_not_copied(loader):
    model = loader.load("def forward(a):\n    return a", "a", "OUTPUT__0")
    array = np.float32([1, 2])
    [response] = model.execute([Request(a=array)])
    assert np.shares_memory(response.output_tensors()[0].as_numpy(), array)


@pytest.mark.parametrize(
    ("returned", "outputs", "expected"),
    [
        ("a", "SUM", {"SUM": [1]}),
        ("[a, a + a]", "SUM TWICE", {"SUM": [1], "TWICE": [2]}),
        ("{'TWICE': a + a, 'SUM': a}", "SUM TWICE", {"SUM": [1], "TWICE": [2]}),
        ("{'TWICE': a + a, 'SUM': a}", "OUTPUT__1", {"OUTPUT__1": [1]}),
        ("a, ['x', 'y']", "SUM TEXT:STRING", {"SUM": [1], "TEXT": [b"x", b"y"]}),
    ],
)
def test_networks_return_tensors_and_texts_in_tuples_lists_and_dictionaries(loader, returned, outputs, expected):
    model = loader.load(f"def forward(a):\n    return {returned}", "a", outputs)
    assert answers(model, Request(a=np.float32([1]))) == [expected]


def test_a_network_may_take_one_dictionary(loader):
    model = loader.load("def forward(tensors: dict):\n    return tensors['x'] + tensors['y']", "y x", "OUTPUT__0")
    assert answers(model, Request(x=np.float32([1]), y=np.float32([2]))) == [{"OUTPUT__0": [3]}]


def test_strings_are_lists_of_texts(loader):
    source = "def forward(texts: list):\n    return [text.upper() for text in texts]"
    model = loader.load(source, "TEXT__0:STRING", "OUTPUT__0:STRING")
    assert answers(
        model, Request(TEXT__0=np.array(["ä".encode(), b"b"], np.object_)), Request(TEXT__0=np.array([b"\xff"], np.object_))
    ) == [
        {"OUTPUT__0": ["Ä".encode(), b"B"]},
        "model 'm': input 'TEXT__0' has a string that is not in UTF-8: 'utf-8' codec can't decode byte 0xff in position 0: "
        "invalid start byte",
    ]


def test_a_network_may_take_numbers_if_requests_run_alone(loader):
    source = "def forward(a, factor: int):\n    return a * factor"
    model = loader.load(source, "a factor:INT64", "OUTPUT__0")
    assert answers(model, Request(a=np.float32([2]), factor=np.array([3]))) == [{"OUTPUT__0": [6]}]
    assert "takes numbers, for which max_batch_size must be 0" in loader.refusal(
        source, "a factor:INT64", "OUTPUT__0", max_batch_size=2
    )


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        ("1", "output must be of type Tensor, List[str], or a tuple, list or dictionary of these types, found type 'int'"),
        ("a, 1", "output 'OUTPUT__1' must be of type Tensor or List[str]."),
        (
            "a",
            "The output OUTPUT__1 in the model configuration refers to an output index which doesn't exist. "
            "This model has 1 outputs",
        ),
        ("a, a[:0]", "output 'OUTPUT__1' has 0 rows for a batch of 1 rows"),
        ("a, ['x']", "configuration expects datatype TYPE_FP32 for output 'OUTPUT__1', model provides TYPE_STRING"),
    ],
)
def test_outputs_that_break_a_rule_are_errors(loader, returned, text):
    model = loader.load(f"def forward(a):\n    return {returned}", "a", max_batch_size=1)
    assert answers(model, Request(a=row(1))) == [f"model 'm': {text}"]


def test_outputs_have_the_datatype_of_the_configuration_and_a_dimension(loader):
    model = loader.load("def forward(a):\n    return a", "a:INT32", "OUTPUT__0")
    assert answers(model, Request(a=np.int32([1]))) == [
        "model 'm': configuration expects datatype TYPE_FP32 for output 'OUTPUT__0', model provides TYPE_INT32"
    ]
    model = loader.load("import torch\ndef forward(a):\n    return torch.sum(a)", "a", "OUTPUT__0")
    assert answers(model, Request(a=np.float32([1]))) == [
        "model 'm': output 'OUTPUT__0' is a scalar which is not supported."
    ]


def test_an_error_of_the_network_names_the_model_and_the_log_has_its_trace_once(loader):
    model = loader.load("def forward(a):\n    raise RuntimeError('too\\nlarge')", "a", "OUTPUT__0")
    text = "PyTorch execute failure: model 'm': too large"
    assert answers(model, Request(a=row(1))) == answers(model, Request(a=row(1))) == [text]
    [(level, logged, *_)] = loader.host.called("log")
    assert level == "ERROR" and "Traceback" in logged and "in forward" in logged


def test_a_class_in_python_has_its_weights_from_a_file(loader):
    source = "import torch\nclass Net(torch.nn.Module):\n    def forward(self, a):\n        return a * self.weight\n"
    (loader.directory / "model.py").write_text(source)
    archives.weights(loader.directory / "model.pt", 3)
    options = {"TORCH_COMPILE_OPTIONAL_PARAMETERS": '{"disable": true}'}
    model = loader.load(None, "X", "Y", default_model_filename="model.pt", parameters=options)
    assert answers(model, Request(X=np.float32([2]))) == [{"Y": [6]}]
    assert torch.settings["compile"] == {"disable": True}


def test_a_file_without_a_class_is_refused(loader):
    (loader.directory / "model.py").write_text("import torch\n")
    assert "has no subclass of torch.nn.Module" in loader.refusal(None)


def test_what_a_file_lacks_or_has_too_much_of_is_refused(loader):
    assert "unable to find" in loader.refusal(None)
    assert "failed to load TorchScript" in loader.refusal("def forward(")
    assert "Multiple inputs of kind DictType" in loader.refusal("def forward(a: dict, b: dict):\n    return a")
    assert "An input of type 'StringType' was detected" in loader.refusal("def forward(a: str, b):\n    return a")
    assert "unsupported datatype TYPE_UINT64 for input 'a'" in loader.refusal(ADD_SUB, "a:UINT64 b")
    assert "only supports 1 dimensional List of String as output for 'OUTPUT__0'" in loader.refusal(
        ADD_SUB, outputs="OUTPUT__0:STRING", max_batch_size=1
    )
    assert "has batch_input, which" in loader.refusal(ADD_SUB, batch_input=[{}])


def test_an_instance_on_a_gpu_needs_one(loader):
    assert "has an instance on GPU 1, but PyTorch stand-in finds no GPU" in loader.refusal(ADD_SUB, kind="GPU")


def test_parameters_set_what_they_name(loader):
    loader.load(ADD_SUB)
    assert torch.settings == {"threads": 3, "interop threads": 3, "optimize": True, "mode": "inference"}
    switches = {"INFERENCE_MODE": "0", "DISABLE_OPTIMIZED_EXECUTION": "1", "ENABLE_JIT_PROFILING": "1"}
    loader.load(ADD_SUB, parameters=switches | {"NUM_THREADS": "1", "ENABLE_WEIGHT_SHARING": "true"})
    assert torch.settings["mode"] == "no gradients" and not torch.settings["optimize"]
    assert torch.settings["profiling"] and torch.settings["threads"] == 1
    [(level, logged, *_)] = loader.host.called("log")
    assert level == "WARNING" and "'ENABLE_WEIGHT_SHARING' of model 'm' has no effect" in logged
