"""The pages of the documentation and their examples, as the tests see them.

An example says behind its opening quotes what it is: its language, and how it is tested. A plain language has a check of
its own. `run`: it is run, against a server with `examples/models`. `answer`: the example before it prints this.
`file=PATH`: it is a part of this file. `model=NAME`: it is the code of this model. `lines`: each line is a document.
A page with `save=PATH`, `step` and `serve` is played from its beginning to its end in an empty folder (test_recipes.py):
a file is written, commands are run, a server is started that serves until the next one.
`hour` and `hour=NAME`: tests/packages/first_hour.py types it in a terminal. There, `save=PATH` is written into this file.
"""

import re
import shlex
from dataclasses import dataclass

from serving import ROOT

OPENING = re.compile(r"^```(\S*)$")
PAGES = sorted(
    [
        ROOT / "README.md",
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("docs/adr/*.md"),
        *ROOT.glob("docs/recipes/*.md"),
        *ROOT.glob("docs/records/*.md"),
        *ROOT.glob("examples/**/*.md"),
        ROOT / "packaging/wheel/README.md",
    ]
)


@dataclass
class Example:
    page: str
    line: int
    language: str
    modes: tuple
    text: str

    def __str__(self):
        return f"{self.page}:{self.line}"

    def mode(self, name):
        """The value of `name=value`, or None."""
        return next((mode.removeprefix(f"{name}=") for mode in self.modes if mode.startswith(f"{name}=")), None)


def examples_of(path):
    found, begun = [], None
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if begun is None:
            if opening := OPENING.match(line):
                language, *modes = opening[1].split(",")
                begun = Example(str(path.relative_to(ROOT)), number, language, tuple(modes), "")
        elif line == "```":
            found.append(begun)
            begun = None
        else:
            begun.text += line + "\n"
    assert begun is None, f"{path}: the example of line {begun.line} does not end"
    return found


EXAMPLES = [example for page in PAGES for example in examples_of(page)]


def of(*languages):
    return [example for example in EXAMPLES if example.language in languages]


def commands(example):
    """The commands of an example for a shell: lists of words without variables and redirections."""
    text = re.sub(r"^\w+=\$\(.*\)$", "", example.text.replace("\\\n", " "), flags=re.MULTILINE)
    lines = text.splitlines()
    if example.language == "console":
        lines = [line[2:] for line in lines if line.startswith("$ ")]
    pending = ""
    for line in lines:
        try:
            split = shlex.split(pending + line, comments=True)
        except ValueError:
            # The quotes end on another line.
            pending += line + "\n"
            continue
        pending, words = "", []
        for word in [*split, "&&"]:
            if word in ("&&", "||", "|", ";"):
                while words and re.match(r"^\w+=", words[0]):
                    words.pop(0)
                if words:
                    yield words[: words.index(">")] if ">" in words else words
                words = []
            else:
                words.append(word)
    assert not pending, f"{example}: quotes do not end"
