"""`nereid perf` as a process, and the rows that it writes."""

import csv

import processes
from serving import BINARY, environment

# Short enough for a test: one window after hardly any warm-up.
SHORT = ("--warm-up", 0.1, "--duration", 0.3)


def perf(*options):
    line = [str(BINARY), "perf", *map(str, options)]
    return processes.run(line, env=environment())


def perf_report(*options):
    """What a run that must succeed prints."""
    ended = perf(*options)
    assert ended.returncode == 0, ended.stderr + ended.stdout
    return ended.stdout


def perf_rows(folder, *options):
    """The rows of a run that must succeed, by Nereid's headings."""
    table = folder / "rows.csv"
    perf_report(*options, "--csv", table)
    return list(csv.DictReader(table.open()))


def where(server, protocol):
    """The options that name the server."""
    return ["-u", getattr(server, protocol), "-i", protocol]
