"""promtool, which checks the text of metrics.

$NEREID_TEST_PROMTOOL is the program; `cargo xtask test` installs it. Otherwise that of the system is used, or the one
that `cargo xtask setup` has fetched.
"""

import os
import shutil
import subprocess

import pytest
from serving import TARGET


def program():
    fetched = TARGET / "promtool" / "usr" / "bin" / "promtool"
    found = os.environ.get("NEREID_TEST_PROMTOOL") or shutil.which("promtool")
    if not found and fetched.is_file():
        found = str(fetched)
    if not found:
        pytest.skip("there is no promtool; `cargo xtask setup` fetches it")
    return found


def findings(text):
    """What promtool has to say about a text, a line for each finding."""
    checked = subprocess.run([program(), "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    # 3: it has read everything, and has findings.
    assert checked.returncode in (0, 3), checked.stderr
    return (checked.stdout + checked.stderr).splitlines()
