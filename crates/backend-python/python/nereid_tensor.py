"""Tensors as models see them, their datatypes, and the encoding of strings."""

import enum
import struct

import numpy as np

import nereid_dlpack
from nereid_host import TritonModelException, text


class TritonDataType(enum.IntEnum):
    """The numbers of TRITONSERVER_DataType."""

    INVALID = 0
    BOOL = 1
    UINT8 = 2
    UINT16 = 3
    UINT32 = 4
    UINT64 = 5
    INT8 = 6
    INT16 = 7
    INT32 = 8
    INT64 = 9
    FP16 = 10
    FP32 = 11
    FP64 = 12
    BYTES = 13
    BF16 = 14


_NUMPY_TYPES = {
    "BOOL": np.bool_,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
    "BYTES": np.object_,
}
_DTYPES = {name: np.dtype(kind) for name, kind in _NUMPY_TYPES.items()}
_DATATYPE_OF = {dtype: name for name, dtype in _DTYPES.items()}

# Configurations call BYTES strings.
TRITON_STRING_TO_NUMPY = {f"TYPE_{name}": kind for name, kind in _NUMPY_TYPES.items() if name != "BYTES"}
TRITON_STRING_TO_NUMPY.update(TYPE_BOOL=bool, TYPE_STRING=np.object_)

# The length of a string before its bytes.
_LENGTH = struct.Struct("<I")


def triton_string_to_numpy(triton_type_string):
    """The type of NumPy for a configuration's `data_type`, as "TYPE_FP32". Raises KeyError for others."""
    return TRITON_STRING_TO_NUMPY[triton_type_string]


def triton_to_numpy_type(data_type):
    """The type of NumPy for a number of TRITONSERVER_DataType, or None."""
    try:
        return _NUMPY_TYPES.get(TritonDataType(data_type).name)
    except ValueError:
        return None


def numpy_to_triton_type(data_type):
    """The number of TRITONSERVER_DataType for a type or dtype of NumPy, or None, also for what is no type."""
    try:
        # As a dtype, None would be FP64.
        name = None if data_type is None else _datatype_of(np.dtype(data_type))
    except (TypeError, ValueError):
        return None
    return None if name is None else int(TritonDataType[name])


def _datatype_of(dtype):
    name = _DATATYPE_OF.get(dtype)
    return "BYTES" if name is None and dtype.kind == "S" else name


def serialize_byte_tensor(input_tensor):
    """The elements of an array of bytes or text, each after its length in four bytes, in C order, as bytes.

    An empty array gives an empty tuple and an array of another type gives None: models rely on that.
    """
    if input_tensor.size == 0:
        return ()
    if input_tensor.dtype.kind not in "OS":
        return None
    pieces = []
    for element in input_tensor.ravel().tolist():
        if not isinstance(element, (bytes, bytearray)):
            element = str(element).encode()
        pieces += _LENGTH.pack(len(element)), element
    return b"".join(pieces)


def deserialize_bytes_tensor(encoded_tensor):
    """The inverse of `serialize_byte_tensor`: a flat array of bytes objects."""
    # Not of the object itself: `bytes` of a number are so many zeros.
    encoded = bytes(memoryview(encoded_tensor))
    elements, offset, end = [], 0, len(encoded)
    length_at, append = _LENGTH.unpack_from, elements.append
    try:
        while offset < end:
            (length,) = length_at(encoded, offset)
            start = offset + 4
            offset = start + length
            append(encoded[start:offset])
    except struct.error:
        raise TritonModelException("Invalid bytes tensor data: incomplete length field") from None
    if offset > end:
        raise TritonModelException("Invalid bytes tensor data: string extends beyond buffer")
    array = np.empty(len(elements), np.object_)
    array[:] = elements
    return array


