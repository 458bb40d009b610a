"""DLPack for memory of the CPU: tensors as capsules, and capsules as arrays.

NumPy's own DLPack cannot do this: it knows no BF16, and it refuses memory that may only be read. The structures are those of
`dlpack.h`.
"""

import ctypes

import numpy as np

from nereid_host import TritonModelException

CPU = (1, 0)
_CUDA, _CUDA_HOST = 2, 3

_INT, _UINT, _FLOAT, _BFLOAT, _BOOL = 0, 1, 2, 4, 6
_TYPE_OF = {
    "BOOL": (_BOOL, 8),
    "UINT8": (_UINT, 8),
    "UINT16": (_UINT, 16),
    "UINT32": (_UINT, 32),
    "UINT64": (_UINT, 64),
    "INT8": (_INT, 8),
    "INT16": (_INT, 16),
    "INT32": (_INT, 32),
    "INT64": (_INT, 64),
    "FP16": (_FLOAT, 16),
    "FP32": (_FLOAT, 32),
    "FP64": (_FLOAT, 64),
    "BF16": (_BFLOAT, 16),
}
_DATATYPE_OF = {wanted: name for name, wanted in _TYPE_OF.items()}


class _Device(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int32), ("number", ctypes.c_int32)]


class _DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _ManagedTensor(ctypes.Structure):
    pass


# The deleter takes an address: a pointer object would be made for nothing.
_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_CapsuleDestructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_ManagedTensor._fields_ = [("tensor", _DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]

_UNUSED, _USED = b"dltensor", b"used_dltensor"

# Not `ctypes.pythonapi`: other libraries say there how they call the same functions.
_python = ctypes.PyDLL(None)
_capsule_new = _python.PyCapsule_New
_capsule_new.restype, _capsule_new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
# A capsule is given by its address: its destructor runs when no reference may be taken any more.
_capsule_is_valid = _python.PyCapsule_IsValid
_capsule_is_valid.restype, _capsule_is_valid.argtypes = ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p]
_capsule_pointer = _python.PyCapsule_GetPointer
_capsule_pointer.restype, _capsule_pointer.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p]
_capsule_set_name = _python.PyCapsule_SetName
_capsule_set_name.restype, _capsule_set_name.argtypes = ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p]

# What is lent out, by the address of its structure, until its user calls the deleter.
_lent = {}


@_Deleter
def _give_back(address):
    _lent.pop(address, None)


@_CapsuleDestructor
def _drop_capsule(capsule):
    # A capsule that nobody used still owns its structure.
    if _capsule_is_valid(capsule, _UNUSED):
        _lent.pop(_capsule_pointer(capsule, _UNUSED), None)


# Libraries may call these when the interpreter ends. They must outlive this module.
for _function in (_give_back, _drop_capsule):
    _python.Py_IncRef(ctypes.py_object(_function))

_GIVE_BACK = ctypes.cast(_give_back, ctypes.c_void_p).value
_DROP_CAPSULE = ctypes.cast(_drop_capsule, ctypes.c_void_p).value


def export(datatype, shape, array, owner):
    """A capsule of the memory of the contiguous `array`. `owner` lives until the capsule's user has done with it."""
    managed = _ManagedTensor()
    dims = (ctypes.c_int64 * len(shape))(*shape)
    tensor = managed.tensor
    tensor.data = array.__array_interface__["data"][0]
    tensor.device = _Device(*CPU)
    tensor.ndim = len(shape)
    code, bits = _TYPE_OF[datatype]
    tensor.dtype = _DataType(code, bits, 1)
    tensor.shape = dims
    managed.deleter = _GIVE_BACK
    address = ctypes.addressof(managed)
    _lent[address] = (managed, dims, array, owner)
    return _capsule_new(address, _UNUSED, _DROP_CAPSULE)


class _Foreign:
    """Memory of another library. It is given back when the last array over it is gone."""

    def __init__(self, address):
        self._address = address
        self.managed = _ManagedTensor.from_address(address)
        self.__array_interface__ = None

    def __del__(self):
        if self.managed.deleter:
            _Deleter(self.managed.deleter)(self._address)


def take(source):
    """Takes a capsule, or what `__dlpack__` gives.

    Returns the datatype, and an array over the same memory; that of BF16 has the type uint16.
    """
    if type(source).__name__ == "PyCapsule":
        return _take_capsule(source)
    if not hasattr(source, "__dlpack__") or not hasattr(source, "__dlpack_device__"):
        raise TritonModelException(
            "Provided tensor is not supported. Tensor must be a DLPack capsule "
            "or have `__dlpack__` and `__dlpack_device__` attributes"
        )
    _check_device(int(source.__dlpack_device__()[0]))
    return _take_capsule(source.__dlpack__(stream=None))


def _check_device(kind):
    if kind == _CUDA:
        raise TritonModelException(
            "DLPack capsule passed pointer to memory allocated on GPU device, when GPU is not available"
        )
    if kind not in (CPU[0], _CUDA_HOST):
        raise TritonModelException(f"DLDevice type {kind} is not support by Python backend.")


def _take_capsule(capsule):
    if not _capsule_is_valid(id(capsule), _UNUSED):
        raise TritonModelException("the DLPack capsule was used before, or is not a capsule named 'dltensor'")
    address = _capsule_pointer(id(capsule), _UNUSED)
    tensor = _ManagedTensor.from_address(address).tensor
    shape = tuple(tensor.shape[: tensor.ndim])
    _check_device(tensor.device.kind)
    if tensor.strides and not _is_contiguous(shape, tensor.strides[: tensor.ndim]):
        raise TritonModelException(
            "DLPack tensor is not contiguous. Only contiguous DLPack tensors that are stored in C-Order are supported."
        )
    code, bits, lanes = tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes
    if code == _BFLOAT and bits != 16:
        raise TritonModelException(f"Expected BF16 tensor to have 16 bits, but had: {bits}")
    datatype = _DATATYPE_OF.get((code, bits)) if lanes == 1 else None
    if datatype is None:
        raise TritonModelException("Dtype is invalid.")

    # From here on the memory is this package's to give back.
    _capsule_set_name(id(capsule), _USED)
    foreign = _Foreign(address)
    kinds = {_BOOL: "b", _INT: "i", _FLOAT: "f"}
    if 0 in shape:
        return datatype, np.empty(shape, f"<{kinds.get(code, 'u')}{bits // 8}")
    foreign.__array_interface__ = {
        "version": 3,
        "shape": shape,
        "typestr": f"<{kinds.get(code, 'u')}{bits // 8}",
        "data": (tensor.data + tensor.byte_offset, False),
    }
    return datatype, np.asarray(foreign)


def _is_contiguous(shape, strides):
    if 0 in shape:
        return True
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True
