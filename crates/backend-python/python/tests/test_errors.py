"""The words for exceptions of a model."""

import importlib
import os
import sys

import nereid_errors
import pytest
from nereid_errors import text_of


def told(code, file="model.py"):
    try:
        exec(compile(code, file, "exec"), {})
    except Exception as error:
        return text_of(error)


def test_an_exception_has_its_text_and_its_places():
    assert told("x = 1\nraise ValueError('no')").startswith("ValueError: no\n\nAt:\n  model.py(2): <module>\n")


def test_a_failed_import_names_the_interpreter_and_hides_the_steps_of_the_import():
    text = told("import nothing_of_that_name")
    first, _, places = text.partition("\n")
    assert first == (
        "ModuleNotFoundError: No module named 'nothing_of_that_name' "
        f"(the interpreter is {sys.executable}; PYTHON_EXECUTABLE in config.pbtxt or NEREID_PYTHON names another one)"
    )
    assert "model.py(1): <module>" in places and "frozen" not in told("import xml.nothing")
    steps = told("import importlib\nimportlib.import_module('nothing_of_that_name')")
    assert "At:\n  model.py(2): <module>\n" in steps and importlib.__file__ not in steps


def test_an_error_of_syntax_names_its_file_and_its_line():
    assert "(model.py, line 2)\n\nAt:\n  model.py(2): <module>\n" in told("x = 1\ndef execute(self)\n")


@pytest.fixture
def in_repository(monkeypatch):
    monkeypatch.setattr(nereid_errors, "_repository", None)
    nereid_errors.show_relative_paths("/srv/models")


def test_relative_paths_begin_in_the_repository_or_in_a_directory_with_modules(in_repository, monkeypatch):
    monkeypatch.setattr(sys, "path", ["", "/srv/models/m/1", "/usr/lib", "/usr/lib/python3", "/srv/model"])
    for file, shown in [
        ("/srv/models/m/1/model.py", "m/1/model.py"),
        ("/usr/lib/python3/json/decoder.py", "json/decoder.py"),
        ("/elsewhere/secret/part.py", "part.py"),
        ("model.py", "model.py"),
    ]:
        assert told("raise ValueError('no')", file) == f"ValueError: no\n\nAt:\n  {shown}(1): <module>\n  test_errors.py(14): told\n"
    assert f"(the interpreter is {os.path.basename(sys.executable)};" in told("import nothing_of_that_name")
    assert "\n  m/1/model.py(1): <module>\n" in told("def execute(self)", "/srv/models/m/1/model.py")


def test_the_repository_may_have_a_relative_path(in_repository, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    nereid_errors.show_relative_paths("models")
    file = str(tmp_path / "models/m/1/model.py")
    assert told("raise ValueError('no')", file).startswith("ValueError: no\n\nAt:\n  m/1/model.py(1): <module>\n")
