"""DLPack: memory that several libraries share."""

import gc

import nereid_dlpack
import numpy as np
import pytest
from triton_python_backend_utils import Tensor, TritonModelException


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint64, np.float16, np.float32, np.float64, np.bool_])
def test_numpy_reads_the_memory_of_a_tensor(dtype):
    array = np.array([[0, 1, 1], [1, 0, 1]], dtype)
    shared = np.from_dlpack(Tensor("X", array))
    assert shared.dtype == dtype and np.shares_memory(shared, array)
    np.testing.assert_array_equal(shared, array)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint64, np.float16, np.float32, np.float64, np.bool_])
def test_a_tensor_is_made_of_numpys_memory(dtype):
    array = np.array([[0, 1, 1], [1, 0, 1]], dtype)
    tensor = Tensor.from_dlpack("X", array)
    assert tensor.name() == "X" and tensor.as_numpy().dtype == dtype and np.shares_memory(tensor.as_numpy(), array)
    np.testing.assert_array_equal(tensor.as_numpy(), array)


@pytest.mark.parametrize("shape", [(), (1,), (3, 0, 2), (2, 3, 4)])
def test_shapes_survive(shape):
    tensor = Tensor.from_dlpack("Y", Tensor("X", np.ones(shape, np.float32)))
    assert tensor.shape() == list(shape) == list(tensor.as_numpy().shape)


def test_bf16_goes_through_capsules():
    tensor = Tensor._from_memory("X", "BF16", [1, 2], b"\x80\x3f\x00\xc0")
    copy = Tensor.from_dlpack("Y", tensor.to_dlpack())
    datatype, shape, buffers = copy._encoded()
    assert (datatype, shape, bytes(buffers[0])) == ("BF16", (1, 2), b"\x80\x3f\x00\xc0")


def test_memory_lives_as_long_as_its_last_user():
    tensor = Tensor.from_dlpack("Y", Tensor("X", np.full(1000, 7.0)).to_dlpack())
    array = tensor.as_numpy()
    del tensor
    gc.collect()
    assert len(nereid_dlpack._lent) == 1 and (array == 7).all()
    del array
    gc.collect()
    assert not nereid_dlpack._lent


def test_a_capsule_that_nobody_uses_gives_back_what_it_has():
    capsule = Tensor("X", np.zeros(1)).to_dlpack()
    assert len(nereid_dlpack._lent) == 1
    del capsule
    assert not nereid_dlpack._lent


def test_a_capsule_is_used_once():
    capsule = Tensor("X", np.zeros(1)).to_dlpack()
    Tensor.from_dlpack("Y", capsule)
    with pytest.raises(TritonModelException, match="was used before"):
        Tensor.from_dlpack("Y", capsule)


def test_memory_that_may_only_be_read_is_lent_too():
    memory = np.arange(3, dtype=np.float32).tobytes()
    assert np.from_dlpack(Tensor._from_memory("X", "FP32", [3], memory)).tolist() == [0, 1, 2]


def test_the_protocol_of_newer_versions_is_accepted():
    tensor = Tensor("X", np.zeros(1))
    assert tensor.__dlpack_device__() == (1, 0)
    tensor.__dlpack__(stream=None, max_version=(1, 0), dl_device=(1, 0), copy=False)
    for wanted in ({"copy": True}, {"dl_device": (2, 0)}):
        with pytest.raises(BufferError):
            tensor.__dlpack__(**wanted)


class Elsewhere:
    """Memory of a device that is not the processor."""

    def __init__(self, kind):
        self.kind = kind

    def __dlpack__(self, stream=None):
        raise AssertionError("nobody can read it")

    def __dlpack_device__(self):
        return self.kind, 0


def test_what_cannot_be_taken_is_refused():
    refusals = {
        "is not contiguous. Only contiguous DLPack tensors that are stored in C-Order": np.zeros((2, 3)).T,
        "Provided tensor is not supported. Tensor must be a DLPack capsule or have": object(),
        "DLDevice type 10 is not support by Python backend.": Elsewhere(10),
        "memory allocated on GPU device, when GPU is not available": Elsewhere(2),
        "Dtype is invalid.": np.zeros(1, np.complex64),
    }
    for words, source in refusals.items():
        with pytest.raises(TritonModelException) as refused:
            Tensor.from_dlpack("X", source)
        assert words in str(refused.value)
    with pytest.raises(TritonModelException, match="^Tensor name cannot be an empty string.$"):
        Tensor.from_dlpack("", np.zeros(1))
    with pytest.raises(TritonModelException, match="^DLPack does not have support for string tensors.$"):
        Tensor("X", np.array([b"a"], np.object_)).to_dlpack()


def test_a_refused_capsule_stays_its_owners():
    capsule = np.zeros((2, 3)).T.__dlpack__()
    with pytest.raises(TritonModelException):
        Tensor.from_dlpack("X", capsule)
    assert '"dltensor"' in repr(capsule)


def test_a_dimension_of_one_may_have_any_stride():
    array = np.zeros((4, 3), np.float32)[:1]
    strided = np.lib.stride_tricks.as_strided(array, strides=(400, 4))
    assert Tensor.from_dlpack("X", strided).shape() == [1, 3]
