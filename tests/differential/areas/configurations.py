"""Cases of the area `config`: configurations of models, in files and in the JSON of a load.

A case is a right configuration, as a tree of protobuf's text form, with up to three mutations. Both servers load it; what they
say, or the configuration that they show then, is compared field by field.
"""

import copy
import json
import shutil
from dataclasses import dataclass, field

from differential import documents, models
from differential.answers import DIED, Answer
from differential.exchange import HttpConnection, HttpRequest
from differential.servers import MODELS, NAMES, Pair

MOST_MUTATIONS = 3
NAME = "made"


@dataclass
class ConfigCase:
    text: str
    in_json: bool
    mutations: list = field(default_factory=list)

    def __str__(self):
        where = "the JSON of a load" if self.in_json else "config.pbtxt"
        return f"{where}:\n{self.text}\n    mutations: {', '.join(self.mutations)}"


class Word(str):
    """A word that text form has without quotes, and JSON with them."""

    __slots__ = ()


def draw(choices):
    """A case."""
    case = ConfigCase("", choices.one_in(3))
    tree = right(choices)
    for _ in choices.several(0, MOST_MUTATIONS):
        mutation = choices.one_of(MUTATIONS)
        mutation(tree, choices)
        case.mutations.append(mutation.__name__)
    case.text = json.dumps(tree) if case.in_json else text_of(tree, choices)
    if choices.one_in(10):
        case.text = documents.damage(case.text, choices)
        case.mutations.append("damage")
    return case


def right(choices):
    """A configuration that loads."""
    tree = {"backend": "python"}
    batch = choices.one_of((0, 4, 1, 64))
    if batch or choices.one_in(2):
        tree["max_batch_size"] = batch
    tree["input"] = [tensor("IN", choices)]
    tree["output"] = [tensor("OUT", choices)]
    for name, part in PARTS.items():
        if choices.one_in(12):
            tree[name] = copy.deepcopy(part(choices, batch))
    return tree


def tensor(name, choices):
    found = {"name": name, "data_type": Word(f"TYPE_{choices.one_of(('INT32', 'FP32', 'STRING', 'BOOL', 'FP16', 'BF16'))}")}
    found["dims"] = [choices.one_of((1, 2, -1, 16)) for _ in range(choices.between(1, 3))]
    if choices.one_in(8):
        found["reshape"] = {"shape": choices.one_of((found["dims"], [1, *found["dims"]], [], [4]))}
    if choices.one_in(8) and name == "IN":
        found["optional"] = True
    if choices.one_in(10) and name == "IN":
        found["allow_ragged_batch"] = choices.one_in(2)
    if choices.one_in(10) and name == "IN":
        found["format"] = Word(choices.one_of(("FORMAT_NONE", "FORMAT_NCHW", "FORMAT_NHWC")))
    if choices.one_in(10) and name == "OUT":
        found["label_filename"] = choices.one_of(("labels.txt", "none.txt"))
    return found


def policy(choices):
    found = {}
    if choices.one_in(2):
        found["timeout_action"] = Word(choices.one_of(("REJECT", "DELAY")))
    if choices.one_in(2):
        found["default_timeout_microseconds"] = choices.one_of((0, 1000, 2**40))
    if choices.one_in(2):
        found["allow_timeout_override"] = True
    if choices.one_in(2):
        found["max_queue_size"] = choices.one_of((0, 8, 2**31))
    return found


def dynamic_batching(choices, batch):
    found = {}
    if choices.one_in(2):
        found["preferred_batch_size"] = [choices.one_of((2, 4, 1, 0, 100))]
    if choices.one_in(2):
        found["max_queue_delay_microseconds"] = choices.one_of((100, 0, 2**40))
    if choices.one_in(3):
        found["preserve_ordering"] = True
    if choices.one_in(3):
        found["priority_levels"] = choices.one_of((2, 1, 0))
        found["default_priority_level"] = choices.one_of((1, 2, 0, 3))
    if choices.one_in(3):
        found["default_queue_policy"] = policy(choices)
    if choices.one_in(4):
        found["priority_queue_policy"] = [{"key": choices.one_of((1, 2, 3, 0)), "value": policy(choices)}]
    return found


