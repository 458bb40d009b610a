"""The packages in $NEREID_DIST, which `cargo xtask dist` has made."""

import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "clients"))

import repository as models  # noqa: E402

pytest_plugins = ["endings"]

DIST = pathlib.Path(os.environ.get("NEREID_DIST", ROOT / "target" / "dist"))


def package(pattern):
    """The newest package with such a name."""
    found = sorted(DIST.glob(pattern), key=lambda path: path.stat().st_mtime)
    assert found, f"no {pattern} in {DIST}: make the packages with 'cargo xtask dist'"
    return found[-1]


@pytest.fixture
def repository_folder(tmp_path):
    """A repository with a model for ONNX Runtime, which any user can read."""
    folder = tmp_path / "models"
    folder.mkdir()
    models.add_sub(folder)
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder
