"""Compares Nereid with a real Triton in generated cases: `cargo xtask differential`.

Prints each kind of difference that nothing explains with the smallest case found, and at the end how often each explanation was
needed. Ends with 1 if a difference has no explanation.
"""

import argparse
import itertools
import sys
import time

from differential import explanations
from differential.areas.calls import CallsArea
from differential.areas.commands import CommandsArea
from differential.areas.configurations import ConfigArea
from differential.areas.grpc_inference import GrpcArea
from differential.areas.inference import InferenceArea
from differential.areas.scheduling import SchedulingArea
from differential.comparison import Comparison

# How many of a hundred cases each area gets. Those that load models or start programs take seconds.
AREAS = {InferenceArea: 42, GrpcArea: 30, CallsArea: 16, SchedulingArea: 8, ConfigArea: 2, CommandsArea: 2}
BY_NAME = {area.name: area for area in AREAS}
# A run of so many cases in all needs each explanation.
LONG = 20_000


def parse():
    parser = argparse.ArgumentParser(prog="cargo xtask differential")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, help="how many, in all areas together")
    parser.add_argument("--seconds", type=float, help="how long, in all areas together, instead of a number of cases")
    parser.add_argument("--only", choices=BY_NAME, help="only this area")
    parser.add_argument("--case", type=int, help="only the case of this number, with its answers; needs --only")
    options = parser.parse_args()
    if options.case is not None and options.only is None:
        parser.error("--case needs --only")
    return options


def numbers(options, share, areas):
    """The numbers of the cases of an area: its share of the cases, or the same time as each of so many areas."""
    if options.case is not None:
        yield options.case
        return
    end = time.monotonic() + options.seconds / areas if options.seconds else None
    most = None if end else max(round((options.cases or 1000) * share), 1)
    for number in itertools.count():
        if (end and time.monotonic() >= end) or (most is not None and number >= most):
            return
        yield number


def compare(options, kind, wanted, known):
    """Runs the cases of an area, and tells what was found. Returns the comparison."""
    with kind() as area:
        comparison = Comparison(area, known, options.seed)
        for number in numbers(options, wanted[kind] / sum(wanted.values()), len(wanted)):
            finding = comparison.run(number)
            if finding:
                tell(options, area.name, finding)
    codes = ", ".join(f"{code}: {count}" for code, count in sorted(comparison.codes.items()))
    told = f"{comparison.cases} cases, {comparison.differing} with differences"
    if comparison.passing:
        told += f" ({comparison.passing} had some that did not come again)"
    print(f"{kind.name}: {told}; Triton's outcomes: {codes}", flush=True)
    return comparison


def tell(options, name, finding):
    print(f"\na difference without an explanation, case {finding.number}, made small:\n{finding.case}")
    for difference in finding.differences:
        print(f"  {difference}")
    print(f"the whole case: cargo xtask differential --seed {options.seed} --only {name} --case {finding.number}", flush=True)


def main():
    options = parse()
    known = explanations.Explanations(explanations.load())
    wanted = {kind: share for kind, share in AREAS.items() if options.only in (None, kind.name)}
    compared = [compare(options, kind, wanted, known) for kind in wanted]
    for pattern, count in known.needed.most_common():
        print(f"explained {count} times: {pattern}")
    if sum(one.cases for one in compared) >= LONG:
        for pattern in known.unneeded([kind.name for kind in wanted]):
            print(f"explained nothing: {pattern}")
    kinds = [finding for one in compared for finding in one.findings.values()]
    for finding in kinds:
        print(f"in {finding.count} cases: {finding.differences[0]}")
    print(f"seed {options.seed}: {sum(one.cases for one in compared)} cases, {len(kinds)} kinds of unexplained differences")
    return bool(kinds)


if __name__ == "__main__":
    sys.exit(main())