def control(name, kind, choices):
    values = {f"{choices.one_of(('int32', 'fp32', 'bool'))}_false_true": choices.one_of(([0, 1], [1, 0], [0], []))}
    if kind == "CORRID":
        values = {"data_type": Word(choices.one_of(("TYPE_UINT64", "TYPE_STRING", "TYPE_INT32", "TYPE_FP32")))}
    return {"name": name, "control": [{"kind": Word(f"CONTROL_SEQUENCE_{kind}"), **values}]}


def sequence_batching(choices, batch):
    found = {}
    if choices.one_in(2):
        found["direct"] = {}
        if choices.one_in(2):
            found["direct"]["max_queue_delay_microseconds"] = choices.one_of((100, 0))
        if choices.one_in(2):
            found["direct"]["minimum_slot_utilization"] = choices.one_of((0.5, 0, 1, 2))
    elif choices.one_in(2):
        found["oldest"] = {"max_candidate_sequences": choices.one_of((4, 0, 1))}
    if choices.one_in(3):
        found["max_sequence_idle_microseconds"] = choices.one_of((1000000, 0, 2**50))
    kinds = [kind for kind in ("START", "END", "READY", "CORRID") if choices.one_in(2)]
    if kinds:
        found["control_input"] = [control(kind, kind, choices) for kind in kinds]
    if choices.one_in(4):
        found["state"] = [{"input_name": "S", "output_name": "T", "data_type": Word("TYPE_INT32"), "dims": [1]}]
    return found


POLICIES = (
    {"latest": {"num_versions": 1}},
    {"latest": {"num_versions": 0}},
    {"all": {}},
    {"specific": {"versions": [1]}},
    {"specific": {}},
)
OPTIMIZATIONS = (
    {"priority": Word("PRIORITY_MAX")},
    {"graph": {"level": -1}},
    {"input_pinned_memory": {"enable": False}},
    {"cuda": {"graphs": True}},
)
PARTS = {
    "name": lambda choices, batch: choices.one_of((NAME, "other")),
    "instance_group": lambda choices, batch: [
        {"count": choices.one_of((1, 0, 2, -1)), "kind": Word(f"KIND_{choices.one_of(('CPU', 'AUTO', 'MODEL', 'GPU'))}")}
    ],
    "dynamic_batching": dynamic_batching,
    "sequence_batching": sequence_batching,
    "version_policy": lambda choices, batch: choices.one_of(POLICIES),
    "parameters": lambda choices, batch: [{"key": "a", "value": {"string_value": choices.one_of(("x", "", "\u00e9"))}}],
    "model_transaction_policy": lambda choices, batch: {"decoupled": choices.one_in(2)},
    "response_cache": lambda choices, batch: {"enable": choices.one_in(2)},
    "optimization": lambda choices, batch: choices.one_of(OPTIMIZATIONS),
    "model_warmup": lambda choices, batch: [
        {
            "name": "w",
            "batch_size": choices.one_of((1, 0, 2)),
            "inputs": [{"key": "IN", "value": {"data_type": Word("TYPE_INT32"), "dims": [1], "zero_data": True}}],
        }
    ],
    "default_model_filename": lambda choices, batch: choices.one_of(("model.py", "none.py", "")),
    "cc_model_filenames": lambda choices, batch: [{"key": "7.0", "value": "model.py"}],
    "metric_tags": lambda choices, batch: [{"key": choices.one_of(("a", "b_c")), "value": "v"}],
    "runtime": lambda choices, batch: choices.one_of(("", "x")),
    "model_operations": lambda choices, batch: {"op_library_filename": ["x.so"]},
    "batch_input": lambda choices, batch: [
        {
            "kind": Word(choices.one_of(("BATCH_ELEMENT_COUNT", "BATCH_ACCUMULATED_ELEMENT_COUNT"))),
            "target_name": ["N"],
            "data_type": Word("TYPE_FP32"),
            "source_input": [choices.one_of(("IN", "none"))],
        }
    ],
    "platform": lambda choices, batch: choices.one_of(("", "onnxruntime_onnx", "ensemble", "x")),
}


def remove(tree, choices):
    documents.remove(tree, choices)


