"""Measures each time and size that the documents promise. `cargo xtask bench --only promises` starts it.

Usage: promises.py --rounds N [--filter TEXT]. Writes a line of JSON for each promise: what is promised where, and either
the figure of each round or the reason why there is none. The server is that of the client tests: NEREID_BINARY, with the
library NEREID_ONNXRUNTIME_LIBRARY, and redis-server is NEREID_TEST_REDIS_SERVER or that of the system.
"""

import argparse
import contextlib
import dataclasses
import json
import pathlib
import signal
import sys
import tempfile
import traceback

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "clients"))

import pytest
from promised import hits, many, python_processes, rest, stops, stores, waits  # noqa: F401
from promised.place import Place, Shared
from promised.promise import MEASUREMENTS

# How long one round of a measurement may take, in seconds.
LIMIT = 120


@contextlib.contextmanager
def limited():
    """Ends what takes too long by an exception."""

    def end(*_):
        raise TimeoutError(f"not measured in {LIMIT} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(LIMIT)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def measure(function, shared, folder, rounds):
    """For each promise of a function, the figure of each round."""
    found = []
    for number in range(rounds):
        of_round = folder / f"{function.__name__}-{number}"
        of_round.mkdir()
        try:
            with limited():
                figures = function(Place(shared, of_round, number))
        finally:
            shared.gate.release_all()
        found.append(figures if isinstance(figures, tuple) else (figures,))
    return list(zip(*found, strict=True))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--filter", default="")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nereid-promises-") as name:
        folder = pathlib.Path(name)
        shared = Shared(folder)
        for function, promises in MEASUREMENTS:
            wanted = [options.filter in promise.name for promise in promises]
            if not any(wanted):
                continue
            try:
                results = [{"figures": figures} for figures in measure(function, shared, folder, options.rounds)]
            # What a test fails with is no Exception.
            except (Exception, pytest.fail.Exception) as error:
                traceback.print_exc()
                reason = next(iter(str(error).splitlines()), "") or type(error).__name__
                results = [{"reason": reason}] * len(promises)
            for promise, result, is_wanted in zip(promises, results, wanted, strict=True):
                if is_wanted:
                    print(json.dumps(dataclasses.asdict(promise) | result), flush=True)


main()
