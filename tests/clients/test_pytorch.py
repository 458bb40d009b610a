"""Models of PyTorch itself: every kind of file, every form of inputs and outputs, errors, batches and sequences."""

import os
import pathlib
import re
import shutil

import ml_dtypes
import numpy as np
import processes
import programs
import pytest
from protocols import GRPC, HTTP
from serving import ROOT, Server
from tritonclient.utils import InferenceServerException

pytestmark = [pytest.mark.pytorch, pytest.mark.timeout(600)]

# An interpreter with torch and silero-vad.
PYTHON = "NEREID_TEST_PYTORCH"
# AOTInductor compiles with the compiler of C++.
WRITE_SECONDS = 400
LOAD_SECONDS = 120
# Models that only the server itself computes.
ONLY_NATIVE = {"misfit", "matrix"}


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    python = os.environ.get(PYTHON) or programs.missing(f"{PYTHON} names no interpreter", programs.INTEGRATIONS)
    processes.run([python, ROOT / "tests/clients/pytorch_models.py", folder], check=True, timeout=WRITE_SECONDS)
    return folder


@pytest.fixture(scope="module")
def torch_server(repository, tmp_path_factory):
    variables = {"NEREID_PYTHON": os.environ[PYTHON]}
    folder = tmp_path_factory.mktemp("server")
    with Server(folder, repository, "--model-control-mode=explicit", variables=variables) as server:
        # One after the other: each process reads PyTorch, which takes seconds of a processor.
        with HTTP.connect(server, network_timeout=LOAD_SECONDS) as client:
            for model in sorted({path.name for path in repository.iterdir()} - ONLY_NATIVE):
                client.load_model(model)
        yield server.wait_until_ready()


@pytest.fixture
def client(protocol, torch_server):
    with protocol.connect(torch_server) as client:
        yield client


def rows(count, columns=4):
    return np.arange(count * columns, dtype=np.float32).reshape(count, columns)


def add_sub(client, protocol, model, names, outputs, count=2):
    first = rows(count)
    result = client.infer(model, [protocol.input(name, first + place) for place, name in enumerate(names)])
    np.testing.assert_array_equal(result.as_numpy(outputs[0]), 2 * first + 1)
    np.testing.assert_array_equal(result.as_numpy(outputs[1]), np.full_like(first, -1))


@pytest.mark.parametrize("model", ["scripted", "traced", "two_instances"])
def test_torchscript(client, protocol, model):
    for count in (1, 2, 8):
        add_sub(client, protocol, model, ("INPUT__0", "INPUT__1"), ("OUTPUT__0", "OUTPUT__1"), count)


def test_inputs_may_have_the_names_of_arguments(client, protocol):
    add_sub(client, protocol, "named", ("a", "b"), ("SUM", "DIFFERENCE"))


@pytest.mark.parametrize("model", ["exported", "compiled", "fixed"])
def test_exported_programs_and_packages(client, protocol, model):
    for count in (1, 2, 1, 5):
        names = "ARGS[0]", "ARGS[1]"
        add_sub(client, protocol, model, names, ("RESULT[sum]", "RESULT[parts][0]"), count)


def test_exported_programs_have_arguments_with_names_and_single_values(client, protocol):
    add_sub(client, protocol, "keyword", ("ARGS[0]", "KWARGS[b]"), ("RESULT[0]", "RESULT[1]"))
    first = rows(3)
    result = client.infer("single", [protocol.input(name, first) for name in ("ARGS[0]", "ARGS[1]")])
    np.testing.assert_array_equal(result.as_numpy("RESULT"), 2 * first)


@pytest.mark.parametrize("model", ["exported", "compiled", "traced"])
def test_inputs_of_a_wrong_shape_never_reach_the_code(client, protocol, model):
    names = ("INPUT__0", "INPUT__1") if model == "traced" else ("ARGS[0]", "ARGS[1]")
    with pytest.raises(InferenceServerException, match=f"PyTorch execute failure: model '{model}': ") as error:
        client.infer(model, [protocol.input(name, rows(2, 3 + place)) for place, name in enumerate(names)])
    assert "\n" not in error.value.message()
    outputs = ("OUTPUT__0", "OUTPUT__1") if model == "traced" else ("RESULT[sum]", "RESULT[parts][0]")
    add_sub(client, protocol, model, names, outputs)


@pytest.mark.parametrize("model", ["exported", "compiled"])
def test_what_was_exported_for_four_columns_does_not_compute_three(client, protocol, model):
    names = "ARGS[0]", "ARGS[1]"
    with pytest.raises(InferenceServerException, match=f"PyTorch execute failure: model '{model}': "):
        client.infer(model, [protocol.input(name, rows(2, 3)) for name in names])
    add_sub(client, protocol, model, names, ("RESULT[sum]", "RESULT[parts][0]"))


