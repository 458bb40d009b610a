"""How a run of the tests ends: whatever a test has started ends with it, and a test that hangs says where."""

import pathlib
import re
import signal
import sys

import processes
import pytest
from serving import Server, eventually

HERE = pathlib.Path(__file__).parent
# What starts a program, in the words of Python. `processes.py` has them for all.
STARTS = re.compile(r"\bsubprocess\.(?:run|Popen|call|check_\w+)\b|\bos\.(?:system|popen|fork|spawn\w+|posix_spawn\w*)\(")
# Starts a program that never ends, and says which.
STARTER = """
import processes, serving, threading
program = processes.start(["sleep", "infinity"]).pid
serving.eventually(lambda: processes.line_of(program) == "sleep infinity", "the program to run")
print(program, flush=True)
threading.Event().wait()
"""

# A server runs, another thread waits, and the test hangs: in Python, and in C, where no signal ends it. The server is there before:
# the time of a test begins with its fixtures.
HANGS = """
import ctypes, threading, pytest
from serving import Server

@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("server")
    (folder / "empty").mkdir()
    with Server(folder, folder / "empty") as server:
        yield server

def wait_in_another_thread():
    threading.Event().wait()

@pytest.fixture(autouse=True)
def other():
    threading.Thread(target=wait_in_another_thread, daemon=True).start()

@pytest.mark.timeout(1000)
def test_that_begins(server):
    pass

def test_that_hangs(server):
    threading.Event().wait()

def test_that_hangs_in_c(server):
    mutex = ctypes.create_string_buffer(256)
    for _ in range(2):
        ctypes.CDLL(None).pthread_mutex_lock(mutex)

def test_that_leaves_a_process():
    import processes
    processes.start(["sleep", "infinity"])

@pytest.mark.timeout(1000)
def test_that_may_take_longer(server):
    threading.Event().wait(2)
"""


def run_test(folder, name, last=60):
    """Runs one of these tests, whose time is a second, or `last` seconds if no signal interrupts it. A server runs before."""
    (folder / "test_hangs.py").write_text(HANGS)
    line = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", HERE / "pytest.ini", f"--rootdir={folder}"]
    # The plugins that the settings need; others take a second to be loaded.
    line += ["-p", "xdist.plugin", "-p", "pytest_timeout", "-p", "pytest_asyncio.plugin", "-p", "endings"]
    line += ["-o", "timeout=1", "-o", f"faulthandler_timeout={last}", f"--basetemp={folder / 'temporary'}"]
    variables = processes.variables_with(PYTHONPATH=str(HERE), PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    return processes.run([*line, "test_hangs.py::test_that_begins", f"test_hangs.py::{name}"], cwd=folder, env=variables)


def test_a_test_that_exceeds_its_time_tells_where_it_was_and_what_its_server_said(tmp_path):
    ended = run_test(tmp_path, "test_that_hangs")
    assert ended.returncode == 1
    for words in ("FAILED test_hangs.py::test_that_hangs", "Timeout (>1.0s)", "in wait_in_another_thread", "Started HTTPService"):
        assert words in ended.stdout, (words, ended.stdout)


def test_a_test_that_no_signal_interrupts_ends_with_all_stacks_and_its_server(tmp_path):
    ended = run_test(tmp_path, "test_that_hangs_in_c", last=2)
    assert ended.returncode == 1
    assert "in test_that_hangs_in_c" in ended.stderr and "in wait_in_another_thread" in ended.stderr, ended.stderr
    eventually(lambda: not processes.with_words(str(tmp_path / "temporary")), "the server to end")


def test_a_test_may_have_more_time(tmp_path):
    ended = run_test(tmp_path, "test_that_may_take_longer", last=2)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_a_test_that_leaves_a_process_fails_with_its_command_line(tmp_path):
    ended = run_test(tmp_path, "test_that_leaves_a_process")
    assert ended.returncode == 1
    assert "the test has left processes: {" in ended.stdout and "sleep infinity'" in ended.stdout, ended.stdout


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_a_program_ends_with_the_process_that_has_started_it(number):
    line = [sys.executable, "-c", STARTER]
    variables = processes.variables_with(PYTHONPATH=str(HERE))
    with processes.start(line, stdout=processes.PIPE, text=True, env=variables) as starter:
        try:
            program = int(starter.stdout.readline())
            assert processes.is_running(program)
        finally:
            starter.send_signal(number)
        eventually(lambda: not processes.is_running(program), "the program to end")


def test_a_server_is_started_once(tmp_path):
    (tmp_path / "empty").mkdir()
    with Server(tmp_path, tmp_path / "empty") as server:
        with pytest.raises(AssertionError, match="this server has been started"), server:
            pass
        assert server.process.poll() is None


def test_all_programs_are_started_in_one_place():
    files = [*HERE.glob("*.py"), *HERE.parent.glob("packages/*.py")]
    others = [file for file in files if file.name not in ("processes.py", pathlib.Path(__file__).name)]
    found = {file.name: STARTS.findall(file.read_text()) for file in others}
    assert {name: words for name, words in found.items() if words} == {}
