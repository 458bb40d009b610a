"""The other names of the server. `pip` makes a program of each function."""

import importlib.util
import os
import sys

from . import BINARY


def tritonserver():
    """The server under the name that scripts for Triton have."""
    _run("tritonserver")


def serve():
    """The server for SageMaker, with options that are variables. With a word of Ray, Ray's program of this name."""
    if sys.argv[1:] and not sys.argv[1].startswith("-") and importlib.util.find_spec("ray"):
        from ray.serve.scripts import cli

        sys.exit(cli())
    _run("serve")


def _run(name):
    os.execv(BINARY, [name, *sys.argv[1:]])