@pytest.fixture(scope="module")
def temporary_files(tmp_path_factory):
    return tmp_path_factory.mktemp("temporary")


@pytest.fixture(scope="module")
def native_server(repository, temporary_files, tmp_path_factory):
    """A server that computes packages itself. It has no interpreter, so that no other model can be loaded."""
    find = "import importlib.util; print(importlib.util.find_spec('torch').submodule_search_locations[0])"
    folder = processes.run([os.environ[PYTHON], "-c", find], check=True).stdout.strip()
    variables = {"NEREID_TORCH_LIBRARY": f"{folder}/lib", "NEREID_PYTHON": "/nowhere/python", "TMPDIR": str(temporary_files)}
    options = "--model-control-mode=explicit", "--backend-config=pytorch,aotinductor=native"
    with Server(tmp_path_factory.mktemp("native"), repository, *options, variables=variables) as server:
        with HTTP.connect(server, network_timeout=LOAD_SECONDS) as client:
            for model in ("fixed", "misfit", "matrix"):
                client.load_model(model)
        yield server.wait_until_ready()


def test_the_server_computes_packages_itself_without_cuda(native_server, protocol):
    with protocol.connect(native_server) as client:
        for count in (1, 2, 1, 5):
            add_sub(client, protocol, "fixed", ("ARGS[0]", "ARGS[1]"), ("RESULT[sum]", "RESULT[parts][0]"), count)
    assert re.search(r"using PyTorch 2\..* from .*/libtorch_cpu\.so", native_server.log())
    maps = pathlib.Path(f"/proc/{native_server.process.pid}/maps").read_text()
    assert "libtorch_cpu.so" in maps
    assert not [name for name in ("libtorch_cuda", "libcublas", "libcudnn") if name in maps]
    assert processes.children(native_server.process.pid) == set()


def test_the_server_computes_as_pytorch_does(native_server, repository, protocol):
    given = np.linspace(-3, 3, 4 * 256, dtype=np.float32).reshape(4, 256)
    expected = np.load(repository / "matrix/1/expected.npy")
    with protocol.connect(native_server) as client:
        for count in (4, 1, 3):
            received = client.infer("matrix", [protocol.input("INPUT__0", given[:count])]).as_numpy("RESULT")
            np.testing.assert_allclose(received, expected[:count], rtol=1e-5, atol=1e-6)


def test_the_server_refuses_shapes_before_the_code_does(native_server, protocol):
    with protocol.connect(native_server) as client:
        with pytest.raises(InferenceServerException, match=r"unexpected shape for input 'ARGS\[0\]'"):
            client.infer("fixed", [protocol.input(f"ARGS[{place}]", rows(2, 3)) for place in range(2)])
        with pytest.raises(InferenceServerException, match="pytorch error 1: cannot run the model: .*at 1, expected: 4"):
            client.infer("misfit", [protocol.input(f"ARGS[{place}]", rows(2, 3)) for place in range(2)])
        add_sub(client, protocol, "fixed", ("ARGS[0]", "ARGS[1]"), ("RESULT[sum]", "RESULT[parts][0]"))


def test_clients_of_two_instances_of_a_package_get_their_own_answers(native_server, threads):
    def run(number):
        with GRPC.connect(native_server) as client:
            for _ in range(50):
                first = np.full((1, 4), number, np.float32)
                inputs = [GRPC.input("ARGS[0]", first), GRPC.input("ARGS[1]", first)]
                assert (client.infer("fixed", inputs).as_numpy("RESULT[sum]") == 2 * number).all()

    list(threads.map(run, range(16)))


def test_a_package_with_open_dimensions_needs_a_process(native_server):
    with HTTP.connect(native_server) as client, pytest.raises(InferenceServerException, match="/nowhere/python"):
        client.load_model("compiled")
    assert "model 'compiled' runs in a process of Python: 3 dimensions of its inputs are open" in native_server.log()


def test_a_package_is_unloaded_and_loaded_again(native_server, temporary_files):
    with HTTP.connect(native_server, network_timeout=LOAD_SECONDS) as client:
        for _ in range(3):
            client.unload_model("matrix")
            client.load_model("matrix")
            zeros = np.zeros((1, 256), np.float32)
            assert client.infer("matrix", [HTTP.input("INPUT__0", zeros)]).as_numpy("RESULT").shape == (1, 8)
    assert list(temporary_files.iterdir()) == []


