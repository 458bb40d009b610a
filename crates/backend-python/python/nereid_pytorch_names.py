"""Which input of a request is which argument of a network, and which of its values is which output.

TorchScript follows the rules of Triton (src/pt/model_instance_state.cc): names of arguments, or `<name>__<index>`, or else the
order of the configuration. Programs of `torch.export` have paths, such as `ARGS[0]` and `RESULT[key]`, beside `INPUT__<index>`
and `OUTPUT__<index>` (src/pt2/call_spec.cc).
"""

import collections
import json

from nereid_host import TritonModelException
from nereid_server import Logger

# The name of an input, the datatype that the configuration gives it, and whether it is part of a sequence's state.
DeclaredTensor = collections.namedtuple("DeclaredTensor", "name datatype is_state")

# No network has more arguments.
_MOST_DIGITS = 9

_CONTROLS = ("CONTROL_SEQUENCE_START", "CONTROL_SEQUENCE_END", "CONTROL_SEQUENCE_READY", "CONTROL_SEQUENCE_CORRID")


class Declaration:
    """The inputs and outputs of a configuration."""

    def __init__(self, model, config):
        self.model = model
        # Requests run together, along the first dimension.
        self.joins = config.get("max_batch_size", 0) > 0
        sequences = config.get("sequence_batching", {})
        states = sequences.get("state", ())
        self.inputs = [_declared(tensor) for tensor in config.get("input", ())]
        self.outputs = [_declared(tensor) for tensor in config.get("output", ())]
        self.controls = [
            DeclaredTensor(control["name"], None, False)
            for control in sequences.get("control_input", ())
            if any(kind.get("kind", _CONTROLS[0]) in _CONTROLS for kind in control.get("control", ()))
        ]
        self.state_inputs = [DeclaredTensor(state["input_name"], state["data_type"], True) for state in states]
        self.state_outputs = [DeclaredTensor(state["output_name"], state["data_type"], True) for state in states]
        for kind, tensors in (("input", self.inputs), ("output", self.outputs)):
            if not tensors:
                raise TritonModelException(
                    f"model configuration must contain at least one {kind}, none were specified."
                )

    @property
    def all_inputs(self):
        return self.inputs + self.controls + self.state_inputs

    @property
    def all_outputs(self):
        """An output may be a state, too."""
        names = {tensor.name for tensor in self.outputs}
        return self.outputs + [tensor for tensor in self.state_outputs if tensor.name not in names]


def _declared(tensor):
    return DeclaredTensor(tensor["name"], tensor.get("data_type"), False)


def script_inputs(declaration, arguments):
    """The inputs of TorchScript in the order of the arguments, which have these names."""
    every = declaration.all_inputs
    if len(every) != len(arguments):
        raise TritonModelException(
            f"unable to load model '{declaration.model}', configuration expects {len(every)} inputs, "
            f"model provides {len(arguments)}"
        )
    names = [tensor.name for tensor in declaration.inputs]
    if all(name in arguments for name in names) and not declaration.state_inputs:
        places = [arguments.index(name) for name in names]
    else:
        places = _places_by_name_or_order(declaration, "input", names)
    places += [_index_of(declaration, "input", tensor) for tensor in declaration.controls + declaration.state_inputs]
    return _sorted_by_place(declaration, every, places)


def script_outputs(declaration):
    """Pairs of an output and its place among the values of a network that is not exported."""
    names = [tensor.name for tensor in declaration.outputs]
    places = _places_by_name_or_order(declaration, "output", names)
    others = declaration.all_outputs[len(names) :]
    places += [_index_of(declaration, "output", tensor) for tensor in others]
    return list(zip(declaration.all_outputs, places))


