"""promtool, which checks the text of metrics.

$NEREID_TEST_PROMTOOL is the program; `cargo xtask test` installs it. Otherwise that of the system is used, or the one
that `cargo xtask setup` has fetched.
"""

import subprocess

import programs


def program():
    return programs.find("promtool", "NEREID_TEST_PROMTOOL", "usr/bin")


def findings(text):
    """What promtool has to say about a text, a line for each finding."""
    checked = subprocess.run([program(), "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    # 3: it has read everything, and has findings.
    assert checked.returncode in (0, 3), checked.stderr
    return (checked.stdout + checked.stderr).splitlines()
