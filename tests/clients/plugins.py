"""Triton's own plug-ins, unmodified, as users bring them; and models in Python for its Python backend.

$NEREID_PLUGINS is the folder into which `cargo xtask integrations` takes them out of a wheel. Tests that need them have the
mark `plugins`.
The models' files lie in `python_models`; those of one name with different configurations are listed in `SERVED`.
"""

import os
import pathlib
import shutil
import sysconfig

import numpy as np
import programs
import pytest
import repository as models
from serving import TARGET

MODELS = pathlib.Path(__file__).parent / "python_models"


def _folder():
    given = os.environ.get("NEREID_PLUGINS")
    fetched = (TARGET / "plugins").glob(f"*-python{sysconfig.get_python_version()}")
    return pathlib.Path(given) if given else max(fetched, default=None)


FOLDER = _folder()
BACKENDS = FOLDER and FOLDER / "pytriton/tritonserver/backends"
CACHES = FOLDER and FOLDER / "pytriton/tritonserver/caches"

needed = pytest.mark.plugins


def check_that_they_are_here():
    if FOLDER is None:
        programs.missing("Triton's plug-ins are not here, and NEREID_PLUGINS names no folder", programs.INTEGRATIONS)


# Models run in the first python3 of the path, with its own shared library.
VARIABLES = {
    "PATH": os.pathsep.join([str(FOLDER and FOLDER / "python/bin"), os.environ.get("PATH", "")]),
    "LD_LIBRARY_PATH": os.pathsep.join(filter(None, [sysconfig.get_config_var("LIBDIR"), os.environ.get("LD_LIBRARY_PATH")])),
}


def python_model(repository, name, file=None, config="", text=None):
    """Adds a model in Python: a file of `python_models`, the model's own name if nothing else is said, or a text."""
    folder = repository / name / "1"
    folder.mkdir(parents=True)
    if text is None:
        shutil.copy(MODELS / f"{file or name}.py", folder / "model.py")
    else:
        (folder / "model.py").write_text(text)
    (folder.parent / "config.pbtxt").write_text(f'name: "{name}"\nbackend: "python"\n{config}')


def sequence_batching(strategy, corrid):
    control = "control_input [{{ name: '{}' control [{{ kind: CONTROL_SEQUENCE_{} {} }}] }}]\n".format
    controls = "".join(control(name, name, "int32_false_true: [0, 1]") for name in ("START", "END", "READY"))
    controls += control("CORRID", "CORRID", f"data_type: {corrid}")
    return (
        f"max_batch_size: 4\nsequence_batching {{ {strategy}\n{controls} }}\n"
        + models.tensor("input", "X", "INT32", 1)
        + models.tensor("output", "SUM", "INT32", 1)
        + models.tensor("output", "HEARD", "BYTES", 1)
    )


# Name: file and configuration.
SERVED = {
    "mirror": ("mirror", ""),
    "waiter": ("waiter", ""),
    "hearer": ("hearer", 'parameters { key: "FROM" value: { string_value: "the configuration" } }'),
    "unruly": ("unruly", ""),
    "adder_direct": ("adder", sequence_batching("direct {}", "TYPE_UINT64")),
    "adder_oldest": ("adder", sequence_batching("oldest { max_candidate_sequences: 8 }", "TYPE_STRING")),
    "streamer": ("streamer", ""),
    "patient": ("patient", ""),
    "caller": ("caller", ""),
    "reporter": ("reporter", ""),
}


def write_all(repository):
    """Writes all of `SERVED`, and a model of another backend."""
    repository.mkdir()
    for name, (file, config) in SERVED.items():
        python_model(repository, name, file, config)
    models.identity(repository, "FP32")
    return repository


def waiter_inputs(protocol, x, until=""):
    """Inputs for the waiter; it answers when the file `until` exists, if one is named."""
    until = np.array([[str(until)]], np.object_)
    return [protocol.input("X", np.array([[x]], np.float32)), protocol.input("UNTIL", until)]


def begun(gate):
    """Asks whether a model has begun to wait for that file."""
    return gate.with_suffix(".begun").exists
