"""A promise, and the list of the functions that measure promises."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Promise:
    """What is promised, where, and between which bounds a measured figure keeps it."""

    name: str
    # The page and its section or row. None: no page has a figure, and the bound is what a test once had.
    document: str | None
    # For people.
    promised: str
    unit: str
    # The bounds, in the unit.
    most: float
    least: float = 0.0
    # Which figure is compared with the bounds: the worst of all rounds, or their median.
    judged: str = "worst"


# The functions, each with its promises.
MEASUREMENTS = []


def measures(*promises):
    """Adds a function to the list. It is called with a `Place` in each round, and returns a figure for each promise."""

    def add(function):
        MEASUREMENTS.append((function, promises))
        return function

    return add
