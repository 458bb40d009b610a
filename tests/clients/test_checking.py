"""`nereid check` and a server judge the rules of the backends alike, and a check looks at each of many models.

The rules of configurations for all backends are compared by `crates/check/tests/check/verdicts.rs`.
"""

import json

import processes
from protocols import HTTP
from repository import graph, write, write_many
from serving import BINARY, Server, environment

MODELS = 1000


def test_a_thousand_models_are_checked(tmp_path):
    models = tmp_path / "models"
    write_many(models, MODELS)
    checked = processes.run([BINARY, "check", "--format=json", models], env=environment())
    assert checked.returncode == 1, checked.stderr
    errors = [finding for finding in json.loads(checked.stdout)["findings"] if finding["severity"] == "error"]
    assert [finding["model"] for finding in errors] == ["network1"]


GRAPH = """max_batch_size: 4
input { name: 'X' data_type: TYPE_FP32 dims: 16 }
output { name: 'Y' data_type: TYPE_FP32 dims: 16 }
"""
# What is replaced in the configuration, by what, and the refusal.
GRAPH_CHANGES = [
    ("'X'", "'Z'", "unexpected inference input 'Z', allowed inputs are: X"),
    ("'Y'", "'Z'", "unexpected inference output 'Z', allowed outputs are: Y"),
    ("'X' data_type: TYPE_FP32", "'X' data_type: TYPE_INT64", "datatype TYPE_INT64 for input 'X'"),
    ("'X' data_type: TYPE_FP32", "'X' data_type: TYPE_STRING", "datatype TYPE_STRING for input 'X'"),
    ("'Y' data_type: TYPE_FP32", "'Y' data_type: TYPE_FP64", "datatype TYPE_FP64 for output 'Y'"),
    ("'Y' data_type: TYPE_FP32 dims: 16",
    "'Y' data_type: TYPE_FP32 dims: 17",
    "making complete shape [-1,17]"),
    ("'X' data_type: TYPE_FP32 dims: 16", "'X' data_type: TYPE_FP32 dims: 8", "making complete shape [-1,8]"),
    ("'X' data_type: TYPE_FP32 dims: 16",
    "'X' data_type: TYPE_FP32 dims: [ 4, 4 ]",
    "making complete shape [-1,4,4]"),
    ("max_batch_size: 4", "max_batch_size: 0", "specifies 1 dimensions (shape [16])"),
    ("dims: 16 }\noutput",
    "dims: 16 optional: true }\noutput",
    "configuration expects 0 inputs, model provides 1"),
    ("dims: 16 }\noutput", "dims: 16 allow_ragged_batch: true }\noutput", "for ragged input 'X'"),
    ("dims: 16 }\noutput",
    "dims: 16 } input { name: 'W' data_type: TYPE_FP32 dims: 1 }\noutput",
    "configuration expects 2 inputs, model provides 1"),
]
# What is added.
GRAPH_ADDITIONS = [
    ("sequence_batching { control_input { name: 'START' control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } } }",
    "configuration specified sequence control 'START', but model does not provide that input"),
    ("sequence_batching { state { input_name: 'S' output_name: 'T' data_type: TYPE_FP32 dims: 1 } }",
    "configuration expects 2 inputs, model provides 1"),
]
GRAPH_PARAMETERS = [
    ("execution_mode", "2", "Expected values for  execution_mode are 0 or 1 but got 2 ."),
    ("execution_mode", "parallel", "failed to convert 'parallel' to integral number"),
    ("intra_op_thread_count", "all", "failed to convert 'all' to integral number"),
    ("inter_op_thread_count", "", "failed to convert '' to integral number"),
    ("enable_mem_arena", "maybe", "failed to convert 'maybe' to boolean"),
    ("MAP_EXTERNAL_DATA", "yes", "failed to convert 'yes' to boolean"),
    ("session.set_denormal_as_zero", "a\\0b", "has a NUL inside"),
]