def _places_by_name_or_order(declaration, kind, names):
    indices = [index_in(name) for name in names]
    if None not in indices:
        return indices
    if declaration.state_inputs:
        raise TritonModelException(
            f"PyTorch model '{declaration.model}' is using sequence batching with state but not all inputs and outputs "
            "follow the <name>__<index> naming convention. "
        )
    if any("__" in name for name in names):
        Logger.log_warn(
            f"not all {kind}s of model '{declaration.model}' follow the <name>__<index> naming convention: their order in "
            "the configuration counts"
        )
    return list(range(len(names)))


def _index_of(declaration, kind, tensor):
    index = index_in(tensor.name)
    if index is None:
        raise TritonModelException(
            f"{kind} '{tensor.name}' of model '{declaration.model}' does not follow <name>__<index> naming convention."
        )
    return index


def index_in(name):
    """The index of a name `<name>__<index>`, or None."""
    index = name.partition("__")[2]
    return int(index) if index.isascii() and index.isdecimal() and len(index) <= _MOST_DIGITS else None


def _sorted_by_place(declaration, tensors, places):
    ordered = [None] * len(tensors)
    for tensor, place in zip(tensors, places):
        if place >= len(ordered):
            raise TritonModelException(
                f"input '{tensor.name}' of model '{declaration.model}' means argument {place}, but the network has "
                f"{len(ordered)} arguments, from 0 on"
            )
        if ordered[place] is not None:
            raise TritonModelException(
                f"inputs '{ordered[place].name}' and '{tensor.name}' of model '{declaration.model}' mean the same argument"
            )
        ordered[place] = tensor
    return ordered


def exported_inputs(declaration, call_spec, arguments=()):
    """The inputs of an exported program in the order of its tensors. `arguments` are further names of those."""
    paths = _paths(call_spec, ("ARGS", "KWARGS"))
    tensors = declaration.all_inputs
    if len(tensors) != len(paths):
        raise TritonModelException(
            f"unable to load model '{declaration.model}', configuration expects {len(tensors)} inputs, "
            f"model provides {len(paths)}"
        )
    names = _places_of_names("INPUT", paths, arguments)
    places = [_place_in(declaration, "input", tensor, names, paths) for tensor in tensors]
    return _sorted_by_place(declaration, tensors, places)


def exported_outputs(declaration, call_spec):
    """Pairs of an output and its place among the tensors of an exported program."""
    paths = _paths(call_spec, ("RESULT",))
    names = _places_of_names("OUTPUT", paths, ())
    return [
        (tensor, _place_in(declaration, "output", tensor, names, paths)) for tensor in declaration.all_outputs
    ]


def _places_of_names(prefix, paths, arguments):
    names = {name: place for place, name in enumerate(arguments)}
    names.update((path, place) for place, path in enumerate(paths))
    names.update((f"{prefix}__{place}", place) for place in range(len(paths)))
    return names


def _place_in(declaration, kind, tensor, names, paths):
    if tensor.name not in names:
        known = ", ".join(f"{kind.upper()}__{place} or {path}" for place, path in enumerate(paths))
        raise TritonModelException(
            f"{kind} '{tensor.name}' of model '{declaration.model}' is no {kind} of the exported program, which has: {known}"
        )
    return names[tensor.name]


def _paths(call_spec, roots):
    """The paths of the tensors in a specification of `torch.export`, which is JSON."""
    _, tree = json.loads(call_spec)
    if len(roots) == 1:
        return list(_leaves(tree, roots[0]))
    return [path for root, child in zip(roots, tree["children_spec"]) for path in _leaves(child, root)]


def _leaves(tree, path):
    kind, children = tree["type"], tree["children_spec"]
    if kind is None:
        yield path
        return
    if kind == "builtins.dict":
        keys = json.loads(tree["context"])
    elif kind in ("builtins.tuple", "builtins.list") or not children:
        keys = range(len(children))
    else:
        raise TritonModelException(f"'{path}' of the exported program is a {kind}, which is neither dict, tuple nor list")
    for key, child in zip(keys, children):
        yield from _leaves(child, f"{path}[{key}]")
