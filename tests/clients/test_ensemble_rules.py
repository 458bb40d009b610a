"""Ensembles that are not loaded: each rule has a configuration that breaks nothing else, and the text that tells so.

The configurations differ in what stands in braces from a chain of two members that is loaded.
"""

import json
import re

import ensembles
import numpy as np
import pytest
from adders import EXPLICIT, index, refusal
from ensembles import BATCHES, NO_BATCHES, step, write_plugin_model

from repository import tensor
from serving import Server

IN, OUT = tensor("input", "IN", "FP32", 1), tensor("output", "OUT", "FP32", 1)
TENSORS = NO_BATCHES + IN + OUT
FIRST = step("one", {"INPUT0": "IN"}, {"OUTPUT0": "middle"})
LAST = step("one", {"INPUT0": "middle"}, {"OUTPUT0": "OUT"})
DECOUPLED = "model_transaction_policy { decoupled: true }\n"


def write_members(repository):
    """Members that copy their inputs, and one that is decoupled."""

    def copies(name, *shapes, batches=NO_BATCHES, datatype="FP32", more=""):
        tensors = "".join(
            tensor(kind, f"{kind.upper()}{number}", datatype, *shape, more=more if kind == "input" else "")
            for number, shape in enumerate(shapes)
            for kind in ("input", "output")
        )
        write_plugin_model(repository, name, "identity", batches + tensors)

    copies("one", [1])
    copies("one_more", [1])
    copies("two", [1], [1])
    copies("optional", [1], more="optional: true")
    copies("long", [3])
    copies("any_length", [-1])
    copies("matrix", [1, 1])
    copies("texts", [1], datatype="BYTES")
    copies("batches_of_2", [1], batches="max_batch_size: 2\n")
    copies("batches_of_8", [1], batches=BATCHES)
    tensors = tensor("input", "IN", "INT32", -1) + tensor("output", "OUT", "INT32", 1) + tensor("output", "IDX", "UINT32", 1)
    for name in ("repeat", "repeat_too"):
        write_plugin_model(repository, name, "repeat", NO_BATCHES + DECOUPLED + tensors)
    pair = tensor("input", "INPUT0", "INT32", 1) + tensor("input", "INPUT1", "INT32", 1)
    pair += tensor("output", "OUTPUT0", "INT32", 1) + tensor("output", "OUTPUT1", "INT32", 1)
    write_plugin_model(repository, "pair", "identity", NO_BATCHES + pair)
    # Its library has nothing to load it with.
    write_plugin_model(repository, "broken", "identity", NO_BATCHES + IN + OUT + 'default_model_filename: "model.onnx"\n')
    fails = 'parameters { key: "fail_at" value: { string_value: "model_initialize" } }\n'
    write_plugin_model(
        repository,
        "failing",
        "failing",
        NO_BATCHES + tensor("input", "INPUT", "FP32", 1) + tensor("output", "OUTPUT", "FP32", 1) + fails,
    )
    write_plugin_model(repository, "misconfigured", "identity", "max_batch_size: many\n")


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    write_members(folder)
    return folder


@pytest.fixture(scope="module")
def server(repository, tmp_path_factory):
    backends = ensembles.build_backends(tmp_path_factory.mktemp("plugins"))
    with Server(tmp_path_factory.mktemp("server"), repository, EXPLICIT, f"--backend-directory={backends}") as server:
        yield server


def config(*steps, tensors=TENSORS, **more):
    """What stands in a file; the name is put in later."""
    return ensembles.config("E", tensors, *(steps or (FIRST, LAST)), **more)


def write(repository, name, text):
    (repository / name / "1").mkdir(parents=True, exist_ok=True)
    (repository / name / "config.pbtxt").write_text(text.replace('name: "E"', f'name: "{name}"', 1))


def all_told(protocol, server, client, name):
    """Whatever the server tells about a load that fails: its answer, the index and the log."""
    _, answer = refusal(client.load_model, name)
    lines = index(protocol, client).get(name, [])
    return "\n".join([answer, *(reason or "" for _, _, reason in lines), server.log()])


