"""The memory that a worker shares with the server: one area for each direction.

The server writes inputs into one area and learns when nobody uses them any more. The worker writes outputs into the other
one and learns when the server has read them. An output that lies in an input is not copied.
"""

import collections
import mmap
import os
import threading
import weakref

import numpy as np
from nereid_host import TritonModelException

_ALIGNMENT = 64


def _address(array):
    return array.__array_interface__["data"][0]


class InputMemory:
    """The area that the server writes."""

    def __init__(self, descriptor):
        self._descriptor = descriptor
        self._size = 0
        self._bytes = None
        # All mappings live as long as the worker: an address in one of them never means anything else.
        self._mappings = []
        self._live = {}
        # Offsets of ranges that nobody uses any more. A finalizer appends to it, so it needs no lock.
        self.freed = collections.deque()
        # Called when `freed` has got something.
        self.when_freed = None

    def view(self, offset, byte_size):
        """A range of the area. When the last user of its memory is gone, `freed` has its offset."""
        end = offset + byte_size
        if end > self._size:
            self._map()
        part = np.frombuffer(self._mappings[-1][0], np.uint8, byte_size, offset)
        self._live[offset] = weakref.ref(part, lambda _, offset=offset: self._drop(offset))
        return memoryview(part)

    def _drop(self, offset):
        self._live.pop(offset, None)
        self.freed.append(offset)
        if self.when_freed is not None:
            self.when_freed()

    def _map(self):
        size = os.fstat(self._descriptor).st_size
        mapping = mmap.mmap(self._descriptor, size)
        whole = np.frombuffer(mapping, np.uint8)
        self._mappings.append((mapping, _address(whole), size))
        self._size = size

    def offset_of(self, buffer):
        """Where a buffer lies in the area; None if it lies elsewhere."""
        if not self._mappings:
            return None
        start = _address(np.frombuffer(buffer, np.uint8))
        end = start + buffer.nbytes
        for _, first, size in self._mappings:
            if first <= start and end <= first + size:
                return start - first
        return None


class OutputMemory:
    """The area that the worker writes."""

    def __init__(self, descriptor, limit):
        self._descriptor = descriptor
        self._limit = limit
        self._size = 0
        self._mapping = None
        self._lock = threading.Lock()
        # Pairs of offset and length, sorted; neighbours are joined.
        self._free = []
        # By number: the range that is in use, and what must live until the server has read it.
        self._sent = {}
        self._last = 0
        # How many the server has returned so far.
        self.count_returned = 0

    def keep(self, what):
        """Keeps something until the server has read it. Returns its number."""
        with self._lock:
            return self._remember(None, what)

    def put(self, buffers, byte_size):
        """Copies buffers into the area. Returns offset and number; None if there is no room now."""
        length = -(-byte_size // _ALIGNMENT) * _ALIGNMENT
        if length > self._limit:
            raise TritonModelException(
                f"an output of {byte_size} bytes does not fit in the memory that the model shares with the server "
                "(setting 'shared-memory-limit-bytes')"
            )
        with self._lock:
            offset = self._take(length)
            if offset is None:
                return None
            number = self._remember((offset, length), None)
            mapping = self._mapping
        place = offset
        with memoryview(mapping) as target:
            for buffer in buffers:
                end = place + len(buffer)
                target[place:end] = buffer
                place = end
        return offset, number

    def returned(self, numbers):
        """The server has read these."""
        dropped = []
        self.count_returned += len(numbers)
        with self._lock:
            for number in numbers:
                used, kept = self._sent.pop(number, (None, None))
                dropped.append(kept)
                if used is not None:
                    self._give_back(*used)

    def _remember(self, used, kept):
        self._last += 1
        self._sent[self._last] = used, kept
        return self._last

    def _take(self, length):
        for index, (offset, free) in enumerate(self._free):
            if free >= length:
                if free == length:
                    del self._free[index]
                else:
                    self._free[index] = offset + length, free - length
                return offset
        size = self._size + max(length, min(self._size // 2, self._limit - self._size))
        if size > self._limit:
            return None
        os.ftruncate(self._descriptor, size)
        self._mapping = mmap.mmap(self._descriptor, size)
        offset, self._size = self._size, size
        if size > offset + length:
            self._give_back(offset + length, size - offset - length)
        return offset

    def _give_back(self, offset, length):
        free = self._free
        index = 0
        while index < len(free) and free[index][0] < offset:
            index += 1
        if index < len(free) and offset + length == free[index][0]:
            length += free.pop(index)[1]
        if index and sum(free[index - 1]) == offset:
            index -= 1
            before, of_before = free.pop(index)
            offset, length = before, length + of_before
        free.insert(index, (offset, length))
