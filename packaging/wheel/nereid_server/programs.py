"""The other names of the server. `pip` makes a program of each function."""

import os
import sys

from . import BINARY


def tritonserver():
    """The server under the name that scripts for Triton have."""
    _run("tritonserver")


def serve():
    """The server for SageMaker, with options that are variables."""
    _run("serve")


def _run(name):
    os.execv(BINARY, [name, *sys.argv[1:]])