# What a configuration is, and its text; E stands for the ensemble's name.
CONFIGURATIONS = {
    "scheduling without the platform": (
        config().replace('platform: "ensemble"', 'backend: "identity"'),
        "ensemble scheduling cannot be set for model 'E' whose platform is not ensemble",
    ),
    "a backend": (
        config().replace('platform: "ensemble"', 'platform: "ensemble" backend: "identity"'),
        "Ensemble model 'E' must have platform type 'ensemble' and empty backend type",
    ),
    "no scheduling": (
        f'name: "E"\nplatform: "ensemble"\n{TENSORS}',
        "ensemble scheduling must be set for ensemble E whose platform is ensemble",
    ),
    "instances": (
        config(more="instance_group { count: 1 kind: KIND_CPU }\n"),
        "instance group should not be specified for ensemble 'E'",
    ),
    "optimization": (
        config(more="optimization { priority: PRIORITY_MAX }\n"),
        "optimization should not be specified for ensemble 'E'",
    ),
    "warmup": (
        config(more='model_warmup { name: "w" batch_size: 1 }\n'),
        "model_warmup can not be specified for ensemble 'E'",
    ),
    "no steps": (
        f'name: "E"\nplatform: "ensemble"\n{TENSORS}ensemble_scheduling {{ }}\n',
        "must specify 'step' for ensemble 'E'",
    ),
    "no model": (config(FIRST.replace('"one"', '""'), LAST), "must specify 'model_name' in step 0 of ensemble 'E'"),
    "no inputs": (config(FIRST, step("one", {}, {"OUTPUT0": "OUT"})), "must specify 'input_map' in step 1 of ensemble 'E'"),
    "no outputs": (config(FIRST, step("one", {"INPUT0": "middle"}, {})), "must specify 'output_map' in step 1 of ensemble 'E'"),
    "a tensor made twice": (
        config(FIRST, LAST, step("one_more", {"INPUT0": "IN"}, {"OUTPUT0": "middle"})),
        "ensemble tensor 'middle' can appear in an output map only once for ensemble 'E' step 2",
    ),
    "an input nobody takes": (
        config(tensors=TENSORS + tensor("input", "MORE", "FP32", 1)),
        "ensemble input 'MORE' for ensemble E' is not used",
    ),
    "an output nobody makes": (
        config(tensors=TENSORS + tensor("output", "MORE", "FP32", 1)),
        "ensemble output 'MORE' for ensemble E' is not used",
    ),
    "an output that is only read": (
        config(FIRST, step("two", {"INPUT0": "middle", "INPUT1": "OUT"}, {"OUTPUT0": "made"})),
        "output 'OUT' for ensemble 'E' is not written",
    ),
    "an output of a loop": (
        config(
            step("two", {"INPUT0": "IN", "INPUT1": "second"}, {"OUTPUT0": "first", "OUTPUT1": "OUT"}),
            step("one", {"INPUT0": "first"}, {"OUTPUT0": "second"}),
        ),
        "output 'OUT' for ensemble 'E' is not written: at least one of its depending tensors, 'first', is not connected",
    ),
    "an output of an unconnected tensor": (
        config(FIRST, step("two", {"INPUT0": "middle", "INPUT1": "nowhere"}, {"OUTPUT0": "OUT"})),
        "output 'OUT' for ensemble 'E' is not written: at least one of its depending tensors, 'nowhere', is not connected",
    ),
    "a tensor nobody takes": (
        config(FIRST, LAST, step("one_more", {"INPUT0": "IN"}, {"OUTPUT0": "spare"})),
        "ensemble tensor 'spare' is unused in ensemble 'E'",
    ),
    "caching of a decoupled ensemble": (
        config(more=DECOUPLED + "response_cache { enable: true }\n"),
        "Response Cache does not currently support model E with 'decoupled' transaction policy. "
        "Please disable the response cache.",
    ),
}


@pytest.mark.parametrize("what", CONFIGURATIONS)
def test_a_configuration_that_is_no_ensembles_is_refused(protocol, repository, server, client, what):
    text, expected = CONFIGURATIONS[what]
    name = f"{what} {protocol.name}".replace(" ", "_")
    write(repository, name, text)
    assert expected.replace("'E'", f"'{name}'").replace(" E", f" {name}") in all_told(protocol, server, client, name)


