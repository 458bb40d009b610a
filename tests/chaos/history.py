"""The history of a campaign: what is changed, killed, stopped and paused, in which order. It follows from a seed.

A history has steps. The actions of a step happen at the same time; the next step begins when all have ended.
"""

import itertools
import random
from dataclasses import dataclass

# How often each kind of action is drawn. `model` says which models it may concern.
WEIGHTS = {
    "reload": 6,
    "instances": 8,
    "reload_broken": 2,
    "unload": 2,
    "kill_worker": 2,
    "pause_worker": 1,
    "cancel": 3,
    "half_head": 1,
    "half_body": 1,
    "half_preface": 1,
    "idle_channel": 1,
    "unread": 2,
    "aborted": 2,
    "reset_streams": 1,
    "store_killed": 1,
    "store_paused": 1,
    "store_flushed": 1,
    "log_unread": 1,
    "log_verbose": 1,
    "look": 2,
    "stop": 1,
    "kill": 1,
}
MOST_AT_ONCE = 4


@dataclass(frozen=True)
class Action:
    """One thing that happens. `model` is the model that it concerns, or empty; `number` decides what else is open."""

    kind: str
    model: str
    number: int

    def __str__(self):
        return f"{self.kind}({', '.join(filter(None, [self.model, str(self.number)]))})"


@dataclass(frozen=True)
class Step:
    """Actions that happen at the same time. `place` is its place in the whole history of the seed."""

    place: int
    actions: tuple

    def __str__(self):
        return f"{self.place}: {' + '.join(map(str, self.actions))}"


def steps(seed, models_of, kinds=None):
    """The endless history of a seed. `models_of` has the models that an action of a kind may concern, if it concerns any.

    With `kinds` only these are drawn. A server ends at most once in a step.
    """
    random_ = random.Random(seed)
    weights = {kind: weight for kind, weight in WEIGHTS.items() if not kinds or kind in kinds}
    for place in itertools.count():
        actions = []
        for _ in range(random_.randint(1, MOST_AT_ONCE)):
            kind = random_.choices(list(weights), list(weights.values()))[0]
            model = random_.choice(models_of[kind]) if kind in models_of else ""
            action = Action(kind, model, random_.randrange(1 << 16))
            if not (is_end(action) and any(map(is_end, actions))):
                actions.append(action)
        yield Step(place, tuple(actions))


def is_end(action):
    """Whether the server ends."""
    return action.kind in ("stop", "kill")


def smallest(history, fails):
    """The shortest part of a history that still fails, as far as `fails` finds one. `fails` says no when time is up.

    First ever longer ends of the history are tried, because the last steps are the likely ones; then steps are left out.
    """
    if not history:
        return history
    length = 1
    while length < len(history) and not fails(history[-length:]):
        length *= 4
    found = history[-length:]
    pieces = 2
    while len(found) > 1:
        size = -(-len(found) // pieces)
        for start in range(0, len(found), size):
            rest = found[:start] + found[start + size :]
            if rest and fails(rest):
                found, pieces = rest, max(pieces - 1, 2)
                break
        else:
            if size == 1:
                break
            pieces = min(2 * pieces, len(found))
    return found