PIXELS = """backend: 'image'
input { name: 'P' data_type: TYPE_STRING dims: 1 }
output { name: 'O' data_type: TYPE_FP32 dims: [ 4, 5, 3 ] }
"""
PIXEL_CHANGES = [
    ("TYPE_STRING", "TYPE_UINT8", "must have an input of TYPE_STRING with dims [1]"),
    ("dims: 1", "dims: -1", "must have an input of TYPE_STRING with dims [1]"),
    ("dims: 1", "dims: [ 1, 1 ]", "must have an input of TYPE_STRING with dims [1]"),
    ("dims: 1", "dims: 1 optional: true", "must not have an optional input"),
    ("TYPE_FP32", "TYPE_FP16", "must have an output of TYPE_UINT8 or TYPE_FP32"),
    ("TYPE_FP32", "TYPE_INT8", "must have an output of TYPE_UINT8 or TYPE_FP32"),
    ("4, 5, 3", "4, 5", "must have an output with dims [H, W, C] or [C, H, W]"),
    ("4, 5, 3", "4, 5, 4", "must have an output with dims [H, W, C] or [C, H, W]"),
    ("4, 5, 3", "-1, 5, 3", "must have an output with dims [H, W, C] or [C, H, W]"),
    ("4, 5, 3", "65536, 5, 3", "must have an output with dims [H, W, C] or [C, H, W]"),
]
PIXEL_PARAMETERS = [
    ("RESIZE", "fit", "must be stretch, crop or pad; it is 'fit'"),
    ("MAX_PIXELS", "0", "must be a whole number from 1; it is '0'"),
    ("MAX_PIXELS", "1e6", "must be a whole number from 1; it is '1e6'"),
    ("MAX_PIXELS", "19", "must not have an output of more pixels than parameter 'MAX_PIXELS' allows"),
    ("SCALE", "x", "must be a finite number; it is 'x'"),
    ("SCALE", "inf", "must be a finite number; it is 'inf'"),
    ("MEAN", "1,2", "must be one finite number, or 3 that are separated by commas"),
    ("STD", "1,0,1", "must not be zero"),
    ("STD", "", "must be one finite number, or 3 that are separated by commas"),
]


def parameter(key, value):
    return f"parameters {{ key: '{key}' value {{ string_value: '{value}' }} }}\n"


def bad_models(config, changes, additions, parameters):
    """Configurations with their refusals."""
    for old, new, refusal in changes:
        changed = config.replace(old, new, 1)
        assert changed != config, old
        yield changed, refusal
    for more, refusal in additions:
        yield config + more, refusal
    for key, value, refusal in parameters:
        yield config + parameter(key, value), refusal


def test_a_check_and_a_server_judge_the_rules_of_backends_alike(tmp_path):
    copy = graph("copy (float[N, 16] X) => (float[N, 16] Y) { Y = Identity(X) }")
    models, refusals = tmp_path / "models", {}
    for config, refusal in bad_models(GRAPH, GRAPH_CHANGES, GRAPH_ADDITIONS, GRAPH_PARAMETERS):
        name = f"net{len(refusals)}"
        refusals[name] = refusal
        write(models, name, copy, config)
    for config, refusal in bad_models(PIXELS, PIXEL_CHANGES, [], PIXEL_PARAMETERS):
        name = f"picture{len(refusals)}"
        refusals[name] = refusal
        (models / name / "1").mkdir(parents=True)
        (models / name / "config.pbtxt").write_text(config)
    write(models, "good_net", copy, GRAPH)
    (models / "good_picture" / "1").mkdir(parents=True)
    (models / "good_picture" / "config.pbtxt").write_text(PIXELS)
    checked = processes.run([BINARY, "check", "--format=json", models], env=environment())
    told = {}
    for finding in json.loads(checked.stdout)["findings"]:
        if finding["severity"] == "error":
            told.setdefault(finding["model"], []).append(finding["message"])
    with Server(tmp_path, models, "--exit-on-error=false") as server, HTTP.connect(server) as http:
        index = {entry["name"]: entry for entry in http.get_model_repository_index()}
    for name in ("good_net", "good_picture"):
        assert index.pop(name)["state"] == "READY" and name not in told
    assert set(index) == set(refusals) == set(told)
    for name, refusal in refusals.items():
        reason = index[name]["reason"]
        assert refusal in reason, (name, refusal, reason)
        assert any(refusal in text for text in told[name]), (name, refusal, told[name])
        assert any(text in reason for text in told[name]), (name, reason, told[name])
