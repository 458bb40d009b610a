"""The models of a campaign: what each answers, and who is a member of whom.

All tensors are INT64. A model whose files change has a generation, a number that each of its answers contains.

| model | does |
|---|---|
| plain | network: Y = X + 1, in batches |
| cached | the same, with a response cache |
| sum_direct, sum_oldest | networks: Y = the sum of the sequence's X, by implicit state |
| py_plain | Python: Y = X + 1, in batches |
| py_concurrent | Python: the same by coroutines, four executions at the same time |
| py_decoupled | Python, decoupled: Y = X, X + 1, ... as often as COUNT says |
| py_later | Python, decoupled: the same from a thread of its own, after `execute` has returned |
| py_caller | Python: Y = X + 2, by calls of `plain` and `py_plain` |
| py_sum | Python: Y = the sum of the sequence's X, kept by the model |
| plug_echo | plug-in in C: OUTPUT0 = INPUT0 |
| plug_later | the same; the plug-in answers from a thread of its own |
| chain | plain, py_plain, plug_echo: Y = X + 2 |
| chain_nested | chain, plug_later, cached: Y = X + 3 |
| chain_cached | plain, cached, with a response cache: Y = X + 2 |
| sum_chain | py_plain, sum_direct: the sum of X + 1 |
| sum_nested | plain, sum_chain, plug_echo: the sum of X + 2 |
| sum_oldest_chain | plain, py_concurrent, sum_oldest: the sum of X + 2 |
| sum_python_chain | plain, py_sum: the sum of X + 1 |
| decoupled_chain | py_decoupled, plain: Y = X + 1, X + 2, ... |
"""

import types
from dataclasses import dataclass


@dataclass(frozen=True)
class Model:
    """What a model answers: the output `y` is the input `x` + `adds`, or the sum of them in a sequence.

    `generations` has the outputs that are the generation of a model: its own, or that of a member.
    """

    name: str
    adds: int
    generations: types.MappingProxyType
    members: tuple = ()
    x: str = "X"
    y: str = "Y"


def of(name, adds, *members, **generations):
    return Model(name, adds, types.MappingProxyType(generations), members)


def plugin(name):
    return Model(name, 0, types.MappingProxyType({}), x="INPUT0", y="OUTPUT0")


STATELESS = (
    of("plain", 1, GEN="plain"),
    of("cached", 1, GEN="cached"),
    of("py_plain", 1, GEN="py_plain"),
    of("py_concurrent", 1, GEN="py_concurrent"),
    plugin("plug_echo"),
    plugin("plug_later"),
    of("py_caller", 2, "plain", "py_plain", GEN_PLAIN="plain", GEN_PY="py_plain"),
    of("chain", 2, "plain", "py_plain", "plug_echo", GEN_PLAIN="plain", GEN_PY="py_plain"),
    of("chain_nested", 3, "chain", "plug_later", "cached", GEN_PLAIN="plain", GEN_PY="py_plain", GEN_CACHED="cached"),
    of("chain_cached", 2, "plain", "cached", GEN_PLAIN="plain", GEN_CACHED="cached"),
)
SEQUENCES = (
    of("sum_direct", 0, GEN="sum_direct"),
    of("sum_oldest", 0, GEN="sum_oldest"),
    of("py_sum", 0, GEN="py_sum"),
    of("sum_chain", 1, "py_plain", "sum_direct", GEN="sum_direct"),
    of("sum_nested", 2, "plain", "sum_chain", "plug_echo", GEN="sum_direct"),
    of("sum_oldest_chain", 2, "plain", "py_concurrent", "sum_oldest", GEN="sum_oldest"),
    of("sum_python_chain", 1, "plain", "py_sum", GEN="py_sum"),
)
STREAMED = (
    of("py_decoupled", 0, GEN="py_decoupled"),
    of("py_later", 0, GEN="py_later"),
    of("decoupled_chain", 1, "py_decoupled", "plain", GEN_PY="py_decoupled", GEN_PLAIN="plain"),
)
MODELS = {model.name: model for model in STATELESS + SEQUENCES + STREAMED}


def with_members(name):
    """A model, and all models that its answers come from."""
    found = {name}
    for member in MODELS[name].members:
        found |= with_members(member)
    return found


def with_dependents(names):
    """Models, and all whose answers come from them."""
    return {name for name in MODELS if not with_members(name).isdisjoint(names)}


# Members come before their ensembles.
IN_ORDER = sorted(MODELS, key=lambda name: (len(with_members(name)), name))
PYTHON = [name for name in IN_ORDER if name.startswith("py_")]
ENSEMBLES = [name for name, model in MODELS.items() if model.members and name not in PYTHON]
WITH_INSTANCES = [name for name in IN_ORDER if name not in ENSEMBLES]
WITH_GENERATIONS = [name for name in WITH_INSTANCES if MODELS[name].generations and not MODELS[name].members]
# What the actions of a kind may concern.
CONCERNED = {
    "reload": WITH_GENERATIONS + ENSEMBLES,
    "reload_broken": WITH_GENERATIONS,
    "instances": WITH_INSTANCES,
    "unload": IN_ORDER,
    "kill_worker": PYTHON,
    "pause_worker": PYTHON,
}
