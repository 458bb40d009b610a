"""The package `nereid_server`: a server as an object in Python, and the link for NVIDIA's package."""

import asyncio
import mmap
import os
import pathlib
import runpy
import socket
import sys
import tempfile

import numpy as np
import pytest
import repository as models
from processes import PATIENCE
from serving import BINARY, ROOT, environment

sys.path.insert(0, str(ROOT / "packaging/wheel"))

import nereid_server  # noqa: E402
from nereid_server import Server, ServerError, tensors  # noqa: E402
from nereid_server import regions as module_regions  # noqa: E402

LARGE = np.arange(3 * tensors.LARGE // 4, dtype=np.float32).reshape(3, -1)


def serve(folder, **options):
    return Server(folder, program=BINARY, environment=environment(), timeout=PATIENCE, **options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for datatype in models.DATATYPES:
        models.identity(folder, datatype)
    models.add_sub(folder)
    models.matrix(folder)
    models.versions(folder)
    models.accumulate(folder, "direct")
    rounded = models.graph("rounded (float[n] X) => (bfloat16[n] Y) { Y = Cast <to = 16> (X) }")
    models.write(folder, "rounded", rounded, models.tensor("input", "X", "FP32", -1) + models.tensor("output", "Y", "BF16", -1))
    return folder


@pytest.fixture(scope="module")
def server(folder):
    with serve(folder, id="embedded") as server:
        yield server


def regions(server):
    return [region["name"] for region in server._ask("GET", "systemsharedmemory/status")]


VALUES = {
    "BOOL": np.array([True, False]),
    "FP16": np.array([1.5, -2], np.float16),
    "BYTES": np.array([b"a", "é".encode(), b"\xff\x00"], np.object_),
}


# NumPy has no BF16.
@pytest.mark.parametrize("datatype", [name for name in models.DATATYPES if name != "BF16"])
def test_arrays_of_each_type_come_back_as_they_were(server, datatype):
    value = VALUES.get(datatype, [1, 2, 100])
    value = np.asarray(value, tensors._DTYPES.get(datatype))
    output = server.infer(f"identity_{datatype.lower()}", {"INPUT": value})["OUTPUT"]
    assert output.dtype == value.dtype and output.tolist() == value.tolist()


def test_what_numpy_makes_arrays_of_is_an_input(server):
    assert server.infer("identity_bytes", {"INPUT": ["a", "ä"]})["OUTPUT"].tolist() == [b"a", "ä".encode()]
    swapped = np.array([1, 2], ">i4")
    assert server.infer("identity_int32", {"INPUT": swapped})["OUTPUT"].tolist() == [1, 2]
    columns = np.arange(6, dtype=np.float32).reshape(2, 3).T
    np.testing.assert_array_equal(server.infer("matrix", {"INPUT": columns})["OUTPUT"], columns)
    with pytest.raises(TypeError, match="no tensor has elements of complex128"):
        server.infer("matrix", {"INPUT": [1j]})


def test_bf16_becomes_float32(server):
    output = server.infer("rounded", {"X": np.array([1.5, -3.0, 1e30], np.float32)})["Y"]
    assert output.dtype == np.float32 and output[:2].tolist() == [1.5, -3.0] and output[2] == pytest.approx(1e30, rel=0.01)


def test_large_inputs_lie_in_shared_memory_that_is_used_again(server):
    counts = set()
    for factor in range(1, 7):
        np.testing.assert_array_equal(server.infer("matrix", {"INPUT": LARGE * factor})["OUTPUT"], LARGE * factor)
        counts.add(len(regions(server)))
    assert max(counts) <= min(counts) + 1, "one for the input, and one for the output from the second request on"
    # Other processes may have regions of theirs.
    assert not [name for name in os.listdir("/dev/shm") if name.startswith(f"nereid-{os.getpid()}-")], "both sides have it open"


def in_shared_memory(array):
    """Whether an output lies in a region: those in the body of an answer are views of its bytes."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return isinstance(array.base, mmap.mmap) or isinstance(getattr(array.base, "obj", None), mmap.mmap)


def test_large_outputs_lie_in_shared_memory_once_their_size_is_known(folder):
    with serve(folder) as server:
        first, *others = [server.infer("matrix", {"INPUT": LARGE * factor})["OUTPUT"] for factor in range(1, 12)]
        assert not in_shared_memory(first) and all(map(in_shared_memory, others))
        for factor, output in enumerate(others, 2):
            np.testing.assert_array_equal(output, LARGE * factor)
            assert not output.flags.writeable
        # A view keeps the region as the array does.
        row = others[-1][1]
        assert len(regions(server)) == len(others) + 1
        del output, others
        server.infer("matrix", {"INPUT": LARGE})
        server.infer("matrix", {"INPUT": LARGE[:1]})
        np.testing.assert_array_equal(row, LARGE[1] * 11)
        assert len(regions(server)) <= module_regions.MOST_IDLE + 1


def test_outputs_that_have_changed_come_all_the_same(tmp_path):
    def write(rows, output="Y"):
        body = f"{{ rows = Constant <value = int64[2] {{{rows}, 1}}> () {output} = Expand(X, rows) }}"
        graph = f"repeated (float[n] X) => (float[r, n] {output}) {body}"
        models.write(tmp_path, "repeated", models.graph(graph))

    def ask(output="Y"):
        answer = server.infer("repeated", {"X": values})
        np.testing.assert_array_equal(answer[output], np.tile(values, (answer[output].shape[0], 1)))
        return answer[output]

    values = np.arange(tensors.LARGE // 4, dtype=np.float32)
    write(1)
    with serve(tmp_path, model_control_mode="explicit", load_model="repeated") as server:
        assert [in_shared_memory(ask()) for _ in range(2)] == [False, True]
        for change in ({"rows": 3}, {"rows": 1}, {"rows": 2, "output": "OTHER"}):
            write(**change)
            server.load("repeated")
            output = change.get("output", "Y")
            answers = [ask(output) for _ in range(3)]
            assert {answer.shape[0] for answer in answers} == {change["rows"]} and in_shared_memory(answers[-1])
        with pytest.raises(ServerError, match="unexpected inference input"):
            server.infer("repeated", {"OTHER": values})


def test_a_request_of_a_sequence_is_not_repeated(server):
    values = np.ones((tensors.LARGE // 4, 1), np.int32)
    sizes = len(server._output_sizes)
    for index in range(3):
        ends = {"sequence_id": 8, "sequence_start": index == 0, "sequence_end": index == 2}
        with pytest.raises(ServerError, match="batch-size must be <="):
            server.infer("accumulate_direct", {"X": values}, **ends)
    assert len(server._output_sizes) == sizes


def test_regions_are_forgotten_beyond_their_bounds(server, monkeypatch):
    monkeypatch.setattr(module_regions, "MOST_IDLE", 1)
    held = [server._regions.take(tensors.LARGE << shift) for shift in range(4)]
    for region in held:
        server._regions.give_back(region)
    assert regions(server) == [held[-1].name]


def test_a_region_of_a_request_that_failed_is_forgotten(server):
    with pytest.raises(ServerError, match="unexpected inference input 'OTHER'"):
        server.infer("matrix", {"OTHER": LARGE})
    with pytest.raises(ServerError, match="Request for unknown model: 'none' is not found") as failed:
        server.infer("none", {"INPUT": LARGE})
    assert failed.value.status == 404
    assert len(regions(server)) <= 1


def test_versions_and_parameters_reach_the_server(server):
    asked = [server.infer("versions", {"X": np.zeros((1, 1), np.float32)}, version=version)["Y"].item() for version in (1, 2, 3)]
    assert asked == [1, 2, 3]
    sums = []
    for index, value in enumerate((1, 2, 3)):
        ends = {"sequence_id": 7, "sequence_start": index == 0, "sequence_end": index == 2}
        sums += server.infer("accumulate_direct", {"X": np.array([[value]], np.int32)}, **ends)["SUM"].tolist()
    assert sums == [[1], [3], [6]]


def test_tasks_ask_at_the_same_time(server):
    async def ask():
        values = [np.full(2, number, np.int32) for number in range(200)]
        return await asyncio.gather(*[server.infer_async("identity_int32", {"INPUT": value}) for value in values])

    assert [answer["OUTPUT"].tolist() for answer in asyncio.run(ask())] == [[number] * 2 for number in range(200)]
    assert len(server._idle) <= 32


def test_it_tells_what_it_serves(server):
    assert server.is_ready() and server.is_ready("matrix") and not server.is_ready("none")
    assert server.metadata()["name"] == "embedded" and server.metadata("matrix")["inputs"][0]["name"] == "INPUT"
    assert server.config("add_sub")["max_batch_size"] == 8
    assert {model["name"] for model in server.models()} >= {"matrix", "add_sub"}
    server.infer("add_sub", {f"INPUT{index}": np.ones((2, 16), np.int32) for index in (0, 1)})
    [statistics] = server.statistics("add_sub")
    assert statistics["inference_count"] == 2 and len(server.statistics()) > 10
    assert "successfully loaded 'matrix' version 1" in server.log()


def test_models_are_loaded_and_unloaded(folder):
    with serve(folder, model_control_mode="explicit", load_model=["matrix", "versions"], grpc_port=0) as server:
        assert server.is_ready("matrix") and server.is_ready("versions") and not server.is_ready("add_sub")
        server.load("add_sub", {"backend": "onnxruntime", "max_batch_size": 4})
        assert server.config("add_sub")["max_batch_size"] == 4
        server.unload("add_sub")
        assert not server.is_ready("add_sub")
        assert "Started GRPCInferenceService" in server.log() and "Started Metrics Service" not in server.log()


@pytest.fixture
def temporary(monkeypatch):
    """The place of temporary files, which no other process uses. Its path is short: the package binds a socket there."""
    with tempfile.TemporaryDirectory(prefix="n-") as place:
        monkeypatch.setattr(tempfile, "tempdir", place)
        yield pathlib.Path(place)


def test_nothing_is_left_of_a_server(folder, temporary):
    server = serve(folder, model_control_mode="explicit")
    assert len(list(temporary.iterdir())) == 1
    with server:
        assert server.is_ready()
    assert server._process.returncode == 0 and not list(temporary.iterdir())
    with pytest.raises(ServerError, match="the server has ended with status 0"):
        server.is_ready()
    server.close()
    forgotten = serve(folder, model_control_mode="explicit")._process
    assert forgotten.wait(PATIENCE) == 0 and not list(temporary.iterdir())


def test_a_server_that_does_not_start_tells_why(tmp_path, temporary):
    with pytest.raises(ServerError, match=r"(?s)has ended with status 1:.*failed to stat file"):
        serve(tmp_path / "nothing")
    with pytest.raises(ServerError, match=r"has ended with status 1:(?s:.*)--no-such-option"):
        serve(tmp_path, no_such_option=1)
    with pytest.raises(FileNotFoundError):
        Server(tmp_path, program=tmp_path / "nothing")
    assert not list(temporary.iterdir())


def test_a_connection_that_the_server_has_closed_is_not_used(folder):
    with serve(folder, model_control_mode="explicit", client_idle_timeout_secs=0.1) as server:
        assert server.is_ready()
        [kept] = server._idle
        assert kept.sock.recv(1, socket.MSG_PEEK) == b"", "waits until the server has closed it"
        assert server.is_ready() and server._idle != [kept]


def test_a_fork_does_not_end_the_server(folder):
    with serve(folder, model_control_mode="explicit") as server:
        nereid_server.server._end(os.getpid() + 1, server._process, server._folder)
        assert server.is_ready()


def test_a_server_that_ends_is_told(folder):
    with serve(folder, model_control_mode="explicit") as server:
        server._process.kill()
        server._process.wait()
        with pytest.raises(ServerError, match="the server has ended with status -9"):
            server.is_ready()


def test_the_link_lies_beside_nvidias_module(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "argv", ["nereid_server", "link"])

    def link():
        with pytest.raises(SystemExit) as ended:
            runpy.run_module("nereid_server", run_name="__main__")
        return ended.value.code

    assert "no package 'tritonserver'" in link()
    place = tmp_path / "tritonserver/_c"
    place.mkdir(parents=True)
    (tmp_path / "tritonserver/__init__.py").touch()
    assert "has no module" in link()
    (place / "triton_bindings.cpython-312.so").touch()
    for _ in range(2):
        assert link() is None
        assert (place / "libtritonserver.so").readlink() == nereid_server.LIBRARY
    assert str(place) in capsys.readouterr().out
    (place / "libtritonserver.so").unlink()
    (place / "libtritonserver.so").touch()
    assert link().endswith("is there and is no link")
