"""The programs that tests start. Each is killed by the kernel when the process of the tests ends, however that ends.

The kernel does so when the *thread* ends that has started the program. So nobody starts a program in a thread of a pool,
unless the program has ended before the pool does.
"""

import contextlib
import os
import pathlib
import shutil
import subprocess
from subprocess import DEVNULL, PIPE, STDOUT, TimeoutExpired  # noqa: F401

# How long anything may take before a test gives up, in seconds. Nothing ever takes that long unless it is broken.
# It is less than the time that a test has (`timeout` in pytest.ini), so that the test says what it has waited for.
PATIENCE = 60.0

_SETPRIV = shutil.which("setpriv", path="/usr/bin:/bin")


def bound(line):
    """The command line of a program that ends with this process. It becomes the program: there is no process more."""
    assert _SETPRIV, "there is no setpriv; on Debian: apt-get install util-linux"
    return [_SETPRIV, "--pdeathsig=KILL", "--", *map(str, line)]


def start(line, **named):
    """Starts a program; `named` are the arguments of `subprocess.Popen`. Whoever calls this ends it, whatever happens."""
    return subprocess.Popen(bound(line), **named)


@contextlib.contextmanager
def running(line, **named):
    """A program until the end of the block, which kills it unless it has ended."""
    with start(line, **named) as process:
        try:
            yield process
        finally:
            process.kill()


def run(line, timeout=PATIENCE, check=False, **named):
    """Runs a program to its end; `named` are the arguments of `subprocess.run`. Its output is captured as text.

    With `check` it must succeed.
    """
    ended = subprocess.run(bound(line), timeout=timeout, check=False, capture_output=True, text=True, **named)
    assert not check or ended.returncode == 0, f"{line} ended with {ended.returncode}: {ended.stdout}{ended.stderr}"
    return ended


def variables_with(**more):
    """The environment of this process, with other variables."""
    return os.environ | more


def children(of="self"):
    """The processes that this one, or another, has started and that have not ended."""
    found = set()
    for task in pathlib.Path(f"/proc/{of}/task").iterdir():
        # A thread may end meanwhile.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found.update(map(int, (task / "children").read_text().split()))
    return {child for child in found if is_running(child)}


def is_running(process):
    try:
        # The name in parentheses may contain blanks.
        state = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in ("Z", "X")


def with_words(words):
    """The running processes that have these words in their command lines."""
    found = (int(folder.name) for folder in pathlib.Path("/proc").glob("[0-9]*"))
    return {process for process in found if words in line_of(process) and is_running(process)}


def line_of(process):
    """The command line of a process, for people."""
    try:
        return pathlib.Path(f"/proc/{process}/cmdline").read_text().replace("\0", " ").strip()
    except OSError:
        return "a process that has just ended"
