"""Tensors of PyTorch over the memory of requests and responses, without a copy where the processor has them."""

import warnings

from nereid_host import TritonModelException
from nereid_tensor import Tensor, serialize_byte_tensor
from nereid_torch import torch

import numpy as np

# BF16 is not among Triton's (src/libtorch_utils.cc).
_DATATYPES = {
    torch.bool: "BOOL",
    torch.uint8: "UINT8",
    torch.int8: "INT8",
    torch.int16: "INT16",
    torch.int32: "INT32",
    torch.int64: "INT64",
    torch.float16: "FP16",
    torch.bfloat16: "BF16",
    torch.float32: "FP32",
    torch.float64: "FP64",
}

_TYPES = {f"TYPE_{name}": kind for kind, name in _DATATYPES.items()}

# The memory of a request is the network's, and a network that writes into its input harms nobody.
warnings.filterwarnings("ignore", message="The given NumPy array is not writable")


class BadTensor(Exception):
    """A tensor breaks a rule. The text is for the client."""


def check_datatype(model, kind, tensor, dims, batches):
    """Refuses a datatype that PyTorch lacks, and strings that are no list."""
    datatype = tensor.datatype
    if datatype is None or datatype.removeprefix("TYPE_") in _DATATYPES.values():
        return
    if datatype != "TYPE_STRING":
        raise TritonModelException(f"unsupported datatype {datatype} for {kind} '{tensor.name}' for model '{model}'")
    if len(dims) + batches > 1:
        raise TritonModelException(
            f"Triton only supports 1 dimensional List of String as {kind} for '{tensor.name}' for model '{model}'"
        )


def argument_from(tensor, device):
    """The argument of a network for an input: a tensor, or a list of texts. `device` is None for the processor."""
    datatype = tensor._datatype
    if datatype == "BYTES":
        return _texts(tensor)
    value = torch.from_dlpack(tensor) if datatype == "BF16" else torch.from_numpy(tensor.as_numpy())
    return value if device is None else value.to(device)


def _texts(tensor):
    try:
        return [str(element, "utf-8") for element in tensor.as_numpy().ravel().tolist()]
    except UnicodeDecodeError as error:
        raise BadTensor(f"input '{tensor.name()}' has a string that is not in UTF-8: {error}") from None


def checked_output(declared, value):
    """A value of a network, in the memory of the processor, if it is what the configuration says of the output."""
    if not isinstance(value, torch.Tensor) or value.dtype is not _TYPES.get(declared.datatype):
        _check_type(declared, value)
        return value
    if value.dim() == 0:
        raise BadTensor(f"output '{declared.name}' is a scalar which is not supported.")
    # Each of these calls has a price, even where it has nothing to do.
    if value.requires_grad:
        value = value.detach()
    if value.is_cpu and value.is_contiguous():
        return value
    return value.cpu().contiguous()


def _check_type(declared, value):
    if isinstance(value, torch.Tensor):
        datatype = _DATATYPES.get(value.dtype)
        provided = f"TYPE_{datatype}" if datatype else str(value.dtype)
    elif is_strings(value):
        provided = "TYPE_STRING"
    else:
        raise BadTensor(f"output '{declared.name}' must be of type Tensor or List[str].")
    if provided != declared.datatype:
        raise BadTensor(
            f"configuration expects datatype {declared.datatype} for output '{declared.name}', model provides {provided}"
        )


def output_from(declared, value):
    """The output of a response for a value that is checked."""
    if isinstance(value, list):
        array = np.array(value, np.object_)
        return Tensor._from_memory(declared.name, "BYTES", array.shape, serialize_byte_tensor(array) or b"")
    datatype = _DATATYPES[value.dtype]
    if datatype == "BF16":
        return Tensor.from_dlpack(declared.name, value)
    return Tensor._from_array(declared.name, datatype, value.numpy())


def is_strings(value):
    return isinstance(value, list) and all(isinstance(element, str) for element in value)


def joined(arguments):
    """One argument for the same argument of several requests."""
    if arguments[0] is None:
        return None
    if isinstance(arguments[0], list):
        return [text for texts in arguments for text in texts]
    return torch.cat(arguments)


def split(value, rows):
    """The parts of a value for requests that have so many rows each."""
    if isinstance(value, torch.Tensor):
        return torch.split(value, rows)
    ends = np.cumsum(rows).tolist()
    return [value[end - count : end] for end, count in zip(ends, rows)]


def row_count(value):
    """How many rows a tensor or a list of texts has."""
    return value.shape[0] if isinstance(value, torch.Tensor) else len(value)


def shape_of_row(value):
    """What must be equal in requests that run together."""
    return value.shape[1:] if isinstance(value, torch.Tensor) else type(value)
