"""A stand-in for PyTorch, as far as the backend `pytorch` uses it: tensors are arrays of NumPy.

TorchScript is an archive with a member `code/network.py`, whose function `forward` is the network.
"""

import contextlib
import inspect
import types
import zipfile

import numpy as np

__version__ = "stand-in"

# What the backend has set, for tests.
settings = {}


class dtype:
    def __init__(self, name, numpy_type):
        self.name, self.numpy_type = name, numpy_type

    def __repr__(self):
        return f"torch.{self.name}"


_NAMES = {"bool": "bool", "uint8": "u1", "int8": "i1", "int16": "i2", "int32": "i4", "int64": "i8"}
_NAMES |= {"float16": "f2", "bfloat16": "V2", "float32": "f4", "float64": "f8", "complex64": "c8"}
_TYPES = {np.dtype(code): dtype(name, np.dtype(code)) for name, code in _NAMES.items()}
globals().update({kind.name: kind for kind in _TYPES.values()})


class device:
    def __init__(self, kind, index=None):
        self.type, self.index = kind, index

    def __eq__(self, other):
        return (self.type, self.index) == (other.type, other.index)


class Tensor:
    def __init__(self, array):
        self.array = np.asarray(array)
        self.dtype = _TYPES[self.array.dtype]
        self.shape = self.array.shape
        self.device = device("cpu")
        self.requires_grad, self.is_cpu = False, True

    def dim(self):
        return self.array.ndim

    def item(self):
        return self.array.item()

    def numpy(self):
        return self.array

    def detach(self):
        return self

    cpu = contiguous = detach

    def is_contiguous(self):
        return self.array.flags.c_contiguous

    def __add__(self, other):
        return Tensor(self.array + _array(other))

    def __sub__(self, other):
        return Tensor(self.array - _array(other))

    def __mul__(self, other):
        return Tensor(self.array * _array(other))

    def __getitem__(self, index):
        return Tensor(self.array[index])


def _array(value):
    return value.array if isinstance(value, Tensor) else value


from_numpy = Tensor


def cat(values):
    settings["joined"] = len(values)
    return Tensor(np.concatenate([value.array for value in values]))


def split(value, rows):
    return [Tensor(part) for part in np.split(value.array, np.cumsum(rows)[:-1])]


def sum(value):
    return Tensor(value.array.sum())


def _mode(name):
    @contextlib.contextmanager
    def mode():
        settings["mode"] = name
        yield

    return mode


inference_mode, no_grad = _mode("inference"), _mode("no gradients")


def _setter(name):
    return lambda value: settings.__setitem__(name, value)


set_num_threads, set_num_interop_threads = _setter("threads"), _setter("interop threads")
backends = types.SimpleNamespace(cudnn=types.SimpleNamespace(enabled=True))
cuda = types.SimpleNamespace(is_available=lambda: False)
_C = types.SimpleNamespace(
    _set_graph_executor_optimize=_setter("optimize"),
    _jit_set_profiling_executor=_setter("executor"),
    _jit_set_profiling_mode=_setter("profiling"),
    _jit_set_texpr_fuser_enabled=_setter("fuser"),
)


def get_num_interop_threads():
    return settings.get("interop threads", 0)


class Module:
    def __call__(self, *arguments):
        return self.forward(*arguments)

    def to(self, device):
        return self

    def eval(self):
        return self

    def parameters(self):
        return iter(())

    def load_state_dict(self, state):
        vars(self).update(state)


nn = types.SimpleNamespace(Module=Module)


def compile(network, **options):
    settings["compile"] = options
    return network


def load(path, map_location, weights_only):
    assert weights_only
    with zipfile.ZipFile(path) as archive:
        return {"weight": float(archive.read("weights/data.pkl"))}


_KINDS = {"dict": "DictType", "list": "ListType", "int": "IntType", "str": "StringType"}


class _Script(Module):
    def __init__(self, function):
        self.forward = function
        arguments = [types.SimpleNamespace(name="self", type=_Type("ClassType"))]
        for name, parameter in inspect.signature(function).parameters.items():
            kind = getattr(parameter.annotation, "__name__", "")
            arguments.append(types.SimpleNamespace(name=name, type=_Type(_KINDS.get(kind, "TensorType"))))
        function.schema = types.SimpleNamespace(arguments=arguments)


class _Type(str):
    def kind(self):
        return str(self)


def _load_script(path, map_location):
    with zipfile.ZipFile(path) as archive:
        source = archive.read("network/code/network.py").decode()
    names = {}
    exec(compile_source(source, path), names)
    return _Script(names["forward"])


def compile_source(source, path):
    import builtins

    return builtins.compile(source, path, "exec")


jit = types.SimpleNamespace(load=_load_script)
