"""The parameters of models of PyTorch."""

import pytest
from nereid_host import TritonModelException
from nereid_pytorch_parameters import Parameters


def parameters(threads=4, **values):
    return Parameters("m", {name: {"string_value": value} for name, value in values.items()}, threads)


def test_switches_have_the_defaults_of_triton():
    none = parameters()
    assert none.is_on("INFERENCE_MODE") and not none.is_on("DISABLE_CUDNN")
    assert none.is_on("ENABLE_JIT_EXECUTOR") is None
    some = parameters(INFERENCE_MODE="FALSE", DISABLE_CUDNN="on", ENABLE_JIT_EXECUTOR="0")
    assert not some.is_on("INFERENCE_MODE") and some.is_on("DISABLE_CUDNN")
    assert some.is_on("ENABLE_JIT_EXECUTOR") is False


def test_threads_are_those_of_the_instance_unless_a_parameter_says_otherwise():
    threads = lambda **values: (parameters(**values).intra_op_threads, parameters(**values).inter_op_threads)
    assert threads() == (4, 4)
    assert threads(INTRA_OP_THREAD_COUNT="2", INTER_OP_THREAD_COUNT="1") == (2, 1)
    assert threads(NUM_THREADS="3", NUM_INTEROP_THREADS="0") == (3, 4)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("INFERENCE_MODE", "yes", "failed to convert 'yes' to boolean"),
        ("NUM_THREADS", "two", "failed to convert 'two' to integral number"),
        ("TORCH_COMPILE_OPTIONAL_PARAMETERS", "{", "it is no JSON"),
        ("TORCH_COMPILE_OPTIONAL_PARAMETERS", "[]", "it is no object of JSON"),
        ("TORCH_COMPILE_OPTIONAL_PARAMETERS", '{"model": 1}', "'model' is not an optional parameter"),
    ],
)
def test_other_values_are_refused(name, value, reason):
    with pytest.raises(TritonModelException) as error:
        parameters(**{name: value})
    assert f"parameter '{name}' of model 'm': {reason}" in str(error.value)
