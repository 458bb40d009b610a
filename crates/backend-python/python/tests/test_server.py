"""Log lines, and models that a model loads."""

import inspect

import pytest
import triton_python_backend_utils as pb_utils
from triton_python_backend_utils import Logger, TritonModelException

WHERE = "Failed to process the request for model 'model_0', message: "


def test_log_lines_have_the_place_in_the_models_code(host):
    line = inspect.currentframe().f_lineno + 1
    Logger.log_info("one")
    Logger.log("two", Logger.WARNING)
    Logger.log("three")
    Logger.log_error("four")
    Logger.log_warn("five")
    Logger.log_verbose("six")
    levels = [("INFO", "one"), ("WARNING", "two"), ("INFO", "three"), ("ERROR", "four"), ("WARNING", "five"), ("VERBOSE", "six")]
    assert host.called("log") == [[level, text, __file__, line + n] for n, (level, text) in enumerate(levels)]


def test_log_lines_have_types(host):
    for wrong in (lambda: Logger.log_info(1), lambda: Logger.log("a", 1)):
        with pytest.raises(TypeError):
            wrong()


def test_without_a_server_log_lines_go_to_stderr(capsys):
    Logger.log_warn("careful")
    Logger.log_verbose("not this")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("W") and lines[0].endswith("] careful") and "test_server.py:" in lines[0]


def test_models_are_loaded_and_unloaded(host):
    pb_utils.load_model("other")
    pb_utils.load_model("other", config="{}", files={"file:1/model.py": b"text"})
    pb_utils.unload_model("other")
    pb_utils.unload_model("other", unload_dependents=True)
    assert host.calls == [
        ("load_model", "other", None, None),
        ("load_model", "other", {"file:1/model.py": b"text"}, "{}"),
        ("unload_model", "other", False),
        ("unload_model", "other", True),
    ]


def test_readiness_is_asked_for_a_version(host):
    assert pb_utils.is_model_ready("other") and pb_utils.is_model_ready("other", "07")
    assert host.called("is_model_ready") == [["other", ""], ["other", "7"]]


@pytest.mark.parametrize("version", ["latest", "1x", "1.5", "-1", str(1 << 63)])
def test_a_version_is_a_number(host, version):
    words = f"Failed to check model readiness: {WHERE}failed to get model version from specified version string '{version}'"
    with pytest.raises(TritonModelException) as refused:
        pb_utils.is_model_ready("other", version)
    assert str(refused.value).startswith(words)
    assert str(refused.value).endswith("version should be an integral value > 0")


def test_refusals_say_what_was_tried(host):
    attempts = {
        f"Failed to load model: {WHERE}no": ("load_model", lambda: pb_utils.load_model("other")),
        f"Failed to unload model: {WHERE}no": ("unload_model", lambda: pb_utils.unload_model("other")),
        f"Failed to check model readiness: {WHERE}no": ("is_model_ready", lambda: pb_utils.is_model_ready("other")),
    }
    for words, (method, attempt) in attempts.items():
        host.refusals[method] = "no"
        with pytest.raises(TritonModelException) as refused:
            attempt()
        assert str(refused.value) == words


@pytest.mark.parametrize("files", [["file:a"], {"file:a": "text"}, {1: b""}])
def test_files_are_contents_by_paths(host, files):
    with pytest.raises(TritonModelException) as refused:
        pb_utils.load_model("other", files=files)
    assert str(refused.value) == "failed to load model 'other', files should be a dictionary of file paths and file contents"


def test_a_model_knows_its_directory(host):
    assert pb_utils.get_model_dir() == "/models/model/3"


def test_the_types_have_triton_s_other_name_too():
    import c_python_backend_utils

    for name in pb_utils.__all__:
        assert getattr(c_python_backend_utils, name) is getattr(pb_utils, name)
