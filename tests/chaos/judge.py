"""What broke, and what may have failed. Nothing here knows the time: a moment is a number that grows."""

import contextlib
import itertools
import threading
from dataclasses import dataclass


@dataclass
class Disturbance:
    """From `begin` to `end`, requests of these models may fail. It goes on while `end` is None."""

    models: frozenset
    what: str
    begin: int
    end: int | None = None


class Judge:
    """Collects broken promises. An answer must always be right; a failure must have a disturbance that explains it."""

    def __init__(self):
        self._moments = itertools.count(1)
        self._lock = threading.Lock()
        self._disturbances = []
        self.broken = []

    def now(self):
        return next(self._moments)

    @contextlib.contextmanager
    def disturbs(self, models, what):
        """Requests of these models may fail until the end of the block."""
        disturbance = Disturbance(frozenset(models), what, self.now())
        with self._lock:
            self._disturbances.append(disturbance)
        try:
            yield
        finally:
            disturbance.end = self.now()

    def excuse(self, models, since):
        """Why requests of one of these models may have failed since a moment, or None."""
        with self._lock:
            for disturbance in reversed(self._disturbances):
                lasts = disturbance.end is None or disturbance.end > since
                if lasts and not disturbance.models.isdisjoint(models):
                    return disturbance.what
        return None

    def failed(self, models, since, what, error):
        """A request has failed."""
        text = str(error)
        if any(never in text for never in NEVER):
            self.breaks(f"{what}: {text}")
        elif self.excuse(models, since) is None:
            self.breaks(f"{what} failed, and nothing had disturbed it: {text}")

    def breaks(self, text):
        with self._lock:
            self.broken.append(text)

    def forget(self):
        """Forgets disturbances that are over. No request is under way."""
        with self._lock:
            self._disturbances = [one for one in self._disturbances if one.end is None]


# What no error may say, whatever disturbs it.
NEVER = ("dropped the request without an answer", "panicked", "Deadline Exceeded", "timed out")


class Generations:
    """Which generations of a model's file may answer. A generation is a number that each answer of the model contains."""

    def __init__(self):
        self._lock = threading.Lock()
        self._lowest, self._highest = 1, 1

    def next(self):
        """A new generation, which may answer from now on."""
        with self._lock:
            self._highest += 1
            return self._highest

    def loaded(self, generation):
        """A load that began after the file was written has ended: no older one answers a request from now on."""
        with self._lock:
            self._lowest = max(self._lowest, generation)

    @property
    def lowest(self):
        return self._lowest

    @property
    def highest(self):
        return self._highest