class Tensor:
    """A named tensor: an input of a request, or an output of a response.

    It has an array, or the bytes of a message of the server, or both. The datatype has the server's name, without `TYPE_`.
    """

    __slots__ = ("_name", "_datatype", "_shape", "_array", "_memory", "_source", "__weakref__")

    def __init__(self, name, numpy_array):
        name = text("the name of a tensor", name)
        if not isinstance(numpy_array, np.ndarray):
            raise TypeError(f"the second argument of Tensor must be a NumPy array, found type {type(numpy_array)}")
        if not name:
            raise TritonModelException("Tensor name cannot be an empty string.")
        datatype = _datatype_of(numpy_array.dtype)
        if datatype is None:
            raise TritonModelException("NumPy dtype is not supported.")
        # Subclasses may say something else of their memory: as in the reference, the memory counts.
        numpy_array = np.asarray(numpy_array, order="C")
        self._name = name
        self._datatype = datatype
        self._shape = numpy_array.shape
        self._array = numpy_array
        # As in the reference, a change of numbers before the response is sent counts, and a change of strings does not.
        self._memory = (serialize_byte_tensor(numpy_array) or b"") if datatype == "BYTES" else None
        self._source = None

    @classmethod
    def _from_memory(cls, name, datatype, shape, memory, source=None):
        """A tensor over the bytes of a message, which are not copied. `source` is the worker's note of where they lie."""
        tensor = cls.__new__(cls)
        tensor._name = name
        tensor._datatype = datatype
        tensor._shape = tuple(shape)
        tensor._array = None
        tensor._memory = memory
        tensor._source = source
        return tensor

    @classmethod
    def _from_array(cls, name, datatype, array):
        tensor = cls._from_memory(name, datatype, array.shape, None)
        tensor._array = array
        return tensor

    def name(self):
        return self._name

    def shape(self):
        return list(self._shape)

    def triton_dtype(self):
        return TritonDataType[self._datatype]

    def is_cpu(self):
        return True

    def as_numpy(self):
        """The elements, without a copy; strings are bytes objects."""
        if self._datatype == "BF16":
            raise TritonModelException(
                "Tensor dtype is BF16 and cannot be converted to NumPy. Use to_dlpack() and from_dlpack() instead."
            )
        if self._array is None:
            if self._datatype == "BYTES":
                array = deserialize_bytes_tensor(self._memory)
            else:
                array = _view(self._memory, _DTYPES[self._datatype])
            self._array = array if array.shape == self._shape else array.reshape(self._shape)
        return self._array

    def to_dlpack(self):
        """A capsule that shares the tensor's memory. Its user becomes its owner."""
        if self._datatype == "BYTES":
            raise TritonModelException("DLPack does not have support for string tensors.")
        array = self._array
        if array is None:
            array = _view(self._memory, np.dtype(np.uint8))
        return nereid_dlpack.export(self._datatype, self._shape, array, self)

    def __dlpack__(self, stream=None, *, max_version=None, dl_device=None, copy=None):
        # Readers of newer versions of DLPack accept what this one gives.
        if copy or (dl_device is not None and tuple(dl_device) != nereid_dlpack.CPU):
            raise BufferError("a tensor gives only its own memory, which is the processor's, without a copy")
        return self.to_dlpack()

    def __dlpack_device__(self):
        return nereid_dlpack.CPU

    @staticmethod
    def from_dlpack(name, tensor):
        """A tensor over the memory of another library's tensor, or of a capsule."""
        name = text("the name of a tensor", name)
        if not name:
            raise TritonModelException("Tensor name cannot be an empty string.")
        return Tensor._from_array(name, *nereid_dlpack.take(tensor))

    def _encoded(self):
        """The datatype, the shape, and the bytes in C order as a list of flat buffers, valid while the tensor lives."""
        if self._memory is not None:
            buffer = self._memory
        elif self._array.size == 0:
            buffer = b""
        else:
            # `memoryview` knows half floats only from Python 3.12 on.
            array = self._array if self._datatype != "FP16" else self._array.view(np.uint16)
            buffer = memoryview(array).cast("B")
        return self._datatype, self._shape, [buffer]

    def __repr__(self):
        return f"<Tensor {self._name!r} {self._datatype} {list(self._shape)}>"


def _view(memory, dtype):
    # NumPy refuses to look at no bytes.
    return np.frombuffer(memory, dtype) if len(memory) else np.empty(0, dtype)