INTEGERS = NO_BATCHES + tensor("input", "IN", "INT32", -1) + tensor("output", "OUT", "INT32", 1)


def joined(*names, tensors=None, feeds=None):
    """Streams of decoupled members, which meet in a step."""
    feeds = feeds or {}
    streams = [step(name, {"IN": feeds.get(number, "IN")}, {"OUT": f"stream{number}"}) for number, name in enumerate(names)]
    inputs = {"INPUT0": "stream0", "INPUT1": "stream1" if len(names) > 1 else "LATER"}
    return config(*streams, step("pair", inputs, {"OUTPUT0": "OUT"}), tensors=tensors or INTEGERS)


# Triton names the ensemble here, because the tensor that the step makes is the ensemble's.
STREAMS_MEET = "in ensemble E, step of model '(pair|E)' receives inputs originated from different decoupled models"

# What an ensemble has, a configuration, and its text.
MEMBERS = {
    "a missing member": (
        config(FIRST, step("nobody", {"X": "middle"}, {"Y": "OUT"})),
        "ensemble E contains models that are not available or ambiguous: nobody",
    ),
    "two missing members": (
        config(step("someone", {"X": "IN"}, {"Y": "middle"}), step("nobody", {"X": "middle"}, {"Y": "OUT"})),
        # Triton tells one of them.
        "ensemble E contains models that are not available or ambiguous: (nobody, )?someone",
    ),
    "a version that is not there": (
        config(FIRST.replace("model_version: -1", "model_version: 7"), LAST),
        "ensemble 'E' depends on 'one' whose required version 7 is not loaded.",
    ),
    "no version": (
        config(FIRST.replace("model_version: -1", ""), LAST),
        "ensemble 'E' depends on 'one' whose required version 0 is not loaded.",
    ),
    "a member that cannot be loaded": (
        config(FIRST, step("failing", {"INPUT": "middle"}, {"OUTPUT": "OUT"})),
        "ensemble 'E' depends on 'failing' which has no loaded version. Model 'failing' loading failed with error: "
        "version 1 is at UNAVAILABLE state: Invalid argument: failed as wanted: model_initialize;",
    ),
    "larger batches than a member": (
        config(
            step("batches_of_8", {"INPUT0": "IN"}, {"OUTPUT0": "middle"}),
            step("batches_of_2", {"INPUT0": "middle"}, {"OUTPUT0": "OUT"}),
            tensors="max_batch_size: 4\n" + IN + OUT,
        ),
        "ensemble E allows maximum batch size 4, but it contains model batches_of_2 "
        "which only allows maximum batch size to be 2",
    ),
    "an input that the member does not have": (
        config(step("one", {"INPUT0": "IN", "X": "IN"}, {"OUTPUT0": "OUT"})),
        "in ensemble E, ensemble tensor IN is mapping to non-existing input X in model one",
    ),
    "an output that the member does not have": (
        config(FIRST, step("one", {"INPUT0": "middle"}, {"Y": "OUT"})),
        "in ensemble E, ensemble tensor OUT is mapped from non-existing output Y in model one",
    ),
    "an input of a member that nothing feeds": (
        config(step("two", {"INPUT0": "IN"}, {"OUTPUT0": "OUT"})),
        "in ensemble E, input INPUT1 in model two is not mapped to any ensemble tensors",
    ),
    "another datatype": (
        config(
            FIRST,
            step("texts", {"INPUT0": "middle"}, {"OUTPUT0": "OUT"}),
            tensors=NO_BATCHES + IN + tensor("output", "OUT", "BYTES", 1),
        ),
        "in ensemble E, ensemble tensor middle: inconsistent data type: "
        "(TYPE_FP32 is inferred from model one while TYPE_STRING is inferred from model texts|"
        "TYPE_STRING is inferred from model texts while TYPE_FP32 is inferred from model one)",
    ),
    "another datatype of the ensemble's own input": (
        config(tensors=NO_BATCHES + tensor("input", "IN", "INT32", 1) + OUT),
        "in ensemble E, ensemble tensor IN: inconsistent data type: "
        "(TYPE_FP32 is inferred from model one while TYPE_INT32 is inferred from model E|"
        "TYPE_INT32 is inferred from model E while TYPE_FP32 is inferred from model one)",
    ),
    "another shape": (
        config(
            FIRST,
            step("long", {"INPUT0": "middle"}, {"OUTPUT0": "OUT"}),
            tensors=NO_BATCHES + IN + tensor("output", "OUT", "FP32", 3),
        ),
        "in ensemble E, ensemble tensor middle: inconsistent shape: "
        r"(\[1\] is inferred from model one while \[3\] is inferred from model long|"
        r"\[3\] is inferred from model long while \[1\] is inferred from model one)",
    ),
    "another shape of the ensemble's own output": (
        config(tensors=NO_BATCHES + IN + tensor("output", "OUT", "FP32", 4)),
        "in ensemble E, ensemble tensor OUT: inconsistent shape: "
        r"(\[1\] is inferred from model one while \[4\] is inferred from model E|"
        r"\[4\] is inferred from model E while \[1\] is inferred from model one)",
    ),
    "a shape with another rank": (
        config(
            FIRST,
            step("matrix", {"INPUT0": "middle"}, {"OUTPUT0": "OUT"}),
            tensors=NO_BATCHES + IN + tensor("output", "OUT", "FP32", 1, 1),
        ),
        "in ensemble E, ensemble tensor middle: inconsistent shape: "
        r"(\[1\] is inferred from model one while \[1,1\] is inferred from model matrix|"
        r"\[1,1\] is inferred from model matrix while \[1\] is inferred from model one)",
    ),
    "two streams in one step": (
        joined("repeat", "repeat_too"),
        STREAMS_MEET,
    ),
    "two streams of one model in one step": (
        joined("repeat", "repeat"),
        STREAMS_MEET,
    ),
    "a stream and an input in one step": (
        joined("repeat", tensors=INTEGERS + tensor("input", "LATER", "INT32", 1)),
        STREAMS_MEET,
    ),
    "two streams in a step in the middle": (
        config(
            step("repeat", {"IN": "IN"}, {"OUT": "first"}),
            step("repeat_too", {"IN": "IN"}, {"OUT": "second"}),
            step("pair", {"INPUT0": "first", "INPUT1": "second"}, {"OUTPUT0": "together"}),
            step("pair", {"INPUT0": "together", "INPUT1": "together"}, {"OUTPUT0": "OUT"}),
            tensors=INTEGERS,
        ),
        "in ensemble E, step of model 'pair' receives inputs originated from different decoupled models",
    ),
    "two streams as outputs": (
        config(
            step("repeat", {"IN": "IN"}, {"OUT": "OUT"}),
            step("repeat_too", {"IN": "IN"}, {"OUT": "MORE"}),
            tensors=INTEGERS + tensor("output", "MORE", "INT32", 1),
        ),
        "in ensemble E, step of model 'E' receives inputs originated from different decoupled models",
    ),
    "itself as a member": (
        config(FIRST, step("E", {"IN": "middle"}, {"OUT": "OUT"})),
        "circular dependency between ensembles: E -> ... -> E -> E",
    ),
}


