"""Clients that ask a server at the same time, until a test ends them."""

import threading
import time
from collections import Counter

from protocols import GRPC, HTTP
from serving import PATIENCE, eventually


class Callers:
    """Threads with a client each, in turn of HTTP and of gRPC.

    `prepare(protocol, client)` returns the function that asks one question. A thread calls it until the callers are
    stopped, at most `per_second` times in a second. What it raises ends the thread, and leaves the context.
    """

    def __init__(self, server, threads, prepare, count=6, per_second=None):
        self._stopping = threading.Event()
        self._pause = 1 / per_second if per_second else 0
        self.answers = Counter()
        self._callers = [
            threads.submit(self._ask, server, (HTTP, GRPC)[number % 2], prepare, number) for number in range(count)
        ]

    def _ask(self, server, protocol, prepare, number):
        with protocol.connect(server) as client:
            ask = prepare(protocol, client)
            due = time.monotonic()
            while not self._stopping.is_set():
                ask()
                self.answers[number] += 1
                if self._pause:
                    due = max(due + self._pause, time.monotonic() - 1)
                    self._stopping.wait(max(0, due - time.monotonic()))

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self._stopping.set()
        for caller in self._callers:
            caller.result(PATIENCE)

    def wait_for_answers(self):
        """Waits until each caller has had another answer."""
        before = dict(self.answers)
        for number, caller in enumerate(self._callers):
            more = before.get(number, 0) + 1
            eventually(lambda: caller.done() or self.answers[number] > more, "an answer")  # noqa: B023
            assert not caller.done(), caller.exception()
