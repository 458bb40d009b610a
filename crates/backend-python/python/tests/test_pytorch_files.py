"""The files of networks of PyTorch: archives of every kind, and those that are refused."""

import zipfile

import pytest
import pytorch_archives as archives
from nereid_host import TritonModelException
from nereid_pytorch_files import FileKind, find, kind_of, weights_beside


@pytest.mark.parametrize(
    ("members", "kind"),
    [
        (("net/constants.pkl", "net/data.pkl", "net/code/__torch__.py"), FileKind.TORCH_SCRIPT),
        (("net/models/model.json", "net/archive_format", "net/data/weights/x"), FileKind.EXPORTED),
        (("serialized_exported_program.json", "version"), FileKind.EXPORTED),
        (("net/archive_format", "net/data/aotinductor/model/x.wrapper.so", "net/models/model.json"), FileKind.COMPILED),
        (("net/data.pkl", "net/data/0"), FileKind.WEIGHTS),
    ],
)
def test_the_members_tell_the_kind_of_an_archive(tmp_path, members, kind):
    assert kind_of(str(archives.write(tmp_path / "model.pt", dict.fromkeys(members, "x")))) == kind


def test_a_pickle_is_weights(tmp_path):
    (tmp_path / "model.pt").write_bytes(b"\x80\x02.")
    assert kind_of(str(tmp_path / "model.pt")) == FileKind.WEIGHTS


def refusal(path):
    with pytest.raises(TritonModelException) as error:
        kind_of(str(path))
    assert str(path) in str(error.value)
    return str(error.value)


def test_an_archive_that_is_cut_off_is_refused(tmp_path):
    path = archives.script(tmp_path / "model.pt", "x" * 1000)
    path.write_bytes(path.read_bytes()[:-30])
    assert "is no archive of PyTorch, or its end is missing" in refusal(path)


def test_an_archive_that_expands_too_much_is_refused(tmp_path):
    path = archives.write(tmp_path / "model.pt", {"net/constants.pkl": bytes(10 << 20)}, compression=zipfile.ZIP_DEFLATED)
    assert "more than 100 times as many" in refusal(path)


def test_members_that_overlap_are_refused(tmp_path, monkeypatch):
    path = archives.write(tmp_path / "model.pt", {"net/constants.pkl": bytes(1000)})
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist() * 3
    monkeypatch.setattr(zipfile.ZipFile, "infolist", lambda _: members)
    assert "they overlap" in refusal(path)


def test_another_archive_is_refused(tmp_path):
    assert "is an archive, but has neither TorchScript" in refusal(archives.write(tmp_path / "model.pt", {"a": "b"}))


def test_the_named_file_comes_first_and_weights_only_serve_a_class(tmp_path):
    directory = str(tmp_path)
    with pytest.raises(TritonModelException, match="unable to find '.*/net.pt'"):
        find(directory, "net.pt")
    archives.weights(tmp_path / "model.pt", 1)
    with pytest.raises(TritonModelException, match="has weights without a network"):
        find(directory, "model.pt")
    (tmp_path / "model.py").touch()
    assert find(directory, "model.pt") == (f"{directory}/model.py", FileKind.SOURCE)
    assert weights_beside(f"{directory}/model.py") == f"{directory}/model.pt"
    archives.script(tmp_path / "net.pt", "")
    assert find(directory, "net.pt") == (f"{directory}/net.pt", FileKind.TORCH_SCRIPT)
    assert weights_beside(f"{directory}/other.py") is None
