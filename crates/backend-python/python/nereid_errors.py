"""The words for exceptions of a model."""

import importlib
import os
import sys

# Longer words help nobody, and a message has a limit.
_MOST_CHARACTERS = 1 << 20

# The directory of the model's repository, if paths are shown from there on.
_repository = None


def show_relative_paths(repository):
    """From now on, files are shown by their paths in the repository, or in a directory with modules."""
    global _repository
    _repository = os.path.abspath(repository)


def _shown(path):
    if _repository is None:
        return path
    for directory in (_repository, *sorted(sys.path, key=len, reverse=True)):
        begin = os.path.join(directory, "")
        if directory and path.startswith(begin):
            return path[len(begin) :]
    return os.path.basename(path)


def is_own(filename):
    """Whether a file is one of the server's modules."""
    return filename.startswith("<nereid>/nereid_")


def _is_hidden(filename):
    """Whether a file tells nothing about the model: the server's modules, and Python's own import."""
    of_import = filename == importlib.__file__ or filename.startswith("<frozen importlib")
    return is_own(filename) or filename == "<string>" or of_import


def text_of(error):
    """The type and text of an exception, and the places of the model's code from the innermost one on."""
    kind = type(error).__name__
    try:
        # As pybind11, which Triton's backend has its words from.
        text = f"{kind}: {str(error) or '<EMPTY MESSAGE>'}"[:_MOST_CHARACTERS]
    except BaseException:
        # The words of an exception are code of the model, too.
        text = f"{kind}"
    if isinstance(error, ImportError):
        text += f" (the interpreter is {_shown(sys.executable)}; PYTHON_EXECUTABLE in config.pbtxt or NEREID_PYTHON names another one)"
    places = []
    trace = BaseException.__traceback__.__get__(error)
    while trace is not None:
        code = trace.tb_frame.f_code
        if not _is_hidden(code.co_filename):
            places.append(f"  {_shown(code.co_filename)}({trace.tb_lineno}): {code.co_name}\n")
        trace = trace.tb_next
    if isinstance(error, SyntaxError) and isinstance(error.filename, str) and isinstance(error.lineno, int):
        # No frame has run this line. The text of the error names the file without its directory.
        places.append(f"  {_shown(error.filename)}({error.lineno}): <module>\n")
    if not places:
        return text
    return f"{text}\n\nAt:\n{''.join(reversed(places))}"
