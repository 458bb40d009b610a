"""The conversation of a worker with the server: frames over a socket.

There is no thread that reads. Whoever waits for something reads, one thread at a time, and hands over what is for others:
a request then costs no change of threads. `crates/backend-python/src/wire/frames.rs` and `messages.rs` are the other side.
"""

import _socket
import collections
import marshal
import os
import threading

from nereid_host import TritonModelException

# Kinds of frames that the server sends.
COMPLETE = 2
INITIALIZE = 3
EXECUTE = 4
REPLY = 5
INFERRED = 6
RETURNED = 7
FINALIZE = 8

# Kinds of items that a worker sends.
RESULT = 1
DONE = 2
SEND = 3
ABANDONED = 4
INFER = 5
CANCEL_INFER = 6
TAKEN = 7
LOG = 8
ASK = 9
TELL = 10
FREED = 11
WANTS_SPACE = 12

_TAIL_ALIGNMENT = 16

# The server takes no longer message; `frames.rs` has the same number.
_MOST_BYTES = 256 << 20

# The server takes so many values in a message, and one more for each 16 bytes; `marshal.rs` has the same numbers.
_MOST_VALUES = 1 << 20
_BYTES_PER_VALUE = 16


def _encoded(items):
    """The bytes of a message. Raises TritonModelException if the server would not take it."""
    try:
        body = marshal.dumps(items, 2)
    except (ValueError, MemoryError) as error:
        raise TritonModelException(f"the message to the server cannot be written: {error}") from None
    # Each value has a byte at least.
    if len(body) > _MOST_VALUES:
        if len(body) > _MOST_BYTES:
            raise TritonModelException(f"the message to the server has {len(body)} bytes, and the limit is {_MOST_BYTES}")
        values, most = _count_values(items), _MOST_VALUES + len(body) // _BYTES_PER_VALUE
        if values > most:
            raise TritonModelException(f"the message to the server has {values} values, and the limit is {most}")
    return body


def _count_values(values):
    return len(values) + sum(_count_values(value) for value in values if isinstance(value, (list, tuple)))


