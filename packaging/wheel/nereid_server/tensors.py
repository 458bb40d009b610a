"""Tensors of KServe's protocol as arrays of NumPy, in the body of a message or in shared memory."""

from __future__ import annotations

import json
import math
from typing import Any, Callable, Mapping

import numpy as np

from .regions import Region

# From so many bytes on, a tensor lies in shared memory.
LARGE = 1 << 20

_NAMES = {np.dtype(letter): name for letter, name in (("?", "BOOL"), ("e", "FP16"), ("f", "FP32"), ("d", "FP64"))}
for _size in (1, 2, 4, 8):
    _NAMES[np.dtype(f"i{_size}")] = f"INT{8 * _size}"
    _NAMES[np.dtype(f"u{_size}")] = f"UINT{8 * _size}"
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}


def arrays(values: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Inputs as arrays with the byte order of this machine."""
    found = {name: np.asarray(value) for name, value in values.items()}
    return {name: array.astype(array.dtype.newbyteorder("="), copy=False) for name, array in found.items()}


def encode(
    inputs: Mapping[str, np.ndarray],
    parameters: Mapping[str, Any],
    outputs: Mapping[str, Region | None] | None = None,
    take: Callable[[int], Region] | None = None,
) -> tuple[dict[str, str], bytes]:
    """The headers and the body of a request.

    Large inputs lie in the regions that `take` gives, and all are in the body without it. Each of `outputs` is wanted in its
    region, or in the body; without `outputs` the answer has all in the body.
    """
    described, contents = [], []
    for name, array in inputs.items():
        data = _bytes_of(array)
        if take is not None and len(data) >= LARGE:
            region = take(len(data))
            region.memory[: len(data)] = data
            where = region.parameters(len(data))
        else:
            contents.append(data)
            where = {"binary_data_size": len(data)}
        datatype = _NAMES.get(array.dtype, "BYTES")
        described.append({"name": name, "datatype": datatype, "shape": array.shape, "parameters": where})
    message = {"inputs": described, "parameters": {"binary_data_output": True, **parameters}}
    if outputs is not None:
        wanted = {name: region.parameters(len(region.memory)) if region else {} for name, region in outputs.items()}
        message["outputs"] = [{"name": name, "parameters": where} for name, where in wanted.items()]
    if "id" in parameters:
        message["id"] = message["parameters"].pop("id")
    head = json.dumps(message).encode()
    return {"Inference-Header-Content-Length": str(len(head))}, b"".join([head, *contents])


def decode(
    head_length: str | None, body: bytes, lend: Callable[[str, int], np.ndarray] | None = None
) -> dict[str, np.ndarray]:
    """The outputs of an answer. Arrays of numbers are views of `body`, or of what `lend` gives for the name and the bytes of an
    output that is in shared memory."""
    split = len(body) if head_length is None else int(head_length)
    outputs, begin = {}, split
    for output in json.loads(body[:split])["outputs"]:
        name, datatype, shape = output["name"], output["datatype"], output["shape"]
        size = output.get("parameters", {}).get("binary_data_size")
        if size is not None:
            data = memoryview(body)[begin : begin + size]
            begin += size
        else:
            data = lend(name, math.prod(shape) * (2 if datatype == "BF16" else _DTYPES[datatype].itemsize))
        outputs[name] = _array_of(datatype, data).reshape(shape)
    return outputs


def _bytes_of(array: np.ndarray) -> memoryview | bytes:
    if array.dtype in _NAMES:
        return memoryview(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
    if array.dtype.kind not in "OSU":
        raise TypeError(f"no tensor has elements of {array.dtype}")
    parts = []
    for element in array.reshape(-1).tolist():
        element = element if isinstance(element, bytes) else str(element).encode()
        parts += [len(element).to_bytes(4, "little"), element]
    return b"".join(parts)


def _array_of(datatype: str, data: memoryview | np.ndarray) -> np.ndarray:
    if datatype in _DTYPES:
        return np.frombuffer(data, _DTYPES[datatype])
    if datatype == "BF16":
        # The upper half of a FP32.
        return (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32)
    elements, begin = [], 0
    while begin < len(data):
        end = begin + 4 + int.from_bytes(data[begin : begin + 4], "little")
        elements.append(bytes(data[begin + 4 : end]))
        begin = end
    array = np.empty(len(elements), np.object_)
    array[:] = elements
    return array
