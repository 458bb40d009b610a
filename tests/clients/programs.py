"""Programs that the tests use, other than the server."""

import os
import pathlib
import shutil

import pytest
from serving import TARGET


def find(name, variable, place=""):
    """The program that a variable names, that of the system, or the one that `cargo xtask setup` has fetched into a place."""
    fetched = pathlib.Path(TARGET, name, place, name)
    found = os.environ.get(variable) or shutil.which(name)
    if not found and fetched.is_file():
        found = str(fetched)
    if not found:
        pytest.skip(f"there is no {name}, and {variable} names none; `cargo xtask setup` fetches it")
    return found
