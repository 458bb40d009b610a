"""ONNX files that are served without a repository, and a place that is served as one model."""

import negative_model
import numpy as np
import onnx
import pytest
import repository as models
from protocols import HTTP
from serving import run_to_end


def test_a_file_is_served_under_its_name(start, tmp_path, empty):
    file = tmp_path / "negative v1.5.onnx"
    onnx.save(negative_model.graph(), file)
    server = start(empty, str(file)).wait_until_ready()
    with HTTP.connect(server) as client:
        negative_model.check_rows(client, "negative v1.5", 2)


def test_a_file_has_its_external_data_beside_it(start, tmp_path, empty):
    text = "table (int64[length] INDEX) => (float[length] VALUE) { VALUE = Gather(numbers, INDEX) }"
    model = models.graph(text, numbers=np.arange(100, dtype=np.float32))
    file = tmp_path / "table.onnx"
    onnx.save(model, file, save_as_external_data=True, location="table.data", size_threshold=0)
    server = start(empty, str(file)).wait_until_ready()
    with HTTP.connect(server) as client:
        inputs = [HTTP.input("INDEX", np.array([[7], [42]], np.int64))]
        assert client.infer("table", inputs).as_numpy("VALUE").tolist() == [[7], [42]]


def test_two_files_of_one_name_are_refused(tmp_path):
    files = [tmp_path / folder / "m.onnx" for folder in ("one", "two")]
    for file in files:
        file.parent.mkdir()
        onnx.save(negative_model.graph(), file)
    ended = run_to_end(*files, "--http-port=0", "--grpc-port=0", "--metrics-port=0")
    assert ended.returncode == 1
    assert f"'{files[0]}' and '{files[1]}' are both the model 'm': rename one of them" in ended.stderr


@pytest.mark.parametrize("place", ["model", "version", "model/config.pbtxt", "file", "file/net.onnx"])
def test_a_place_is_served_as_one_model(start, tmp_path, place):
    """As platforms put it there that download one model: its directory, the files of its only version, or its only file."""
    model = models.write(tmp_path, "model", negative_model.graph())
    (tmp_path / "version").symlink_to(model / "1")
    (tmp_path / "file").mkdir()
    (tmp_path / "file/net.onnx").symlink_to(model / "1/model.onnx")
    if place.endswith(".pbtxt"):
        (model / "config.pbtxt").write_text("max_batch_size: 2")
        place = "model"
    server = start(tmp_path / place, "--single-model=iris").wait_until_ready()
    with HTTP.connect(server) as client:
        negative_model.check_rows(client, "iris", 2)
        assert [model["name"] for model in client.get_model_repository_index()] == ["iris"]


def test_a_place_that_is_not_there_is_no_model(tmp_path):
    ended = run_to_end(tmp_path / "nothing", "--single-model=iris", "--http-port=0", "--grpc-port=0", "--metrics-port=0")
    assert ended.returncode == 1 and f"{tmp_path}/nothing" in ended.stderr
