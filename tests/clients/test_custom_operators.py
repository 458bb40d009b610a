"""Libraries of custom operators: where they may be, and that of onnxruntime-extensions."""

import importlib.util
import pathlib
import shutil
import sysconfig

import numpy as np
import onnx.parser
import pytest
import repository
from protocols import HTTP
from serving import command, run_to_end

MODEL = """<ir_version: 8, opset_import: ["": 17, "ai.onnx.contrib": 1]>
upper (string[n] X) => (string[n] Y) { Y = ai.onnx.contrib.StringUpper(X) }"""
IO = repository.tensor("input", "X", "BYTES", -1) + repository.tensor("output", "Y", "BYTES", -1)
# The package's library is a module of Python, too, and leaves it to its process to have Python's library.
LIBPYTHON = pathlib.Path(sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("INSTSONAME"))
needs_libpython = pytest.mark.skipif(".so" not in LIBPYTHON.name or not LIBPYTHON.is_file(), reason="Python has no library")


@pytest.fixture
def extensions():
    [package] = importlib.util.find_spec("onnxruntime_extensions").submodule_search_locations
    [library] = pathlib.Path(package).glob("_extensions_pydll*.so")
    return library


def upper(folder, library):
    config = f'{IO}model_operations {{ op_library_filename: "{library}" }}'
    return repository.write(folder, "upper", onnx.parser.parse_model(MODEL), config)


def allowed(folder):
    return f"--backend-config=onnxruntime,op-library-directories=/nowhere:{folder}"


@needs_libpython
@pytest.mark.parametrize("place", ["model", "named", "name"])
def test_the_operators_of_onnxruntime_extensions_run(start, tmp_path, extensions, place):
    models, options = tmp_path / "models", []
    if place == "model":
        shutil.copy(extensions, upper(models, extensions.name))
    else:
        upper(models, extensions if place == "named" else extensions.name)
        options = [allowed(extensions.parent)]
    server = start(models, *options, variables={"LD_PRELOAD": str(LIBPYTHON)})
    server.wait_until_ready()
    with HTTP.connect(server) as client:
        answer = client.infer("upper", [HTTP.input("X", np.array(["abc", "dEf"], np.object_))])
    assert answer.as_numpy("Y").tolist() == [b"ABC", b"DEF"]


@needs_libpython
def test_instances_may_be_the_first_with_an_operator_at_the_same_time(start, tmp_path, extensions):
    folder = upper(tmp_path / "models", extensions)
    with (folder / "config.pbtxt").open("a") as config:
        config.write("\ninstance_group [{ kind: KIND_CPU, count: 8 }]")
    options = [allowed(extensions.parent)]
    for _ in range(4):
        server = start(folder.parent, *options, variables={"LD_PRELOAD": str(LIBPYTHON)})
        server.wait_until_ready()


def test_a_library_elsewhere_is_refused(tmp_path):
    library = tmp_path / "elsewhere.so"
    library.write_bytes(b"")
    upper(tmp_path / "models", library)
    ended = run_to_end(*command(tmp_path / "models")[1:])
    assert f"custom op library '{library}' is outside of" in ended.stderr