class Channel:
    """Sends items, and reads frames for all threads of the worker."""

    def __init__(self, socket, inputs, outputs):
        self._socket = socket
        self._inputs = inputs
        self._outputs = outputs
        inputs.when_freed = self._freed
        self._main_thread = threading.get_ident()
        self._reading = threading.Lock()
        self._sending = threading.Lock()
        self._buffer = bytearray(64 << 10)
        self._view = memoryview(self._buffer)
        self._start = self._end = 0
        # Waits until somebody may read, or something has come.
        self._sleepers = collections.deque()
        # Commands and executions for the main thread.
        self.commands = collections.deque()
        # Who waits for replies and responses, by number.
        self.listeners = {}
        # Requests that the model has dropped, until the server is told.
        self.abandoned = collections.deque()
        # Called when there is a command, where a loop runs instead of `next_command`.
        self.on_command = None

    def fileno(self):
        return self._socket.fileno()

    # Sending.

    def send(self, *items):
        """Sends items, and with them what has become free. Any thread may call it.

        Raises TritonModelException if the server would not take the message. Then none of the items is sent.
        """
        try:
            with self._sending:
                self._send(list(items))
        finally:
            if self.abandoned:
                self.flush()

    def abandon(self, number):
        """Tells the server that the model has dropped a request. Finalizers call it, at any moment and in any thread."""
        self.abandoned.append(number)
        self.flush()

    def _freed(self):
        """Called by finalizers. What the main thread frees goes with its next item."""
        if threading.get_ident() != self._main_thread:
            self.flush()

    def flush(self):
        """Sends what finalizers have left. If a thread sends now, that thread looks again when it has finished."""
        while (self.abandoned or self._inputs.freed) and self._sending.acquire(False):
            try:
                self._send([])
            finally:
                self._sending.release()

    def _send(self, items):
        left = []
        freed = self._inputs.freed
        if freed:
            left.append((FREED, [freed.popleft() for _ in range(len(freed))]))
        while self.abandoned:
            left.append((ABANDONED, self.abandoned.popleft()))
        try:
            body = _encoded(items + left)
        except TritonModelException:
            if left:
                self._write(_encoded(left))
            raise
        self._write(body)

    def _write(self, body):
        try:
            self._socket.sendall(len(body).to_bytes(4, "little") + body)
        except OSError:
            # The server has gone.
            os._exit(1)

    # Reading.

    def next_command(self):
        """Waits for the next command."""
        commands = self.commands
        if not commands:
            if self._inputs.freed:
                self.send()
            if self._reading.acquire(False):
                try:
                    while not commands:
                        self._dispatch(self._next_frame())
                finally:
                    self._reading.release()
                    if self._sleepers:
                        self._wake()
            else:
                self.wait_until(lambda: commands)
        return commands.popleft()

    def wait_until(self, is_there):
        """Waits until `is_there()`, and reads as long as nobody else does."""
        while not is_there():
            if self._reading.acquire(False):
                try:
                    while not is_there():
                        self._dispatch(self._next_frame())
                finally:
                    self._reading.release()
                    self._wake()
                return
            sleeper = threading.Lock()
            sleeper.acquire()
            self._sleepers.append(sleeper)
            # A reader that ends now wakes everybody who is in the list.
            if self._reading.locked() and not is_there():
                sleeper.acquire()

    def read_available(self):
        """Reads what has come without waiting, for a loop that was told so. False if another thread reads."""
        if not self._reading.acquire(False):
            return False
        try:
            while True:
                frame = self._next_frame(_socket.MSG_DONTWAIT)
                if frame is None:
                    return True
                self._dispatch(frame)
        finally:
            self._reading.release()
            self._wake()

    def when_read(self, sleeper):
        """Releases `sleeper` when a thread that reads now does not read any more."""
        self._sleepers.append(sleeper)
        if not self._reading.locked():
            self._wake()

    def _wake(self):
        sleepers = self._sleepers
        for _ in range(len(sleepers)):
            try:
                sleepers.popleft().release()
            except (IndexError, RuntimeError):
                # Another thread has woken it.
                pass

    def _next_frame(self, flags=0):
        """The next frame; None if none has come whole and `flags` forbid to wait."""
        view = self._view
        while True:
            start, have = self._start, self._end - self._start
            if have >= 4:
                length = int.from_bytes(view[start : start + 4], "little")
                if have >= 4 + length:
                    self._start += 4 + length
                    return bytearray(view[start + 4 : start + 4 + length])
                if 4 + length > len(view):
                    return self._large_frame(length)
            if have == 0:
                self._start = self._end = 0
            elif self._end == len(view):
                view[:have] = bytes(view[start : self._end])
                self._start, self._end = 0, have
            try:
                received = self._socket.recv_into(view[self._end :], 0, flags)
            except BlockingIOError:
                return None
            except OSError:
                received = 0
            if received == 0:
                # The server has gone. Nothing of this process is of use any more.
                os._exit(1)
            self._end += received

    def _large_frame(self, length):
        frame = bytearray(length)
        have = self._end - self._start - 4
        frame[:have] = self._view[self._start + 4 : self._end]
        self._start = self._end = 0
        rest = memoryview(frame)[have:]
        while rest:
            received = self._socket.recv_into(rest)
            if received == 0:
                os._exit(1)
            rest = rest[received:]
        return frame

    def _dispatch(self, frame):
        header_length = int.from_bytes(frame[:4], "little")
        memory = memoryview(frame)
        header = marshal.loads(memory[4 : 4 + header_length])
        kind = header[0]
        if kind == EXECUTE:
            if header[1]:
                self._outputs.returned(header[1])
            tail = memory[-(-(4 + header_length) // _TAIL_ALIGNMENT) * _TAIL_ALIGNMENT :]
            self.commands.extend((EXECUTE, call, tail) for call in header[2])
            if self.on_command is not None:
                self.on_command()
        elif kind in (REPLY, INFERRED):
            listener = self.listeners.get(header[1])
            if listener is not None:
                tail = memory[-(-(4 + header_length) // _TAIL_ALIGNMENT) * _TAIL_ALIGNMENT :]
                listener(header, tail)
            if self._sleepers:
                self._wake()
        elif kind == RETURNED:
            self._outputs.returned(header[1])
            if self._sleepers:
                self._wake()
        else:
            self.commands.append(header)
            if self.on_command is not None:
                self.on_command()
