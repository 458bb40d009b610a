"""Tensors of generated requests: shapes, values, and how they are written as JSON and as bytes."""

import struct

import numpy as np
from differential.models import NUMBERS

TEXTS = (b"", b"a", b"two words", "\u00e9\u20ac".encode(), b'"quoted\\"', b"\x00\x01", b"\n\t", "\U0001f600".encode())
FLOATS = (0.0, 1.0, -1.0, 0.1, 1e-7, 65504.0, 1e30, -1e-30, 16777217.0, 0.30000000000000004)


def shape(choices, spec, batch):
    """A shape that fits; `batch` is None where there is no batch dimension."""
    open_ = (choices.between(1, 3) if dim < 0 else dim for dim in spec.dims)
    return ([] if batch is None else [batch]) + list(open_)


def value(choices, datatype):
    """A value of a datatype, as Python has it; limits of the datatype are among them."""
    if datatype == "BYTES":
        return choices.one_of(TEXTS)
    if datatype == "BOOL":
        return choices.one_of((False, True))
    if datatype in ("FP16", "FP32", "FP64", "BF16"):
        number = choices.one_of(FLOATS)
        return number if datatype in ("FP64", "BF16") else rounded(number, NUMBERS[datatype])
    limits = np.iinfo(NUMBERS[datatype])
    return choices.one_of((0, 1, 2, 100, int(limits.max), int(limits.min), int(limits.max) // 2 + 1))


def rounded(number, kind):
    """The number of a kind that is nearest."""
    limits = np.finfo(kind)
    return float(kind(np.clip(number, limits.min, limits.max)))


def values(choices, datatype, shape):
    """Values for a shape; a large shape, which a mutation may have made, gets few."""
    count = 1
    for dim in shape:
        count *= dim if isinstance(dim, int) and 0 <= dim < 64 else 1
    return [value(choices, datatype) for _ in range(min(count, 64))]


def as_json(datatype, elements):
    """The elements as JSON has them. Bytes that are no text are left out."""
    if datatype == "BYTES":
        return [element.decode(errors="ignore") for element in elements]
    return elements


def nested(elements, shape):
    """The same elements as arrays of arrays."""
    for size in reversed(shape[1:]):
        elements = [elements[start : start + size] for start in range(0, len(elements), size)] if size else []
    return elements


def as_bytes(datatype, elements):
    if datatype == "BYTES":
        return b"".join(struct.pack("<I", len(element)) + element for element in elements)
    if datatype == "BF16":
        return b"".join(struct.pack("<f", element)[2:] for element in elements)
    return np.array(elements, NUMBERS[datatype]).tobytes()