def pattern(expected, name):
    """A text with alternatives in parentheses as a regular expression, with the ensemble's name for E."""
    parts = re.split(r"(\(.*\)\??)", expected)
    plain = [part if part.startswith("(") else re.escape(part) for part in parts]
    return re.sub(r"\bE\b", name, "".join(plain))


@pytest.mark.parametrize("what", MEMBERS)
def test_an_ensemble_that_does_not_fit_its_members_is_refused(protocol, repository, server, client, what):
    text, expected = MEMBERS[what]
    name = re.sub(r"\W", "_", f"{what} {protocol.name}")
    write(repository, name, text.replace('model_name: "E"', f'model_name: "{name}"'))
    told = all_told(protocol, server, client, name)
    assert re.search(pattern(expected, name), told), told[-2000:]
    assert not client.is_model_ready(name)


def test_an_ensemble_with_a_member_that_is_refused_names_the_reason(protocol, repository, server, client):
    inner, outer = f"inner_{protocol.name}", f"outer_{protocol.name}"
    write(repository, inner, config(FIRST, step("nobody", {"X": "middle"}, {"Y": "OUT"})))
    write(repository, outer, config(step(inner, {"IN": "IN"}, {"OUT": "OUT"})))
    why = f"ensemble {inner} contains models that are not available or ambiguous: nobody"
    expected = f"ensemble '{outer}' depends on '{inner}' which is not valid. Model '{inner}' failed with error: {why}"
    assert expected in all_told(protocol, server, client, outer)


