"""Programs that the tests use, other than the server."""

import os
import pathlib
import shutil

import pytest
from serving import TARGET

SETUP = "cargo xtask setup"
# It fetches what the groups of tests need that are marked (pytest.ini).
INTEGRATIONS = "cargo xtask integrations"

# The marks of the test that runs.
marks = set()


def missing(what, command):
    """Fails a test: what it needs is not here. A test that is left out would be taken for one that passes."""
    pytest.fail(f"{what}; `{command}` installs it", pytrace=False)


def of_no_package(variable):
    """What no package has: the place that a variable names."""
    place = os.environ.get(variable)
    return pathlib.Path(place) if place else missing(f"{variable} names nothing", INTEGRATIONS)


def check_group(group):
    """A test that needs what a group of tests needs has the mark of the group: other runs do not have it."""
    assert group in marks, f"this test needs the mark '{group}'"


def find(name, variable, place="", group=None):
    """The program that a variable names, that of the system, or the one that `cargo xtask` has fetched."""
    if group:
        check_group(group)
    fetched = pathlib.Path(TARGET, name, place, name)
    found = os.environ.get(variable) or shutil.which(name)
    if not found and fetched.is_file():
        found = str(fetched)
    return found or missing(f"there is no {name}, and {variable} names none", INTEGRATIONS if group else SETUP)
