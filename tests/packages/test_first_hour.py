"""The page of the first hour, played with the wheel in an empty environment."""

import first_hour
import pytest
from conftest import package
from documentation import Example


@pytest.mark.timeout(2 * first_hour.LIMIT_SECONDS)
def test_the_first_hour_is_as_its_page_says(tmp_path):
    first_hour.Hour(tmp_path, first_hour.EXAMPLES, package("nereid_server-*.whl")).play()


def played(folder, *texts):
    """The commands that are typed until the play ends, and whether all answers were right."""
    wheel = folder / "a.whl"
    wheel.touch()
    (folder / "play").mkdir()
    examples = [Example("page.md", 1, "console", (mode,), text) for mode, text in texts]
    typed = []
    try:
        first_hour.Hour(folder / "play", examples, wheel, typed.append).play()
    except AssertionError:
        return len(typed), False
    return len(typed), True


RIGHT = "$ echo one; echo two\n...\ntwo\n$ printf 'a 17 b'\na ... b\n"


def test_a_wrong_answer_ends_the_play(tmp_path):
    wrong = "$ echo one\none\n$ echo two; echo more\ntwo\n$ echo three\nthree\n"
    assert played(tmp_path, ("hour", RIGHT), ("hour", wrong)) == (4, False)


def test_a_server_goes_on_until_ctrl_c(tmp_path):
    serves = "$ python3 -c 'import signal; print(1, flush=True); signal.pause()'\n1\n"
    then = "^C\n...\nKeyboardInterrupt\n$ echo over\nover\n"
    right = played(tmp_path, ("hour=server", serves), ("hour", RIGHT), ("hour=server", then))
    assert right == (5, True)
