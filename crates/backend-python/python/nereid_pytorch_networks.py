"""The kinds of network: how each is loaded, what its arguments are, and how it is called.

A network has `inputs`, the declared inputs in the order of its arguments; `outputs`, pairs of a declared output and its place
among the values; and `run`, which takes the arguments and returns a list of values, or a dictionary of them.
"""

import importlib.util
import os
import shutil
import sys
import warnings

import nereid_pytorch_names as names
from nereid_host import TritonModelException
from nereid_pytorch_files import FileKind, weights_beside
from nereid_pytorch_tensors import BadTensor, is_strings
from nereid_server import Logger
from nereid_torch import torch

# Whoever serves a model cannot change its file.
warnings.filterwarnings("ignore", message=r"`torch\.jit\..*deprecated")

_NUMBERS = {"IntType": int, "FloatType": float, "BoolType": bool}


def load(path, kind, declaration, device, parameters):
    """The network in a file. `device` is None if the network chooses its own."""
    arguments = path, declaration, device
    if kind == FileKind.SOURCE:
        return SourceNetwork(*arguments, parameters.compile_options)
    if kind == FileKind.EXPORTED:
        return ExportedProgram(*arguments)
    return CompiledPackage(*arguments) if kind == FileKind.COMPILED else TorchScript(*arguments)


def _values(returned):
    """The values of what a network has returned."""
    if isinstance(returned, torch.Tensor) or is_strings(returned):
        return [returned]
    if isinstance(returned, (tuple, list)):
        return returned
    if isinstance(returned, dict):
        return returned
    raise BadTensor(
        "output must be of type Tensor, List[str], or a tuple, list or dictionary of these types, found type "
        f"'{type(returned).__name__}'"
    )


class TorchScript:
    """What `torch.jit.save` has written."""

    def __init__(self, path, declaration, device):
        self._module = torch.jit.load(path, map_location=device)
        self._module.eval()
        arguments = [argument for argument in self._module.forward.schema.arguments if argument.type.kind() != "ClassType"]
        kinds = [argument.type.kind() for argument in arguments]
        self._is_dict = kinds == ["DictType"]
        self._numbers = {}
        if self._is_dict:
            self.inputs = declaration.all_inputs
        else:
            self._check_types(declaration, arguments)
            self.inputs = names.script_inputs(declaration, [argument.name for argument in arguments])
            self._numbers = {place: _NUMBERS[kind] for place, kind in enumerate(kinds) if kind in _NUMBERS}
        self.outputs = names.script_outputs(declaration)

    @property
    def joins_requests(self):
        """A number cannot be that of several requests."""
        return not self._numbers

    def device(self):
        return next((parameter.device for parameter in self._module.parameters()), None)

    def _check_types(self, declaration, arguments):
        for argument in arguments:
            kind = argument.type.kind()
            if kind == "DictType":
                raise TritonModelException(
                    "Multiple inputs of kind DictType were detected. Only a single input of type Dict(str, Tensor) is "
                    "supported."
                )
            if kind not in ("TensorType", "ListType", *_NUMBERS):
                raise TritonModelException(
                    f"An input of type '{argument.type}' was detected in the model. Only a single input of type "
                    "Dict(str, Tensor) or input(s) of type Tensor are supported."
                )

    def run(self, arguments):
        if self._is_dict:
            arguments = [{tensor.name: value for tensor, value in zip(self.inputs, arguments)}]
        for place, number in self._numbers.items():
            arguments[place] = number(arguments[place].item())
        return _values(self._module.forward(*arguments))


class ExportedProgram:
    """What `torch.export.save` has written."""

    joins_requests = True

    def __init__(self, path, declaration, device):
        program = torch.export.load(path)
        if device is not None and any(tensor.device != device for tensor in program.state_dict.values()):
            from torch.export.passes import move_to_device_pass

            program = move_to_device_pass(program, device)
        self._module = program.module()
        # Its guards check the shapes. What is checked besides is the form of the arguments, which is right here, and that
        # takes longer than a small network. Older versions have no guards.
        if hasattr(self._module, "_guards_fn"):
            self._module.validate_inputs = False
        self._in_spec, out_spec = program.call_spec.in_spec, program.call_spec.out_spec
        arguments = [name for name in program.graph_signature.user_inputs if isinstance(name, str)]
        self.inputs = names.exported_inputs(declaration, _dumped(self._in_spec), arguments)
        self.outputs = names.exported_outputs(declaration, _dumped(out_spec))
        self._flatten, self._unflatten = _tree_functions()
        # To take a tree apart takes longer than a small network.
        arguments, named = self._numbered(self._in_spec)
        self._takes_places = arguments == tuple(range(self._in_spec.num_leaves)) and not named
        self._returns_one = self._numbered(out_spec) == 0

    def device(self):
        return next((parameter.device for parameter in self._module.parameters()), None)

    def run(self, arguments):
        if self._takes_places:
            returned = self._module(*arguments)
        else:
            arguments, named = self._unflatten(arguments, self._in_spec)
            returned = self._module(*arguments, **named)
        return [returned] if self._returns_one else self._flatten(returned)[0]

    def _numbered(self, spec):
        """A tree of this form, whose leaves are their places."""
        return self._unflatten(range(spec.num_leaves), spec)


