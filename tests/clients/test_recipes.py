"""The recipes of the documentation, played as a reader plays them: files are written, commands run in their order, one
server after the other serves, and what is printed is what the page says.

A recipe that needs larger packages than the other tests, or node, belongs to the group `recipes`.
"""

import contextlib
import json
import os
import pathlib
import re
import sys

import processes
import programs
import pytest
from documentation import EXAMPLES, commands
from serving import BINARY, ROOT, Server, environment

# How long one command of a recipe, and a recipe, may take. Large packages are slow when they are read for the first time.
COMMAND_SECONDS = 300
RECIPE_SECONDS = 400
# The interpreter of the environment with the packages of large recipes.
LARGE_PYTHON = "NEREID_TEST_RECIPES"
NAME_OF_PACKAGE = re.compile(r"^([\w.-]+?)(?:\[[\w,]*\])?(?:[=<>~!].*)?$")


def names_of(lines):
    """The names of packages in lines of requirements, or in words of a command."""
    return {match[1].lower() for line in lines if (match := NAME_OF_PACKAGE.match(line)) and not line.startswith("-")}


def required(path):
    return names_of((ROOT / path).read_text().splitlines())


SMALL_PACKAGES = required("tests/requirements.txt") | required("demo/requirements.txt")
LARGE_PACKAGES = required("tests/integrations/recipes.txt")
RECIPES = {}
for example in EXAMPLES:
    RECIPES.setdefault(example.page, []).append(example)
RECIPES = {page: examples for page, examples in RECIPES.items() if any("step" in one.modes for one in examples)}


def packages_of(examples):
    """What a page tells its readers to install."""
    lines = [words for example in examples if example.language == "bash" for words in commands(example)]
    return set().union(*(names_of(words[2:]) for words in lines if words[:2] == ["pip", "install"]))


def is_large(examples):
    return not packages_of(examples) <= SMALL_PACKAGES or any(one.language == "javascript" for one in examples)


class RecipeServer(Server):
    """A server that the command of a page starts, in the present folder and on ports that the system chooses.

    It opens its ports when all models are loaded.
    """

    def __init__(self, folder, words, python):
        names = ("HTTP", "GRPC", "METRICS")
        ports = {f"NEREID_{name}_{what}": value for name in names for what, value in (("PORT", "0"), ("ADDRESS", "127.0.0.1"))}
        super().__init__(folder, folder, variables=ports | {"NEREID_PYTHON": python})
        self._line = [str(BINARY), *words]


class Play:
    """A recipe that is being played in a folder."""

    def __init__(self, folder, python, servers):
        self.folder, self.python, self.servers = folder, python, servers
        self.server = None
        self.printed = None

    def here(self, text):
        """The text with the ports of the server that runs."""
        if self.server:
            for port, own in ((8000, "http_port"), (8001, "grpc_port"), (8002, "metrics_port")):
                text = text.replace(f"localhost:{port}", f"localhost:{getattr(self.server, own)}")
        return text

    def save(self, path, text):
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(self.here(text))

    def serve(self, example):
        self.servers.close()
        [(program, *words)] = commands(example)
        assert program == "nereid", f"{example}: serves with nereid"
        self.server = self.servers.enter_context(RecipeServer(self.folder, words, self.python))

    def run(self, example):
        line = [self.python, "-c"] if example.language == "python" else ["bash", "-euo", "pipefail", "-c"]
        variables = environment()
        here = [str(pathlib.Path(self.python).parent), str(BINARY.parent), variables["PATH"]]
        variables |= {"PATH": os.pathsep.join(here), "PYTHONWARNINGS": "ignore", "NEREID_PYTHON": self.python}
        done = processes.run([*line, self.here(example.text)], timeout=COMMAND_SECONDS, cwd=self.folder, env=variables)
        assert done.returncode == 0, f"{example}: {done.stdout}{done.stderr}"
        self.printed = done.stdout

    def compare(self, example):
        assert self.printed is not None, f"{example}: nothing was run before"
        if example.language == "json":
            assert json.loads(self.printed) == json.loads(example.text), str(example)
        else:
            assert self.printed.split() == example.text.split(), str(example)

    def go_on(self, example):
        if path := example.mode("save"):
            self.save(path, example.text)
        elif "serve" in example.modes:
            self.serve(example)
        elif "step" in example.modes:
            self.run(example)
        elif "answer" in example.modes:
            self.compare(example)


def recipe(page):
    marks = [pytest.mark.timeout(RECIPE_SECONDS)]
    if is_large(RECIPES[page]):
        marks.append(pytest.mark.recipes)
    return pytest.param(page, marks=marks, id=page)


@pytest.mark.parametrize("page", [recipe(page) for page in RECIPES])
def test_recipe(page, tmp_path, monkeypatch):
    python = sys.executable
    if is_large(RECIPES[page]):
        programs.check_group("recipes")
        python = os.environ.get(LARGE_PYTHON) or programs.missing(
            f"{LARGE_PYTHON} names no interpreter with the packages of recipes", programs.INTEGRATIONS
        )
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    with contextlib.ExitStack() as servers:
        play = Play(tmp_path, python, servers)
        for example in RECIPES[page]:
            play.go_on(example)
    assert play.printed is not None


def test_the_text_before_a_file_names_it():
    for page, examples in RECIPES.items():
        lines = (ROOT / page).read_text().splitlines()
        for before, example in zip([None, *examples], examples, strict=False):
            if path := example.mode("save"):
                begin = before.line + before.text.count("\n") if before else 0
                assert f"`{path}`" in "\n".join(lines[begin : example.line]), f"{example}: a reader does not see `{path}`"


def test_all_packages_of_recipes_are_those_of_the_tests():
    assert len(RECIPES) >= 7
    for page, examples in RECIPES.items():
        assert packages_of(examples) <= SMALL_PACKAGES | LARGE_PACKAGES, page


def test_each_recipe_is_in_the_list():
    listed = set(re.findall(r"\]\((\S+?\.md)\)", (ROOT / "docs/recipes/README.md").read_text()))
    pages = {str(path.relative_to(ROOT / "docs/recipes")) for path in (ROOT / "docs/recipes").glob("*.md")}
    assert pages - {"README.md"} <= listed
    assert {f"docs/recipes/{name}" for name in pages - {"README.md"}} <= set(RECIPES)