def test_a_class_in_python_with_weights(client, protocol):
    np.testing.assert_array_equal(client.infer("source", [protocol.input("X", rows(3))]).as_numpy("Y"), 3 * rows(3))


def test_a_dictionary_of_tensors(client, protocol):
    inputs = [protocol.input("x", rows(2)), protocol.input("y", 10 * rows(2))]
    np.testing.assert_array_equal(client.infer("dictionary", inputs).as_numpy("OUTPUT__0"), 11 * rows(2))


@pytest.mark.parametrize("model", ["listed", "keyed"])
def test_lists_and_dictionaries_of_outputs(client, protocol, model):
    result = client.infer(model, [protocol.input("x", rows(2))])
    np.testing.assert_array_equal(result.as_numpy("FIRST"), rows(2))
    np.testing.assert_array_equal(result.as_numpy("SECOND"), 2 * rows(2))


def test_strings(client, protocol):
    # TorchScript changes letters of ASCII only.
    texts = np.array(["grün", "b"], np.object_)
    result = client.infer("shouted", [protocol.input("texts", texts)])
    assert result.as_numpy("OUTPUT__0").tolist() == ["GRüN".encode(), b"B"]


def test_bf16(client, protocol):
    sent = np.array([1.5, -2.0], ml_dtypes.bfloat16)
    received = client.infer("bfloat", [protocol.input("x", sent, "BF16")]).as_numpy("OUTPUT__0")
    np.testing.assert_array_equal(received.astype(np.float32), [3, -4])


@pytest.mark.parametrize("length", [4, 100_000])
def test_a_network_may_write_into_its_input(client, protocol, length):
    sent = np.arange(length, dtype=np.float32)
    for _ in range(2):
        np.testing.assert_array_equal(client.infer("in_place", [protocol.input("x", sent)]).as_numpy("OUTPUT__0"), sent + 1)


def test_implicit_state(client, protocol):
    for sequence in (7, 8):
        for step, expected in enumerate((1, 3, 6)):
            options = {"sequence_id": sequence, "sequence_start": step == 0, "sequence_end": step == 2}
            given = [protocol.input("INPUT__0", np.float32([[step + 1]]))]
            assert client.infer("accumulated", given, **options).as_numpy("OUTPUT__0").item() == expected


def test_an_ensemble(client, protocol):
    np.testing.assert_array_equal(client.infer("pair", [protocol.input("X", rows(2))]).as_numpy("Y"), 2 * rows(2))


def test_many_clients_get_their_own_answers(torch_server, threads):
    def run(number):
        with GRPC.connect(torch_server) as client:
            for _ in range(20):
                first = np.full((1, 4), number, np.float32)
                inputs = [GRPC.input("INPUT__0", first), GRPC.input("INPUT__1", first)]
                assert (client.infer("two_instances", inputs).as_numpy("OUTPUT__0") == 2 * number).all()

    list(threads.map(run, range(16)))
    with GRPC.connect(torch_server) as client:
        statistics = GRPC.statistics(client, "two_instances")
    assert statistics["execution_count"] < statistics["inference_count"]


def test_speech_is_told_from_silence(client, protocol):
    rate = protocol.input("sr", np.array([16000]))
    speech = client.infer("voice", [protocol.input("x", np.zeros((1, 512), np.float32)), rate]).as_numpy("OUTPUT__0")
    assert speech.shape == (1, 1) and 0 <= speech.item() < 0.5


def test_a_changed_file_is_loaded_again(repository, tmp_path, start):
    folder = tmp_path / "models"
    shutil.copytree(repository / "scripted", folder / "net")
    variables = {"NEREID_PYTHON": os.environ[PYTHON]}
    server = start(folder, "--model-control-mode=explicit", "--load-model=net", variables=variables).wait_until_ready()
    with HTTP.connect(server) as client:
        add_sub(client, HTTP, "net", ("INPUT__0", "INPUT__1"), ("OUTPUT__0", "OUTPUT__1"))
        content = (folder / "net/1/model.pt").read_bytes()
        (folder / "net/1/model.pt").write_bytes(content[:-100])
        with pytest.raises(InferenceServerException, match="is no archive of PyTorch, or its end is missing"):
            client.load_model("net")
        add_sub(client, HTTP, "net", ("INPUT__0", "INPUT__1"), ("OUTPUT__0", "OUTPUT__1"))
        pathlib.Path(folder / "net/1/model.pt").write_bytes(content)
        client.load_model("net")
        add_sub(client, HTTP, "net", ("INPUT__0", "INPUT__1"), ("OUTPUT__0", "OUTPUT__1"))