def test_a_circle_of_ensembles_is_refused(protocol, repository, server, client):
    names = [f"circle_{number}_{protocol.name}" for number in range(3)]
    for name, after in zip(names, names[1:] + names[:1], strict=True):
        write(repository, name, config(FIRST, step(after, {"IN": "middle"}, {"OUT": "OUT"})))
    told = all_told(protocol, server, client, names[0])
    assert re.search(r"circular dependency between ensembles: circle_\d_\w+ -> \.\.\. -> circle_\d_\w+ -> circle_\d_\w+", told)
    assert not any(client.is_model_ready(name) for name in names)


def test_a_rejected_ensemble_does_not_keep_the_server_from_being_ready(protocol, start, tmp_path):
    folder = tmp_path / "models"
    write(folder, "E", MEMBERS["a missing member"][0])
    with protocol.connect(start(folder, EXPLICIT)) as client:
        refusal(client.load_model, "E")
        assert client.is_server_ready() and client.is_server_live()
        assert index(protocol, client)["E"][0][1] != "READY"


# What is allowed.
GOOD = {
    "a chain": config(),
    "an output of a member that nobody takes": config(step("two", {"INPUT0": "IN", "INPUT1": "IN"}, {"OUTPUT1": "OUT"})),
    "an optional input that nothing feeds": config(
        step("optional", {"INPUT0": "IN"}, {"OUTPUT0": "middle"}), step("one", {"INPUT0": "middle"}, {"OUTPUT0": "OUT"})
    ),
    "any length": config(FIRST, step("any_length", {"INPUT0": "middle"}, {"OUTPUT0": "OUT"})),
    "smaller batches than a member": config(
        step("batches_of_8", {"INPUT0": "IN"}, {"OUTPUT0": "OUT"}), tensors="max_batch_size: 2\n" + IN + OUT
    ),
    "batches and members without": config(
        step("batches_of_8", {"INPUT0": "IN"}, {"OUTPUT0": "middle"}), LAST, tensors="max_batch_size: 8\n" + IN + OUT
    ),
    "no batches and members with": config(step("batches_of_8", {"INPUT0": "IN"}, {"OUTPUT0": "OUT"})),
    "branches of one stream": config(
        step("repeat", {"IN": "IN"}, {"OUT": "stream"}),
        step("pair", {"INPUT0": "stream", "INPUT1": "stream"}, {"OUTPUT0": "OUT"}),
        tensors=INTEGERS,
    ),
    "a version": config(FIRST.replace("model_version: -1", "model_version: 1"), LAST),
}


@pytest.mark.parametrize("what", GOOD)
def test_an_ensemble_that_fits_its_members_is_loaded(protocol, repository, client, what):
    name = f"{what} {protocol.name}".replace(" ", "_")
    write(repository, name, GOOD[what])
    client.load_model(name)
    assert client.is_model_ready(name) and index(protocol, client)[name] == [("1", "READY", None)]


def test_an_ensemble_may_be_configured_by_the_request_that_loads_it(protocol, repository, client):
    name = f"overridden_{protocol.name}"
    write(repository, name, MEMBERS["a missing member"][0])
    one = {"name": "IN", "data_type": "TYPE_FP32", "dims": [1]}
    override = {
        "platform": "ensemble",
        "input": [one],
        "output": [one | {"name": "OUT"}],
        "ensemble_scheduling": {
            "step": [
                {"model_name": "one", "model_version": -1, "input_map": {"INPUT0": "IN"}, "output_map": {"OUTPUT0": "OUT"}}
            ]
        },
    }
    client.load_model(name, config=json.dumps(override))
    result = client.infer(name, [protocol.input("IN", np.array([2.5], np.float32))])
    assert result.as_numpy("OUT").item() == 2.5
