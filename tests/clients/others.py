"""Environments with packages of others, which tests run as programs.

`cargo xtask integrations` installs them, and a variable names the interpreter of each. Tests that need them have the mark
`others`.
"""

import os
import pathlib

import programs
from serving import ROOT, TARGET

PROGRAMS = ROOT / "tests/clients/other_programs"

# The variable of each environment, and where it is if the variable is not set.
MEASURING_TOOLS = ("NEREID_TEST_MEASURING_TOOLS", "others")
PYTRITON = ("NEREID_TEST_PYTRITON", "pytriton")
KSERVE = ("NEREID_TEST_KSERVE", "kserve")


def python_with(packages):
    """The interpreter that has these packages."""
    programs.check_group("others")
    variable, place = packages
    found = pathlib.Path(os.environ.get(variable) or TARGET / "integrations" / place / "venv/bin/python")
    return found if found.exists() else programs.missing(f"{variable} names no Python", programs.INTEGRATIONS)
