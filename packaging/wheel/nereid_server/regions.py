"""Regions of shared memory, which Python and the server both have open."""

from __future__ import annotations

import collections
import mmap
import os
import secrets
import threading
import weakref
from typing import Any, Callable, Deque

import numpy as np

# Regions that wait for the next request: how many at most, and their bytes together.
MOST_IDLE, MOST_IDLE_BYTES = 8, 256 << 20


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

    def parameters(self, size: int) -> dict[str, Any]:
        """What a request says of a tensor whose `size` bytes are, or may be, at the beginning of the region."""
        return {"shared_memory_region": self.name, "shared_memory_byte_size": size}


class Regions:
    """The regions of one server, which `ask` sends a message to."""

    def __init__(self, ask: weakref.WeakMethod[Callable[[str, str, Any], Any]]):
        self._ask = ask
        self._idle: list[Region] = []
        # Regions whose arrays have gone. Arrays go at any moment, also where the lock is held.
        self._returned: Deque[Region] = collections.deque()
        self._lock = threading.Lock()

    def _post(self, path: str, message: Any) -> None:
        ask = self._ask()
        assert ask is not None, "the server is in use"
        ask("POST", path, message)

    def take(self, size: int) -> Region:
        """A region of `size` bytes or more, for one request at a time."""
        while self._returned:
            self.give_back(self._returned.popleft())
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

    def lend(self, region: Region, size: int) -> np.ndarray:
        """The first bytes of a region. It is given back when nobody has this array, or a view of it, any more."""
        array = np.frombuffer(region.memory, np.uint8, size)
        array.flags.writeable = False
        weakref.finalize(array, self._returned.append, region).atexit = False
        return array

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
