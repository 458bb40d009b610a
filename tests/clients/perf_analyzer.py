"""NVIDIA's `perf_analyzer`, and the folder of NVIDIA's programs.

$NEREID_TEST_NVIDIA is the folder into which `cargo xtask integrations` puts them.
"""

import os
import pathlib

import programs
from serving import TARGET

# It ends after three windows with so few requests, however much their latencies differ.
BRIEF = {"measurement-mode": "count_windows", "measurement-request-count": 10, "stability-percentage": 1000000}


def folder():
    given = os.environ.get("NEREID_TEST_NVIDIA")
    fetched = max((TARGET / "nvidia").glob("*-perf_analyzer-*[0-9]"), default=None)
    return pathlib.Path(given) if given else fetched or programs.missing("there is no perf_analyzer", programs.INTEGRATIONS)


def program():
    return folder() / "perf_analyzer"


def version():
    """The version of its package: the program says 0.0.0."""
    [package] = (folder() / "packages").glob("perf_analyzer-*.dist-info")
    return package.name.removeprefix("perf_analyzer-").removesuffix(".dist-info")
