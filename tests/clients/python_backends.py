"""The two backends that run models in Python: Nereid's own, and Triton's, unmodified. Both must do the same."""

import os
import pathlib
import sys
from dataclasses import dataclass

import plugins
import pytest


@dataclass(frozen=True)
class PythonBackend:
    """How a server is started so that it has this backend."""

    name: str
    options: tuple
    variables: dict


BUILT_IN = PythonBackend(
    "built-in",
    ("--backend-config=python,implementation=built-in",),
    # Models run in the Python of the tests.
    {"PATH": os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ.get("PATH", "")])},
)
TRITON = PythonBackend(
    "triton",
    (f"--backend-directory={plugins.BACKENDS}", "--backend-config=python,implementation=triton"),
    plugins.VARIABLES,
)


def refusal_of_unknown(python_backend, model, words):
    """The words of an error about a model that is not there. Triton's backend asks first whether the model is ready."""
    if python_backend == BUILT_IN:
        return words
    return f"Failed for execute the inference request. Model '{model}' is not ready."


BOTH = [pytest.param(BUILT_IN, id="built-in"), pytest.param(TRITON, id="triton", marks=plugins.needed)]
# What Triton's backend of the version that the tests have cannot do, or does wrong.
OURS = [pytest.param(BUILT_IN, id="built-in")]
