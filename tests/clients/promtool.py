"""promtool, which checks the text of metrics.

$NEREID_TEST_PROMTOOL is the program. Otherwise that of the system is used, or the one that `cargo xtask integrations` has
fetched. Tests that need it have the mark `monitoring`.
"""


import processes
import programs


def program():
    return programs.find("promtool", "NEREID_TEST_PROMTOOL", "usr/bin", "monitoring")


def findings(text):
    """What promtool has to say about a text, a line for each finding."""
    checked = processes.run([program(), "check", "metrics"], input=text)
    # 3: it has read everything, and has findings.
    assert checked.returncode in (0, 3), checked.stderr
    return (checked.stdout + checked.stderr).splitlines()
