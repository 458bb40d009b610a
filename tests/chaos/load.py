"""The callers, each in a thread of its own, for as long as the campaign lasts."""

import threading
import traceback

from serving import PATIENCE, eventually

from chaos.questions import LOADS, Reconnect


class Load:
    """Callers that ask whatever server there is. They can rest, so that nothing is under way."""

    def __init__(self, judge, files, server_of, seed, load):
        self._judge, self._server_of = judge, server_of
        self._stopping, self._working = threading.Event(), threading.Event()
        self._working.set()
        self._callers = [
            kind(judge, files, protocol, seed * 1000 + number) for number, (kind, protocol) in enumerate(LOADS[load])
        ]
        # How many questions each caller has ended, and whether it rests.
        self.asked = [0] * len(self._callers)
        self._rests = [threading.Event() for _ in self._callers]
        self._threads = [threading.Thread(target=self._call, args=[number]) for number in range(len(self._callers))]
        for thread in self._threads:
            thread.start()

    def _call(self, number):
        caller = self._callers[number]
        connected = None
        try:
            while not self._stopping.is_set():
                if not self._working.is_set():
                    self._close(caller, connected)
                    connected = None
                    self._rests[number].set()
                    self._working.wait()
                    continue
                server = self._server_of()
                if connected is not server:
                    self._close(caller, connected)
                    caller.connect(server)
                    connected = server
                try:
                    caller.ask()
                    self.asked[number] += 1
                except Reconnect:
                    self._close(caller, connected)
                    connected = None
        except Exception:
            self._judge.breaks(f"a caller has ended: {traceback.format_exc()}")
        finally:
            self._close(caller, connected)
            self._rests[number].set()

    @staticmethod
    def _close(caller, connected):
        if connected is not None:
            caller.close()

    @property
    def sent(self):
        """How many requests were sent."""
        return sum(caller.sent for caller in self._callers)

    @property
    def sent_to_ensembles(self):
        """How many of them were of sequences through ensembles."""
        return sum(caller.sent_to_ensembles for caller in self._callers)

    def wait_for_answers(self):
        """Waits until each caller has begun and ended a question since now. A broken promise ends the wait, too."""
        before = list(self.asked)

        def is_new(number):
            return self.asked[number] >= before[number] + 2 or self._judge.broken

        for number, caller in enumerate(self._callers):
            eventually(lambda: is_new(number), f"answers for {type(caller).__name__} {number}")  # noqa: B023

    def rest(self):
        """Lets all callers close their connections. Nothing is under way when this returns."""
        for rests in self._rests:
            rests.clear()
        self._working.clear()
        for rests in self._rests:
            assert rests.wait(2 * PATIENCE), "a caller does not rest"

    def go_on(self):
        self._working.set()

    def stop(self):
        self._stopping.set()
        self._working.set()
        for thread in self._threads:
            thread.join(2 * PATIENCE)
            assert not thread.is_alive(), "a caller does not end"