def replace(tree, choices):
    """Another value of the same kind, or of another one."""
    found = documents.places(tree)
    path = choices.one_of(found)
    documents.parent(tree, path)[path[-1]] = copy.deepcopy(choices.one_of(VALUES))


VALUES = (
    0, 1, -1, 2, 1.5, 2**31, 2**32, 2**63, 2**64, -(2**63) - 1, "", "x", "IN", "../x", "a/b", True, False,
    Word("TYPE_INVALID"), Word("TYPE_X"), Word("KIND_GPU"), Word("X"), {}, [], [1], [0, 0], {"x": 1},
)  # fmt: skip


def rename(tree, choices):
    documents.rename(tree, choices)


def repeat(tree, choices):
    documents.repeat(tree, choices)


def another_part(tree, choices):
    name = choices.one_of(PARTS)
    tree[name] = copy.deepcopy(PARTS[name](choices, tree.get("max_batch_size", 0)))


def another_tensor(tree, choices):
    kind = choices.one_of(("input", "output"))
    if isinstance(tree.get(kind), list):
        tree[kind].append(tensor(choices.one_of(("MORE", "IN", "OUT", "")), choices))


MUTATIONS = (remove, replace, replace, replace, rename, repeat, another_part, another_part, another_tensor)


def text_of(tree, choices, indent=""):
    """The text form of protobuf. Where it has several ways to say the same, one is chosen."""
    lines = []
    for name, value in tree.items():
        values = value if isinstance(value, list) else [value]
        is_plain = isinstance(value, list) and not any(isinstance(one, dict | list) for one in value)
        if value and is_plain and choices.one_in(2):
            lines.append(f"{indent}{name}: [ {', '.join(map(scalar, values))} ]")
            continue
        for one in values:
            if isinstance(one, dict):
                colon = ":" if choices.one_in(4) else ""
                lines.append(f"{indent}{name}{colon} {{\n{text_of(one, choices, indent + '  ')}\n{indent}}}")
            elif isinstance(one, list):
                lines.append(f"{indent}{name}: [ {', '.join(map(scalar, one))} ]")
            else:
                lines.append(f"{indent}{name}: {scalar(one)}")
    return "\n".join(lines)


def scalar(value):
    if isinstance(value, Word):
        return str(value)
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)


class ConfigArea:
    """Both servers without models, and the folder of a model in their repository."""

    name = "config"
    most_tries = 60
    must_come_again = 0
    draw = staticmethod(draw)

    def __enter__(self):
        self._pair = Pair([models.echo("one", 0, ("A", "INT32", (1,)))]).__enter__()
        self._folder = self._pair.repository / NAME
        self._connect()
        return self

    def __exit__(self, *failure):
        self._pair.__exit__(*failure)

    def _connect(self):
        self._connections = [HttpConnection(server.http) for server in (self._pair.triton, self._pair.nereid)]

    def ask(self, case):
        """What both say of the configuration."""
        shutil.rmtree(self._folder, ignore_errors=True)
        (self._folder / "1").mkdir(parents=True)
        shutil.copy(MODELS / "idle.py", self._folder / "1" / "model.py")
        (self._folder / "labels.txt").write_text("a\nb\n")
        (self._folder / "config.pbtxt").write_text('backend: "python"\n' if case.in_json else case.text)
        body = json.dumps({"parameters": {"config": case.text}}) if case.in_json else "{}"
        load = HttpRequest("POST", f"/v2/repository/models/{NAME}/load", (), body.encode(errors="surrogatepass"))
        answers = [self._of(connection, load) for connection in self._connections]
        dead = self._pair.revive(answers)
        if dead:
            self._connect()
        return [[Answer(DIED)] if server in dead else given for server, given in zip(NAMES, answers, strict=True)]

    def _of(self, connection, load):
        """The error of the load with its reason, or what the server shows of the model."""
        loaded = connection.ask(load)
        if loaded.code != "200":
            return [Answer(loaded.code, loaded.text)]
        shown = [connection.ask(HttpRequest("GET", f"/v2/models/{NAME}{what}")) for what in ("/config", "")]
        connection.ask(HttpRequest("POST", f"/v2/repository/models/{NAME}/unload", (), b"{}"))
        return shown
