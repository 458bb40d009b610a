"""A plugin of pytest: what is told about a test that fails, the end of a test that hangs, and what a test must not leave.

A test that exceeds its time (`timeout` in pytest.ini) fails by a signal, and its output has the stacks of all threads. Code
that does not return to Python is not interrupted by a signal, and after the signal the end of the test may hang, too. Then
`faulthandler` prints all stacks and ends the process of the tests, and with it all programs that tests have started.
"""

import faulthandler
import os
import signal

import processes
import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key
from serving import Server, eventually


def end_if_it_hangs(item):
    """Ends the process of the tests if the rest of the test takes longer than its time and a margin."""
    usual, last = (float(item.config.getini(name)) for name in ("timeout", "faulthandler_timeout"))
    marker = item.get_closest_marker("timeout")
    seconds = (marker.args[0] if marker else usual) + last - usual
    faulthandler.dump_traceback_later(seconds, file=item.config.stash[fault_handler_stderr_fd_key], exit=True)


def pytest_runtest_setup(item):
    # pytest has done this for all tests with the time of the file of settings.
    if item.get_closest_marker("timeout"):
        end_if_it_hangs(item)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item):
    # pytest watches nothing any more when a test has failed.
    end_if_it_hangs(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed:
        for server in Server.entered:
            report.sections.append((f"end of {server.log_path}", server.log_end()))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    result = yield
    # Servers of several tests stay. The others' logs have been told.
    Server.entered[:] = [server for server in Server.entered if server.process.poll() is None]
    return result


@pytest.fixture(scope="session", autouse=True)
def home(tmp_path_factory):
    """Programs keep caches and settings in the home of whoever starts them, and temporary files in a common place.

    Those of the tests have a home and a place of their own.
    """
    with pytest.MonkeyPatch.context() as variables:
        variables.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        variables.setenv("TMPDIR", str(tmp_path_factory.mktemp("temporary")))
        for name in [name for name in os.environ if name.startswith("XDG_")]:
            variables.delenv(name)
        yield


def line_of_child(process):
    """The command line of a child. The system has none while it replaces the child's program, which ends within moments."""
    eventually(lambda: processes.line_of(process) or not processes.is_running(process), "the program to begin")
    return processes.line_of(process)


@pytest.fixture(autouse=True)
def no_process_is_left():
    """A test ends the programs that it starts. Those of fixtures of several tests run before, and are none of them."""
    before = processes.children()
    yield
    left = {process: line_of_child(process) for process in processes.children() - before}
    for process in left:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    assert not left, f"the test has left processes: {left}"
