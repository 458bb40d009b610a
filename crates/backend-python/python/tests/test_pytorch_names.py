"""Which input is which argument of a network of PyTorch, and which value is which output."""

import json

import pytest
from nereid_host import TritonModelException
from nereid_pytorch_names import (
    Declaration,
    exported_inputs,
    exported_outputs,
    index_in,
    script_inputs,
    script_outputs,
)


def declaration(inputs, outputs=("OUTPUT__0",), controls=(), states=()):
    tensors = lambda names: [{"name": name, "data_type": "TYPE_FP32"} for name in names]
    control = [{"name": name, "control": [{"kind": "CONTROL_SEQUENCE_START"}]} for name in controls]
    state = [{"input_name": one, "output_name": other, "data_type": "TYPE_FP32"} for one, other in states]
    sequences = {"control_input": control, "state": state}
    return Declaration("m", {"input": tensors(inputs), "output": tensors(outputs), "sequence_batching": sequences})


def order(arguments, *names, **more):
    return [tensor.name for tensor in script_inputs(declaration(names, **more), arguments)]


def refusal(arguments, *names, **more):
    with pytest.raises(TritonModelException) as error:
        order(arguments, *names, **more)
    return str(error.value)


@pytest.mark.parametrize(
    ("name", "index"), [("INPUT__0", 0), ("x__12", 12), ("x", None), ("x__", None), ("a__b__0", None), ("x___0", None)]
)
def test_an_index_stands_behind_the_first_two_underscores(name, index):
    assert index_in(name) == index


def test_names_of_arguments_come_before_indices_and_those_before_the_order():
    assert order(["a", "b"], "b", "a") == ["a", "b"]
    assert order(["a", "b"], "X__1", "X__0") == ["X__0", "X__1"]
    assert order(["a", "b"], "X", "a") == ["X", "a"]
    assert order(["a", "b"], "a", "X__0") == ["a", "X__0"]


def test_controls_and_states_have_indices():
    assert order(["x", "s", "start"], "INPUT__0", controls=["START__2"], states=[("STATE__1", "STATE__1")]) == [
        "INPUT__0",
        "STATE__1",
        "START__2",
    ]
    assert "does not follow <name>__<index> naming convention" in refusal(["a", "b"], "a", controls=["START"])
    assert "is using sequence batching with state" in refusal(["a", "b"], "a", states=[("S__1", "S__1")])


def test_inputs_that_do_not_fit_the_arguments_are_refused():
    assert "configuration expects 1 inputs, model provides 2" in refusal(["a", "b"], "a")
    assert "mean the same argument" in refusal(["a", "b"], "X__0", "Y__0")
    assert "means argument 7, but the network has 2 arguments" in refusal(["a", "b"], "X__0", "Y__7")


def test_outputs_have_indices_or_an_order():
    places = lambda *names, **more: [
        (tensor.name, place) for tensor, place in script_outputs(declaration(["x"], names, **more))
    ]
    assert places("Y__1", "Y__0") == [("Y__1", 1), ("Y__0", 0)]
    assert places("SUM", "Y__0") == [("SUM", 0), ("Y__0", 1)]
    assert places("Y__0", states=[("S__1", "S__1")]) == [("Y__0", 0), ("S__1", 1)]


def test_a_configuration_without_inputs_or_outputs_is_refused():
    with pytest.raises(TritonModelException, match="at least one input, none were specified"):
        declaration([])
    with pytest.raises(TritonModelException, match="at least one output, none were specified"):
        declaration(["x"], [])


LEAF = {"type": None, "context": None, "children_spec": []}


def tree(kind, *children, keys=None):
    return {"type": f"builtins.{kind}", "context": json.dumps(keys), "children_spec": list(children)}


IN_SPEC = json.dumps(
    [1, tree("tuple", tree("tuple", LEAF, tree("dict", LEAF, keys=["p"])), tree("dict", LEAF, keys=["k"]))]
)
OUT_SPEC = json.dumps([1, tree("dict", LEAF, tree("tuple", LEAF, LEAF), keys=["A", "B"])])


def test_tensors_of_an_exported_program_have_paths_and_indices():
    names = lambda *inputs: [
        tensor.name for tensor in exported_inputs(declaration(inputs), IN_SPEC, ["h", "opts_p", "k"])
    ]
    assert names("KWARGS[k]", "ARGS[1][p]", "ARGS[0]") == ["ARGS[0]", "ARGS[1][p]", "KWARGS[k]"]
    assert names("INPUT__2", "ARGS[1][p]", "h") == ["h", "ARGS[1][p]", "INPUT__2"]
    outputs = exported_outputs(declaration(["x"], ["RESULT[B][1]", "OUTPUT__0"]), OUT_SPEC)
    assert [place for _, place in outputs] == [2, 0]
    [(_, place)] = exported_outputs(declaration(["x"], ["RESULT"]), json.dumps([1, LEAF]))
    assert place == 0


def test_other_names_of_an_exported_program_are_refused_with_those_that_it_has():
    with pytest.raises(TritonModelException, match="configuration expects 1 inputs, model provides 3"):
        exported_inputs(declaration(["ARGS[0]"]), IN_SPEC)
    with pytest.raises(TritonModelException) as error:
        exported_inputs(declaration(["ARGS[0]", "ARGS[1][p]", "k"]), IN_SPEC)
    assert "input 'k' of model 'm' is no input of the exported program" in str(error.value)
    assert "INPUT__2 or KWARGS[k]" in str(error.value)
    odd = json.dumps([1, tree("tuple", tree("tuple", tree("set", LEAF)), tree("dict", keys=[]))])
    with pytest.raises(TritonModelException, match="'ARGS\\[0\\]' of the exported program is a builtins.set"):
        exported_inputs(declaration(["ARGS[0]"]), odd)
