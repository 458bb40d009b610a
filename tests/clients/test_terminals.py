"""What a terminal shows: colours where they help, lines that fit, and the same text without colours."""

import re

import processes
import pytest
import terminals
from serving import BINARY, environment
from terminal_pictures import COLUMNS, SCREENS, output_of, prepare

# What differs from start to start: the heads of log lines with times, and how long something took.
DIFFERS = re.compile(r"^([IWE])\d{4} [\d:.]+ \d+ |\d+ ms|pid \d+")
BOLD, RED, YELLOW, DIM = ("1",), ("1", "31"), ("1", "33"), ("2",)
NARROW = 80
LONG_WORD = 40


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("screens")
    prepare(folder)
    return folder


def screen_of(name):
    return next(screen for screen in SCREENS if screen.name == name)


def lines(folder, name, **variables):
    return terminals.lines_of(output_of(screen_of(name), folder, NO_COLOR="", **variables))


def texts(lines):
    return [terminals.text_of(line) for line in lines]


def looks(lines):
    """The texts of each look."""
    found = {}
    for span in (span for line in lines for span in line):
        found.setdefault(span.look, []).append(span.text)
    return found


@pytest.mark.parametrize("screen", SCREENS, ids=lambda screen: screen.name)
def test_colours_change_no_text(folder, screen):
    coloured, plain = (output_of(screen, folder, NO_COLOR=value) for value in ("", "1"))
    assert "\x1b[" in coloured and "\x1b" not in plain
    if screen.name not in ("start", "refused"):
        assert texts(terminals.lines_of(coloured)) == texts(terminals.lines_of(plain))


def test_pipes_have_no_colours():
    for words in (["-h"], ["--help"], [], ["chekc"], ["help", "check"]):
        ended = processes.run([BINARY, *words], env=environment())
        assert "\x1b" not in ended.stdout + ended.stderr


def test_the_first_screen_fits_a_small_terminal(folder):
    shown = lines(folder, "help")
    assert max(map(len, texts(shown))) <= NARROW
    assert len(shown) <= 40
    assert looks(shown)[BOLD] == ["Usage:", "Commands:", "Options that most servers need:", "Examples:"]
    alone = lines(folder, "nereid")
    assert texts(alone)[:-2] == texts(shown)
    assert texts(alone)[-1] == "error: name a model repository or an ONNX file"
    assert looks(alone)[RED] == ["error:"]


def test_the_tables_of_a_start_fit(folder):
    for name in ("start", "refused"):
        tables = [text for text in texts(lines(folder, name)) if text.startswith(("|", "+"))]
        # A path is one word, however long it is, and all lines of its table are as wide.
        widened = {len(text) for text in tables if max(map(len, re.split(r"[\s|]+", text.strip("+-")))) > LONG_WORD}
        assert len(tables) > 15 and {len(text) for text in tables if len(text) > COLUMNS} <= widened


def test_a_start_ends_with_links(folder):
    shown = lines(folder, "start")
    said = [line[-1].text.strip().strip('"') for line in shown[-5:]]
    assert said == [
        "status page: http://localhost:8000/status",
        "description of the API: http://localhost:8000/docs",
        "HTTP: http://localhost:8000",
        "gRPC: grpc://localhost:8001",
        "metrics: http://localhost:8002/metrics",
    ]
    assert all(line[0].look == DIM and re.match(r"I\d{4} ", line[0].text) for line in shown[-5:])


def test_a_refused_start_ends_with_the_first_reason_and_what_to_do(folder):
    shown = lines(folder, "refused")
    assert shown[-1][0].text == "error:" and shown[-1][0].look == RED
    last = terminals.text_of(shown[-1])
    assert "3 of 3 failed, the first is 'digits'" in last and "did you mean 'max_batch_size'?" in last
    assert last.endswith(" ('nereid check' shows all problems)")


def test_findings_have_bold_places_and_marks_and_coloured_words(folder):
    found = looks(lines(folder, "check"))
    assert found[RED] == ["error", "error", "error"] and found[YELLOW] == ["warning"]
    places = [text for text in found[BOLD] if text != "^"]
    assert sorted(places) == ["broken", "broken/digits/config.pbtxt:1:1", "broken/picture/1/model.py:2:32", "broken/shape"]
    assert "^" in found[BOLD]
