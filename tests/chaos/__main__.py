"""Runs a campaign of random faults: `cargo xtask chaos`. Prints what broke and the smallest history that breaks it."""

import argparse
import itertools
import statistics
import sys
import time

from chaos import history
from chaos.campaign import Campaign, until
from chaos.questions import LOADS
from chaos.world import CONCERNED

# How often a part of a history is tried, because what broke may depend on chance, too.
TRIES = 3
# The options that end a campaign.
ENDS = ("seconds", "count", "scale_downs", "stops", "requests")


def parse():
    parser = argparse.ArgumentParser(prog="cargo xtask chaos")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--count", type=int, help="how many steps")
    parser.add_argument("--scale-downs", type=int, help="until so many updates have removed instances")
    parser.add_argument("--stops", type=int, help="until so many orderly stops")
    parser.add_argument("--requests", type=int, help="until so many requests of sequences through ensembles")
    parser.add_argument("--load", choices=LOADS, default="all", help="which callers ask")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", type=lambda text: text.split(","), help="only these kinds of actions")
    parser.add_argument("--steps", type=lambda text: [int(place) for place in text.split(",")], help="only these steps")
    parser.add_argument("--shrink-seconds", type=float, default=300)
    parser.add_argument("--wrong", default="", help="this network answers wrongly now and then")
    options = parser.parse_args()
    unknown = set(options.kinds or ()) - set(history.WEIGHTS)
    if unknown:
        parser.error(f"there are no actions {', '.join(sorted(unknown))}; there are {', '.join(history.WEIGHTS)}")
    if all(getattr(options, name) is None for name in (*ENDS, "steps")):
        options.seconds = 30
    return options


def chosen(options):
    """The steps of the seed, or those of them that are asked for."""
    steps = history.steps(options.seed, CONCERNED, options.kinds)
    if options.steps is None:
        return steps
    return [step for step in itertools.islice(steps, max(options.steps) + 1) if step.place in options.steps]


def command_of(options, steps):
    """How these steps are run again."""
    kinds = f" --kinds={','.join(options.kinds)}" if options.kinds else ""
    load = f" --load={options.load}" if options.load != "all" else ""
    wrong = f" --wrong={options.wrong}" if options.wrong else ""
    places = ",".join(str(step.place) for step in steps)
    return f"cargo xtask chaos --seed={options.seed}{kinds}{load}{wrong} --steps={places}"


def shrink(options, campaign, steps):
    """The smallest part of the history found that breaks a promise again, and what broke; None if none does."""
    end = time.monotonic() + options.shrink_seconds
    found = []

    def fails(part):
        for _ in range(TRIES):
            if time.monotonic() >= end:
                return False
            report = campaign.run(part, until())
            if report.broken:
                found[:] = [(part, report.broken)]
                return True
        return False

    history.smallest(steps, fails)
    return found[0] if found else None


def show(report):
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(report.kinds.items()))
    print(f"{len(report.steps)} steps: {kinds}")
    print(f"{report.sent} requests, {report.sent_to_ensembles} of them of sequences through ensembles")
    print(f"{report.scale_downs} updates have removed instances")
    if report.stops:
        middle, longest = statistics.median(report.stops), max(report.stops)
        print(f"{len(report.stops)} orderly stops, seconds: {middle:.2f} in the middle, {longest:.2f} the longest")
    for process, held in report.rests:
        print(f"at rest, process {process}: {held}")


def main():
    options = parse()
    campaign = Campaign(options.seed, options.load, options.wrong)
    most = {name: getattr(options, name) for name in ENDS}
    report = campaign.run(chosen(options), until(**most), lambda step: print(step, flush=True))
    show(report)
    if not report.broken:
        print(f"seed {options.seed}: no promise is broken")
        return 0
    print(f"seed {options.seed}: broken promises:")
    for text in report.broken[:20]:
        print(f"- {text}")
    print("looking for the smallest history that breaks one", flush=True)
    found = shrink(options, campaign, report.steps)
    if found is None:
        print(f"none broke again; the whole one: {command_of(options, report.steps)}")
        return 1
    steps, broken = found
    print("the smallest history found:")
    for step in steps:
        print(step)
    print(f"breaks: {broken[0]}\nagain: {command_of(options, steps)}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
