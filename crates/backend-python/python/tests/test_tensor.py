"""Tensors, their datatypes, and the encoding of strings."""

import weakref

import numpy as np
import pytest
import triton_python_backend_utils as pb_utils
from triton_python_backend_utils import Tensor, TritonDataType, TritonModelException

KINDS = {
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
}


def encoded(tensor):
    datatype, shape, buffers = tensor._encoded()
    return datatype, shape, b"".join(bytes(buffer) for buffer in buffers)


@pytest.mark.parametrize("datatype", KINDS)
def test_numbers_are_encoded_as_they_lie_in_memory_and_read_in_place(datatype):
    array = np.array([[0, 1, 1], [1, 0, 1]], KINDS[datatype])
    assert encoded(Tensor("X", array)) == (datatype, (2, 3), array.tobytes())
    memory = bytearray(array.tobytes())
    tensor = Tensor._from_memory("X", datatype, [2, 3], memoryview(memory))
    np.testing.assert_array_equal(tensor.as_numpy(), array)
    assert tensor.as_numpy().dtype == KINDS[datatype] and tensor.as_numpy() is tensor.as_numpy()
    tensor.as_numpy()[1, 2] = 0
    assert encoded(tensor)[2] == bytes(memory) != array.tobytes()


def test_a_tensor_tells_what_it_is():
    tensor = Tensor("X", np.zeros((2, 0, 3), np.float16))
    assert (tensor.name(), tensor.shape(), tensor.is_cpu()) == ("X", [2, 0, 3], True)
    assert tensor.triton_dtype() == TritonDataType.FP16 == 10
    assert encoded(tensor) == ("FP16", (2, 0, 3), b"")
    assert Tensor._from_memory("X", "FP32", [0], b"").as_numpy().shape == (0,)


def test_a_scalar_has_no_dimension():
    assert encoded(Tensor("X", np.array(7, np.int16))) == ("INT16", (), b"\x07\x00")


def test_arrays_in_other_orders_are_encoded_in_c_order():
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    assert encoded(Tensor("X", array.T)) == ("INT32", (3, 2), array.T.tobytes("C"))


STRINGS = b"\x01\x00\x00\x00a" + b"\x00\x00\x00\x00" + b"\x05\x00\x00\x00gr\xc3\xbcn" + b"\x01\x00\x00\x007"


@pytest.mark.parametrize(
    "array",
    [np.array([["a", b""], ["grün", 7]], np.object_), np.array([[b"a", b""], ["grün".encode(), b"7"]])],
    ids=["objects", "fixed lengths"],
)
def test_strings_have_their_length_before_them(array):
    assert encoded(Tensor("X", array)) == ("BYTES", (2, 2), STRINGS)


def test_an_array_of_bytes_is_its_bytes():
    array = np.empty(1, np.object_)
    array[0] = bytearray(b"\xff")
    assert encoded(Tensor("X", array))[2] == b"\x01\x00\x00\x00\xff"


def test_strings_come_as_bytes():
    tensor = Tensor._from_memory("X", "BYTES", (2, 2), memoryview(STRINGS))
    assert tensor.as_numpy().tolist() == [[b"a", b""], ["grün".encode(), b"7"]]
    assert tensor.as_numpy().dtype == np.object_
    assert encoded(tensor)[2] == STRINGS


def test_no_strings_are_no_bytes():
    assert encoded(Tensor("X", np.empty((0, 2), np.object_))) == ("BYTES", (0, 2), b"")
    assert Tensor._from_memory("X", "BYTES", (0, 2), b"").as_numpy().shape == (0, 2)


@pytest.mark.parametrize(
    "memory, words",
    [(b"\x01\x00", "incomplete length field"), (b"\x05\x00\x00\x00abc", "string extends beyond buffer")],
)
def test_strings_that_are_cut_short_are_refused(memory, words):
    with pytest.raises(TritonModelException, match=f"Invalid bytes tensor data: {words}"):
        pb_utils.deserialize_bytes_tensor(memory)


def test_arrays_of_one_length_stay_elements():
    assert pb_utils.deserialize_bytes_tensor(b"\x01\x00\x00\x00a" * 2).tolist() == [b"a", b"a"]
    assert pb_utils.serialize_byte_tensor(np.array([b"a", "b"], np.object_)) == b"\x01\x00\x00\x00a\x01\x00\x00\x00b"
    assert pb_utils.serialize_byte_tensor(np.array([], np.object_)) == ()
    assert pb_utils.serialize_byte_tensor(np.array([1.5])) is None


def test_a_number_that_changes_before_it_is_sent_is_sent_and_a_string_is_not():
    numbers, strings = np.zeros(1, np.uint8), np.array([b"a"], np.object_)
    tensors = Tensor("X", numbers), Tensor("Y", strings)
    numbers[0], strings[0] = 7, b"b"
    assert [encoded(tensor)[2] for tensor in tensors] == [b"\x07", b"\x01\x00\x00\x00a"]


def test_memory_is_in_use_while_an_array_of_it_lives():
    """The worker knows so when it may use an area of memory again."""
    area = np.frombuffer(bytearray(16), np.uint8)
    in_use = weakref.ref(area)
    tensor = Tensor._from_memory("X", "FP32", [2], memoryview(area)[8:])
    del area
    array = tensor.as_numpy()[1:]
    del tensor
    assert in_use() is not None
    del array
    assert in_use() is None


@pytest.mark.parametrize("array", [np.zeros(1, complex), np.array(["a"]), np.zeros(1, "M8[s]"), np.zeros(1, ">f4")])
def test_other_arrays_are_refused(array):
    with pytest.raises(TritonModelException, match="^NumPy dtype is not supported.$"):
        Tensor("X", array)


def test_names_and_arrays_are_checked():
    with pytest.raises(TritonModelException, match="^Tensor name cannot be an empty string.$"):
        Tensor("", np.zeros(1))
    with pytest.raises(TypeError, match="must be a NumPy array"):
        Tensor("X", [1.0])
    with pytest.raises(TypeError, match="must be text"):
        Tensor(None, np.zeros(1))


def test_bf16_has_no_array():
    tensor = Tensor._from_memory("X", "BF16", [1], b"\x80\x3f")
    with pytest.raises(TritonModelException, match="^Tensor dtype is BF16 and cannot be converted to NumPy. Use to_dlpack()"):
        tensor.as_numpy()
    assert encoded(tensor) == ("BF16", (1,), b"\x80\x3f")


def test_datatypes_have_numbers_types_and_names():
    for number, (name, kind) in enumerate([*KINDS.items(), ("STRING", np.object_)], start=1):
        assert pb_utils.triton_to_numpy_type(number) is kind
        assert pb_utils.numpy_to_triton_type(kind) == pb_utils.numpy_to_triton_type(np.dtype(kind)) == number
        assert np.dtype(pb_utils.triton_string_to_numpy(f"TYPE_{name}")) == kind
    assert pb_utils.numpy_to_triton_type(np.bytes_) == 13
    for nothing in (None, np.str_, "nothing", "\ud800", 7, object(), {}):
        assert pb_utils.numpy_to_triton_type(nothing) is None
    assert pb_utils.triton_to_numpy_type(0) is pb_utils.triton_to_numpy_type(99) is None
    with pytest.raises(KeyError):
        pb_utils.triton_string_to_numpy("FP32")