def _dumped(spec):
    from torch.utils._pytree import treespec_dumps

    return treespec_dumps(spec)


def _tree_functions():
    from torch.utils._pytree import tree_flatten, tree_unflatten

    return tree_flatten, tree_unflatten


class CompiledPackage:
    """What AOTInductor has written: machine code."""

    joins_requests = True

    def __init__(self, path, declaration, device):
        # Without these checks, which the code reads once, an input of a wrong shape lets it read foreign memory.
        os.environ["AOTI_RUNTIME_CHECK_INPUTS"] = "1"
        # PyTorch 2.10 uses the module for the load, and does not import it.
        importlib.import_module("torch._inductor.codecache")
        from torch._inductor import aoti_load_package

        on_gpu = device is not None and device.type == "cuda"
        loader = aoti_load_package(path, device_index=device.index if on_gpu else -1).loader
        self._kind = loader.get_metadata().get("AOTI_DEVICE_KEY", "cpu")
        if device is not None and self._kind != device.type:
            raise TritonModelException(f"'{path}' is compiled for '{self._kind}', and its instances are on '{device.type}'")
        in_spec, out_spec = loader.get_call_spec()
        self.inputs = names.exported_inputs(declaration, in_spec)
        self.outputs = names.exported_outputs(declaration, out_spec)
        self._loader = loader
        self._joins = declaration.joins
        self._doubles_rows = False
        # Versions before 2.7 have only the other one.
        self._run = getattr(loader, "boxed_run", loader.run)

    def device(self):
        return torch.device(self._kind)

    def run(self, arguments):
        if not self._joins or arguments[0].shape[:1] != (1,):
            return self._run(list(arguments))
        return self._run_one_row(arguments)

    def _run_one_row(self, arguments):
        """Code for a number of rows that is not fixed may refuse one row: it then gets the row twice."""
        if not self._doubles_rows:
            try:
                return self._run(list(arguments))
            except RuntimeError:
                returned = self._run_twice(arguments)
                self._doubles_rows = True
                return returned
        return self._run_twice(arguments)

    def _run_twice(self, arguments):
        return [value[:1] for value in self._run([torch.cat((value, value)) for value in arguments])]


class SourceNetwork:
    """A class in a file in Python, with weights in another file."""

    joins_requests = True

    def __init__(self, path, declaration, device, compile_options):
        network = _network_class(declaration.model, path)()
        weights = weights_beside(path)
        if weights is not None:
            network.load_state_dict(torch.load(weights, map_location=device, weights_only=True))
        if device is not None:
            network.to(device)
        network.eval()
        self._network = network
        self._run = _compiled(declaration.model, network, device, compile_options)
        # As Triton: src/model.py. Neither names nor controls of sequences count.
        self.inputs = declaration.inputs
        self.outputs = [(tensor, place) for place, tensor in enumerate(declaration.outputs)]
        if declaration.state_inputs:
            raise TritonModelException(
                f"model '{declaration.model}' is a class in Python, which cannot have the states of sequences: save it as "
                "TorchScript"
            )

    def device(self):
        return next((parameter.device for parameter in self._network.parameters()), None)

    def run(self, arguments):
        return _values(self._run(*arguments))


def _compiled(model, network, device, options):
    """The network as `torch.compile` makes it, unless that needs a compiler which is not there."""
    needs_compiler = device is None or device.type == "cpu"
    compilers = os.environ.get("CXX", "g++"), "clang++"
    if options or not needs_compiler or any(map(shutil.which, compilers)):
        return torch.compile(network, **options)
    Logger.log_warn(f"model '{model}' is not compiled, and slower: torch.compile needs a compiler of C++, as g++")
    return network


def _network_class(model, path):
    """The first class by name, as in Triton; but classes that the file only imports come last."""
    name = f"network_of_{model}"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    found = [value for _, value in sorted(vars(module).items()) if _is_network(value)]
    found.sort(key=lambda network: network.__module__ != name)
    if not found:
        raise TritonModelException(f"'{path}' has no subclass of torch.nn.Module")
    return found[0]


def _is_network(value):
    return isinstance(value, type) and issubclass(value, torch.nn.Module)
