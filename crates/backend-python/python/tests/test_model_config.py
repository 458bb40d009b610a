"""What `auto_complete_config` may add to a configuration, and what contradicts it."""

import json

import pytest
import triton_python_backend_utils as pb_utils
from triton_python_backend_utils import ModelConfig

FUNCTION = "auto-complete-config function for model 'm'"


def config(**given):
    return ModelConfig(json.dumps({"name": "m", "max_batch_size": 0, "input": [], "output": []} | given))


def tensor(**given):
    return {"name": "X", "data_type": "TYPE_FP32", "dims": [1]} | given


def test_an_empty_configuration_is_completed():
    completed = config()
    completed.set_max_batch_size(4)
    completed.set_dynamic_batching()
    completed.add_input(tensor(optional=True))
    completed.add_output(tensor(name="Y"))
    completed.set_model_transaction_policy({"decoupled": True})
    assert completed.as_dict() is completed._model_config
    assert completed.as_dict() == {
        "name": "m",
        "max_batch_size": 4,
        "dynamic_batching": {},
        "input": [tensor(optional=True)],
        "output": [tensor(name="Y")],
        "model_transaction_policy": {"decoupled": True},
    }


def test_what_is_already_there_may_be_said_again():
    written = {"max_batch_size": 4, "dynamic_batching": {"preferred_batch_size": [2]}, "output": [tensor()]}
    written |= {"input": [tensor(optional=False)], "model_transaction_policy": {"decoupled": False}}
    completed = config(**written)
    completed.set_max_batch_size(4)
    completed.set_dynamic_batching()
    completed.add_input(tensor())
    completed.add_output(tensor())
    completed.set_model_transaction_policy({"decoupled": False})
    completed.set_model_transaction_policy({})
    assert completed.as_dict() == config(**written).as_dict()


def test_what_is_missing_in_a_tensor_is_filled_in():
    completed = config(input=[{"name": "X", "data_type": "TYPE_INVALID", "dims": [], "format": "FORMAT_NONE"}])
    completed.add_input(tensor(optional=True))
    assert completed.as_dict()["input"] == [tensor(optional=True, format="FORMAT_NONE")]


OTHERS = "contains property other than 'name', 'data_type', 'dims' and 'optional'."
CONTRADICTIONS = {
    f"configuration specified max_batch_size 8, but in {FUNCTION} specified max_batch_size 4": (
        {"max_batch_size": 8},
        lambda c: c.set_max_batch_size(4),
    ),
    f"Configuration specified scheduling_choice as 'sequence_batching', but {FUNCTION} tries to set scheduling_choice as "
    "'dynamic_batching'": ({"sequence_batching": {}}, lambda c: c.set_dynamic_batching()),
    f"Configuration specified scheduling_choice as 'ensemble_scheduling', but {FUNCTION} tries to set scheduling_choice as "
    "'dynamic_batching'": ({"ensemble_scheduling": {}}, lambda c: c.set_dynamic_batching()),
    f"input 'X' in {FUNCTION} {OTHERS}": ({}, lambda c: c.add_input(tensor(format=1))),
    f"output 'X' in {FUNCTION} contains property other than 'name', 'data_type' and 'dims'.": (
        {},
        lambda c: c.add_output(tensor(optional=True)),
    ),
    f"input in {FUNCTION} is missing 'name' property.": ({}, lambda c: c.add_input({"dims": [1]})),
    f"input 'X' in {FUNCTION} is missing 'data_type' property.": ({}, lambda c: c.add_input({"name": "X", "dims": [1]})),
    f"output 'X' in {FUNCTION} is missing 'dims' property.": (
        {},
        lambda c: c.add_output({"name": "X", "data_type": "TYPE_FP32"}),
    ),
    "unable to load model 'm', configuration expects datatype TYPE_FP32 for input 'X', model provides TYPE_FP64": (
        {"input": [tensor()]},
        lambda c: c.add_input(tensor(data_type="TYPE_FP64")),
    ),
    "model 'm', tensor 'X': the model expects dims [2] but the model configuration specifies dims [1]": (
        {"output": [tensor()]},
        lambda c: c.add_output(tensor(dims=[2])),
    ),
    "model 'm', tensor 'X': the model expects optional True but the model configuration specifies optional False": (
        {"input": [tensor(optional=False)]},
        lambda c: c.add_input(tensor(optional=True)),
    ),
    f"model transaction property in {FUNCTION} contains property other than 'decoupled'.": (
        {},
        lambda c: c.set_model_transaction_policy({"coupled": True}),
    ),
    "trying to change decoupled property in auto-complete-config for model 'm', which is already set to 'True'.": (
        {"model_transaction_policy": {"decoupled": True}},
        lambda c: c.set_model_transaction_policy({"decoupled": False}),
    ),
}


@pytest.mark.parametrize("words", CONTRADICTIONS)
def test_a_contradiction_is_refused(words):
    written, contradict = CONTRADICTIONS[words]
    before = config(**written)
    with pytest.raises(ValueError) as refused:
        contradict(before)
    assert str(refused.value) == words
    assert before.as_dict() == config(**written).as_dict() | before.as_dict()


def test_configurations_are_looked_up():
    written = {"input": [tensor()], "output": [tensor(name="Y")], "model_transaction_policy": {"decoupled": True}}
    assert pb_utils.get_input_config_by_name(written, "X") == tensor()
    assert pb_utils.get_output_config_by_name(written, "Y") == tensor(name="Y")
    assert pb_utils.get_input_config_by_name(written, "Y") is pb_utils.get_output_config_by_name({}, "Y") is None
    assert pb_utils.using_decoupled_model_transaction_policy(written)
    assert not pb_utils.using_decoupled_model_transaction_policy({})
