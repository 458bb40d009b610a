"""Keeps a server running on sockets of its own: one that has ended is started again, in place."""

from __future__ import annotations

import collections
import logging
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import Callable, NamedTuple, Sequence

from ..process import NotifySocket, has_ended

logger = logging.getLogger("ray.serve")

# So many ends within so many seconds are too many.
MOST_ENDS, PERIOD_S = 5, 60.0
# The longest pause before a start.
_LONGEST_PAUSE_S = 5.0
# Becomes the program, and lets the kernel kill it (PR_SET_PDEATHSIG) with the thread that has started it: a replica that is
# killed cannot end its server, and nobody would read an answer.
_BOUND = """import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])"""


class Sockets(NamedTuple):
    """Where a server listens."""

    http: str
    grpc: str


class Restarts:
    """When a server that has ended is started again, and when it has ended too often. Times are seconds of one clock."""

    def __init__(self) -> None:
        self._ends: collections.deque[float] = collections.deque(maxlen=MOST_ENDS)

    def pause_after_end(self, now: float, was_ready: bool) -> float:
        """How long to wait before the next start: not at all if the server ran and this is the first end for a while."""
        recent = sum(now - end < PERIOD_S for end in self._ends)
        self._ends.append(now)
        return 0.0 if was_ready and not recent else min(0.1 * 2**recent, _LONGEST_PAUSE_S)

    def are_too_many(self, now: float) -> bool:
        return len(self._ends) == MOST_ENDS and now - self._ends[0] < PERIOD_S


class Supervisor:
    """A server that runs from here to `stop`.

    A thread starts it, calls `on_ready` when it is ready and `on_end` with the reason when it has ended, and starts it again.
    The thread lives as long as this object is not stopped: the kernel ends the server with it.
    """

    def __init__(
        self, program: str, options: Sequence[str], on_ready: Callable[[Sockets], None], on_end: Callable[[str], None]
    ):
        self._line = [program, *options]
        self._on_ready, self._on_end = on_ready, on_end
        self._restarts = Restarts()
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._reason = ""
        # Since when the server is not ready, and how long the first start took.
        self._down_since: float | None = time.monotonic()
        self._first_start_s: float | None = None
        self._thread = threading.Thread(target=self._supervise, name="nereid", daemon=True)
        self._thread.start()

    def fault(self, now: float) -> str | None:
        """Why starting the server again is not enough, if it is not. `now` is that of `time.monotonic`."""
        down_since = self._down_since
        if self._restarts.are_too_many(now):
            return f"nereid has ended {MOST_ENDS} times within {PERIOD_S:g} s. The last time {self._reason}"
        longest = PERIOD_S + 2 * (self._first_start_s or 0.0)
        if down_since is not None and now - down_since > longest:
            return f"nereid has not been ready for {longest:g} s. Before, {self._reason}"
        return None

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Ends the server, which first answers what it has unless it is killed, and waits for that."""
        with self._lock:
            self._stopping.set()
            if self._process is not None:
                self._process.send_signal(how)
        self._thread.join()

    def _supervise(self) -> None:
        while True:
            try:
                self._reason = self._run()
            except OSError as error:
                self._reason = f"the server cannot be started: {error}"
            if self._stopping.is_set():
                return
            now = time.monotonic()
            was_ready = self._down_since is None
            pause = self._restarts.pause_after_end(now, was_ready)
            if was_ready:
                self._down_since = now
            self._on_end(self._reason)
            logger.warning("nereid is started again: %s", self._reason)
            if self._stopping.wait(pause):
                return

    def _run(self) -> str:
        """Starts the server and waits until it has ended. Gives how it ended."""
        with tempfile.TemporaryDirectory(prefix="nereid-ray-") as name, NotifySocket(name) as told:
            folder = pathlib.Path(name)
            sockets = Sockets(str(folder / "http"), str(folder / "grpc"))
            own = [f"--http-address=unix:{sockets.http}", f"--grpc-address=unix:{sockets.grpc}"]
            bound = [sys.executable, "-I", "-S", "-c", _BOUND, str(os.getpid())]
            reading, writing = os.pipe()
            log = _Log(reading)
            with self._lock, open(writing, "wb") as output:
                if self._stopping.is_set():
                    return "it was stopped"
                self._process = subprocess.Popen(
                    [*bound, *self._line, *own],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env={**os.environ, **told.variables},
                )
            if told.wait_until_ready(self._process):
                if self._first_start_s is None and self._down_since is not None:
                    self._first_start_s = time.monotonic() - self._down_since
                self._down_since = None
                self._on_ready(sockets)
            return has_ended(self._process.wait(), log.end())


class _Log:
    """Writes what a server tells to the log of the replica, and keeps the last lines."""

    def __init__(self, descriptor: int):
        self._kept: collections.deque[str] = collections.deque(maxlen=20)
        self._thread = threading.Thread(target=self._copy, args=(descriptor,), name="nereid-log", daemon=True)
        self._thread.start()

    def _copy(self, descriptor: int) -> None:
        with open(descriptor, errors="replace") as lines:
            for line in lines:
                self._kept.append(line)
                sys.stderr.write(line)

    def end(self) -> str:
        """The last lines of a server that has ended. What it has started may still have the log open."""
        self._thread.join(1.0)
        return "".join(list(self._kept))
