"""What a model may ask of its server besides inference: log lines, and other models' loading."""

import enum
import os
import re
import sys
import time

from nereid_host import TritonModelException, asking, connected, host, text, truth


class LogLevel(enum.IntEnum):
    """The levels of the server's log."""

    INFO = 0
    WARNING = 1
    ERROR = 2
    VERBOSE = 3


class Logger:
    """Writes lines to the server's log, with the file and the line of the model's code."""

    INFO = LogLevel.INFO
    WARNING = LogLevel.WARNING
    ERROR = LogLevel.ERROR
    VERBOSE = LogLevel.VERBOSE

    @staticmethod
    def log(message, level=LogLevel.INFO):
        if not isinstance(level, LogLevel):
            raise TypeError(f"the level must be one of Logger's constants, found type {type(level)}")
        _log(level, message)

    @staticmethod
    def log_info(message):
        _log(LogLevel.INFO, message)

    @staticmethod
    def log_warn(message):
        _log(LogLevel.WARNING, message)

    @staticmethod
    def log_error(message):
        _log(LogLevel.ERROR, message)

    @staticmethod
    def log_verbose(message):
        _log(LogLevel.VERBOSE, message)


def _log(level, message):
    message = text("the message of a log line", message, "replace")
    caller = sys._getframe(2)
    file = text("the file of a log line", caller.f_code.co_filename, "replace")
    # Code that a program has made may have no lines, or negative ones.
    line = max(0, caller.f_lineno or 0)
    if connected() is not None:
        connected().log(level.name, message, file, line)
    elif level != LogLevel.VERBOSE:
        when = time.strftime("%m%d %H:%M:%S", time.gmtime())
        print(f"{level.name[0]}{when} {os.getpid()} {os.path.basename(file)}:{line}] {message}", file=sys.stderr)


def load_model(model_name, config="", files=None):
    """Loads a model. `files` are contents by their paths, as `file:1/model.onnx`. The server must let clients load models."""
    model_name = text("the argument 'model_name'", model_name)
    config = text("the argument 'config'", config)
    files = _checked_files(model_name, files)
    with asking("Failed to load model: ") as host:
        host.load_model(model_name, files or None, config or None)


def unload_model(model_name, unload_dependents=False):
    """Unloads a model, and with `unload_dependents` the models that only it needs."""
    model_name = text("the argument 'model_name'", model_name)
    unload_dependents = truth("unload_dependents", unload_dependents)
    with asking("Failed to unload model: ") as host:
        host.unload_model(model_name, unload_dependents)


def is_model_ready(model_name, model_version=""):
    """Whether the model can be asked; without a version, the one that requests without a version get."""
    model_name = text("the argument 'model_name'", model_name)
    model_version = text("the argument 'model_version'", model_version)
    with asking("Failed to check model readiness: ") as host:
        return host.is_model_ready(model_name, _checked_version(model_version))


def _checked_files(model_name, files):
    if files is None:
        return None
    contents = files.items() if isinstance(files, dict) else ((None, None),)
    if not all(isinstance(path, (str, bytes)) and isinstance(content, bytes) for path, content in contents):
        raise TritonModelException(
            f"failed to load model '{model_name}', files should be a dictionary of file paths and file contents"
        )
    return {text("a path of 'files'", path): bytes(content) for path, content in contents}


def _checked_version(version):
    wrong = f"failed to get model version from specified version string '{version}'"
    rule = "version should be an integral value > 0"
    if version and not re.fullmatch(r"\s*[+-]?[0-9]+", version):
        raise TritonModelException(f"{wrong} (details: stol), {rule}")
    if version and not 0 <= int(version) < 1 << 63:
        raise TritonModelException(f"{wrong}, {rule}")
    return str(int(version)) if version else ""


def get_model_dir():
    """The directory of the version of the model that runs."""
    return host().model_dir
