"""The words for exceptions of a model."""

import importlib
import sys

from nereid_errors import text_of


def told(code):
    try:
        exec(compile(code, "model.py", "exec"), {})
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
