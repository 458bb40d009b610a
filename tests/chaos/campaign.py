"""A campaign: callers ask, and a history of faults happens to what they ask. Every answer is judged."""

import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from chaos.changes import Changes
from chaos.files import Files
from chaos.history import MOST_AT_ONCE
from chaos.judge import Judge
from chaos.load import Load
from chaos.system import System, holdings

# After so many steps nobody asks, and what the server holds is compared.
REST_AFTER = 25
# A process at rest may have so much more memory than at its second rest: the allocator keeps some of what is free.
MEMORY_BYTES = 96 << 20


@dataclass
class Report:
    """What a campaign has done and found."""

    steps: list = field(default_factory=list)
    broken: list = field(default_factory=list)
    sent: int = 0
    sent_to_ensembles: int = 0
    scale_downs: int = 0
    # How many seconds each orderly stop took.
    stops: list = field(default_factory=list)
    kinds: Counter = field(default_factory=Counter)
    # What the server held at each rest: the number of the process, and the holdings.
    rests: list = field(default_factory=list)

    def figures(self):
        """What the length of a campaign is told by."""
        return {
            "count": len(self.steps),
            "scale_downs": self.scale_downs,
            "stops": len(self.stops),
            "requests": self.sent_to_ensembles,
        }


class Campaign:
    """Runs steps of a history against a new server, until something breaks."""

    def __init__(self, seed, load="all", wrong=""):
        self._seed, self._load, self._wrong = seed, load, wrong

    def run(self, steps, goes_on, told=None):
        """Performs steps as long as `goes_on(report)` says so. `told(step)` is called before each. Returns the report."""
        report = Report()
        judge = Judge()
        with tempfile.TemporaryDirectory(prefix="nereid-chaos-") as name:
            folder = Path(name)
            files = Files(folder / "models", self._wrong)
            system = System(folder, files, with_store=self._seed % 2 == 0)
            changes = Changes(system, files, judge)
            load = None
            try:
                system.start_store()
                system.start()
                load = Load(judge, files, system.running, self._seed, self._load)
                load.wait_for_answers()
                self._perform(steps, goes_on, told, report, judge, system, changes, load)
            except Exception as error:
                # What has been waited for in vain is a broken promise, too. What broke first says more.
                judge.breaks(f"{type(error).__name__}: {error}")
            finally:
                self._end(report, judge, system, changes, load)
        report.broken = judge.broken
        return report

    def _perform(self, steps, goes_on, told, report, judge, system, changes, load):
        with ThreadPoolExecutor(MOST_AT_ONCE) as threads:
            for step in steps:
                report.sent, report.sent_to_ensembles = load.sent, load.sent_to_ensembles
                report.scale_downs, report.stops = changes.scale_downs, changes.stops
                if judge.broken or not goes_on(report):
                    break
                if told:
                    told(step)
                report.steps.append(step)
                report.kinds.update(action.kind for action in step.actions)
                beside = [action for action in step.actions if not changes.in_main_thread(action)]
                running = [threads.submit(changes.perform, action, step) for action in beside]
                for action in step.actions:
                    if action not in beside:
                        changes.perform(action, step)
                for one in running:
                    one.result()
                changes.settle()
                load.wait_for_answers()
                if len(report.steps) % REST_AFTER == 0:
                    self._rest(report, judge, system, changes, load)

    def _rest(self, report, judge, system, changes, load):
        """Compares what the server holds with what it held the first time."""
        load.rest()
        changes.rest()
        judge.forget()
        process = system.server.process.pid
        of_process = [held for other, held in report.rests if other == process]
        held = system.wait_for_holdings(of_process[0]) if of_process else holdings(system.server)
        report.rests.append((process, held))
        if len(of_process) > 1 and held.resident_bytes > of_process[1].resident_bytes + MEMORY_BYTES:
            judge.breaks(f"the memory grows: {held}, where it was {of_process[1]}")
        load.go_on()

    def _end(self, report, judge, system, changes, load):
        if load:
            try:
                load.stop()
            except AssertionError as error:
                judge.breaks(str(error))
        if system.server:
            changes.check_log(system.server)
        if judge.broken and system.server:
            judge.breaks(system.server.log_end())
        changes.end()
        system.end()


def until(seconds=None, **most):
    """Says yes for so many seconds, and as long as no figure of the report has reached its most."""
    end = time.monotonic() + seconds if seconds is not None else float("inf")
    most = {name: figure for name, figure in most.items() if figure is not None}

    def goes_on(report):
        return time.monotonic() < end and all(report.figures()[name] < figure for name, figure in most.items())

    return goes_on
