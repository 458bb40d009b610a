"""Tensors of KServe's protocol as arrays of NumPy, in the body of a message or in shared memory."""

from __future__ import annotations

import json
import mmap
import os
import secrets
import threading
import weakref
from typing import Any, Callable, Mapping

import numpy as np

# From so many bytes on, an input lies in shared memory.
LARGE = 1 << 20
# Regions of shared memory that wait for the next request: how many at most, and their bytes together.
MOST_IDLE, MOST_IDLE_BYTES = 8, 256 << 20

_NAMES = {np.dtype(letter): name for letter, name in (("?", "BOOL"), ("e", "FP16"), ("f", "FP32"), ("d", "FP64"))}
for _size in (1, 2, 4, 8):
    _NAMES[np.dtype(f"i{_size}")] = f"INT{8 * _size}"
    _NAMES[np.dtype(f"u{_size}")] = f"UINT{8 * _size}"
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}


class Region:
    """A region of shared memory that the server knows by its name."""

    def __init__(self, size: int):
        self.name = f"nereid-{os.getpid()}-{secrets.token_hex(8)}"
        self.path = f"/dev/shm/{self.name}"
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, size)
            self.memory = mmap.mmap(descriptor, size)
        except OSError:
            os.unlink(self.path)
            raise
        finally:
            os.close(descriptor)


class Regions:
    """The regions of one server, which `ask` sends a message to."""

    def __init__(self, ask: weakref.WeakMethod[Callable[[str, str, Any], Any]]):
        self._ask = ask
        self._idle: list[Region] = []
        self._lock = threading.Lock()

    def _post(self, path: str, message: Any) -> None:
        ask = self._ask()
        assert ask is not None, "the server is in use"
        ask("POST", path, message)

    def take(self, size: int) -> Region:
        """A region of `size` bytes or more, for one request at a time."""
        with self._lock:
            fitting = [region for region in self._idle if size <= len(region.memory) <= 4 * size]
            if fitting:
                region = min(fitting, key=lambda region: len(region.memory))
                self._idle.remove(region)
                return region
        region = Region(1 << (size - 1).bit_length())
        try:
            known_as = {"key": f"/{region.name}", "offset": 0, "byte_size": len(region.memory)}
            self._post(f"systemsharedmemory/region/{region.name}/register", known_as)
        finally:
            # Both sides have it open.
            os.unlink(region.path)
        return region

    def give_back(self, region: Region) -> None:
        with self._lock:
            self._idle.append(region)
            left = []
            while len(self._idle) > MOST_IDLE or sum(len(idle.memory) for idle in self._idle) > MOST_IDLE_BYTES:
                left.append(self._idle.pop(0))
        for region in left:
            self.forget(region)

    def forget(self, region: Region) -> None:
        """Frees a region that nobody uses, or that the server may still use after a request that has failed."""
        self._post(f"systemsharedmemory/region/{region.name}/unregister", {})
        region.memory.close()


def encode(
    inputs: Mapping[str, Any], parameters: Mapping[str, Any], regions: Regions | None, held: list[Region]
) -> tuple[dict[str, str], bytes]:
    """The headers and the body of a request. The regions that it uses are put into `held`; without any, all is in the body."""
    described, contents = [], []
    for name, value in inputs.items():
        array = np.asarray(value)
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
        data = _bytes_of(array)
        if regions is not None and len(data) >= LARGE:
            held.append(regions.take(len(data)))
            held[-1].memory[: len(data)] = data
            where = {"shared_memory_region": held[-1].name, "shared_memory_byte_size": len(data)}
        else:
            contents.append(data)
            where = {"binary_data_size": len(data)}
        datatype = _NAMES.get(array.dtype, "BYTES")
        described.append({"name": name, "datatype": datatype, "shape": array.shape, "parameters": where})
    message = {"inputs": described, "parameters": {"binary_data_output": True, **parameters}}
    if "id" in parameters:
        message["id"] = message["parameters"].pop("id")
    head = json.dumps(message).encode()
    return {"Inference-Header-Content-Length": str(len(head))}, b"".join([head, *contents])


def decode(head_length: str | None, body: bytes) -> dict[str, np.ndarray]:
    """The outputs of an answer. Arrays of numbers are views of `body`."""
    split = len(body) if head_length is None else int(head_length)
    outputs, begin = {}, split
    for output in json.loads(body[:split])["outputs"]:
        size = output["parameters"]["binary_data_size"]
        array = _array_of(output["datatype"], memoryview(body)[begin : begin + size])
        begin += size
        outputs[output["name"]] = array.reshape(output["shape"])
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


def _array_of(datatype: str, data: memoryview) -> np.ndarray:
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
