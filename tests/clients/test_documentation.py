"""Every example of the documentation is checked: it is run, or the program that reads it reads it."""

import json
import os
import pathlib
import re
import shutil
import sys

import processes
import pytest
import repository as models
import requests
import yaml
from documentation import EXAMPLES, PAGES, commands, of
from python_backends import BUILT_IN
from serving import BINARY, ROOT, Server, environment

LANGUAGES = {"bash", "console", "pbtxt", "json", "yaml", "toml", "python", "javascript", "c", "text"}
MODES = {"run", "answer", "lines", "step", "serve", "hour"}

# Programs of commands whose options are not ours to check.
FOREIGN = {"git", "cd", "python3", "pip", "mv", "cp", "mkdir", "kill", "man", "apt", "systemctl", "tar", "skopeo", "source", "podman", "docker", "haproxy", "helm", "jq", "kubectl", "cc", "openssl", "node", "printf", "cat", "tail", "serve", "od", "echo", "python", "ln"}
# What only the machine of the reader can tell: files of models, members of ensembles, caches, agents.
NOT_KNOWN = {"model-file", "ensemble-members", "file-path", "graph"}
IO = 'input { name: "IN" data_type: TYPE_INT32 dims: 1 }\noutput { name: "OUT" data_type: TYPE_INT32 dims: 1 }\n'
STATUS_OF_WRONG_USAGE = 2
# With the inputs and outputs of a classifier of pictures.
RESNET = """resnet (float[n, 3, 224, 224] input) => (float[n, 1000] output)
<int64[2] rows = {-1, 3}, int64[2] size = {3, 1000}> {
  means = ReduceMean<axes = [2, 3]>(input)
  channels = Reshape(means, rows)
  weights = ConstantOfShape(size)
  output = MatMul(channels, weights)
}"""


def named(examples):
    return pytest.mark.parametrize("example", examples, ids=str)


@pytest.fixture(scope="module")
def examples_server(tmp_path_factory):
    """A server with the models of the examples: those in files, those on pages, and one for requests to `resnet`."""
    folder = tmp_path_factory.mktemp("examples")
    repository = folder / "models"
    shutil.copytree(ROOT / "examples/models", repository)
    for example in EXAMPLES:
        if name := example.mode("model"):
            (repository / name / "1").mkdir(parents=True)
            (repository / name / "1/model.py").write_text(example.text)
    models.write(repository, "resnet", models.graph(RESNET), "max_batch_size: 8\n")
    options = [*BUILT_IN.options, "--allow-client-shm=true"]
    with Server(folder, repository, *options, variables=BUILT_IN.variables) as server:
        yield server.wait_until_ready()


@pytest.fixture(scope="module")
def routes(examples_server):
    """What the server answers: pairs of a method and an expression for paths."""
    paths = requests.get(f"http://{examples_server.http}/openapi.json", timeout=60).json()["paths"]
    found = []
    for path, item in paths.items():
        expression = "".join("[^/]+" if part.startswith("{") else re.escape(part) for part in re.split(r"(\{\w+\})", path))
        found += [(method.upper(), re.compile(expression)) for method in item]
    assert len(found) > 40
    return found


def test_each_example_says_what_it_is():
    assert len(EXAMPLES) > 80
    for example in EXAMPLES:
        assert example.language in LANGUAGES, f"{example}: which language? ({example.language!r})"
        for mode in example.modes:
            assert mode in MODES or mode.startswith(("file=", "model=", "save=", "hour=")), f"{example}: {mode}"


@named(of("json"))
def test_json_can_be_read(example):
    for document in example.text.splitlines() if "lines" in example.modes else [example.text]:
        json.loads(document)


@named(of("yaml"))
def test_yaml_can_be_read(example):
    assert yaml.safe_load(example.text)


@named(of("toml"))
def test_options_in_files_are_known(example, tmp_path):
    (tmp_path / "nereid.toml").write_text(example.text)
    (tmp_path / "models").mkdir()
    check_usage(["check", f"--config={tmp_path / 'nereid.toml'}", str(tmp_path / "models")], tmp_path)


@named(of("pbtxt"))
def test_configurations_break_no_rule(example, tmp_path):
    parts = re.split(r"^# \S+/config.pbtxt.*$", example.text, flags=re.MULTILINE)
    for number, part in enumerate(part for part in parts if part.strip()):
        config = part
        if not re.search(r"^(backend|platform):", config, re.MULTILINE):
            config += '\nbackend: "python"\n'
        if not re.search(r"^input", config, re.MULTILINE) and "platform:" not in config:
            config += IO
        model = tmp_path / "models" / f"m{number}"
        (model / "1").mkdir(parents=True)
        (model / "1/model.py").write_text("class TritonPythonModel:\n    def execute(self, requests):\n        pass\n")
        (model / "config.pbtxt").write_text(config)
    checked = run_nereid(["check", "--format=json", "--cache-config=local,size=1000000", str(tmp_path / "models")], tmp_path)
    findings = json.loads(checked.stdout)["findings"]
    # Another test compiles the backend of an example.
    unknown = NOT_KNOWN | ({"backend"} if example.mode("file") else set())
    assert [one for one in findings if one["severity"] == "error" and one["rule"] not in unknown] == []


def run_nereid(words, folder):
    variables = environment() | BUILT_IN.variables
    return processes.run([BINARY, *words], cwd=folder, env=variables)


def check_usage(words, folder):
    checked = run_nereid(words, folder)
    assert checked.returncode != STATUS_OF_WRONG_USAGE, checked.stderr


def check_nereid(words, folder):
    """Checks the words of a command without the command's effects."""
    subcommand = words[0] if words and not words[0].startswith("-") else None
    if subcommand == "perf":
        # Nobody listens there.
        measured = run_nereid([*words, "--url=127.0.0.1:1"] if "-u" not in words else replaced(words), folder)
        assert "cannot connect" in measured.stderr, measured.stderr
    elif subcommand == "record":
        # It cannot make a file there.
        recorded = run_nereid(["record", str(folder / "none" / "file"), *words[2:]], folder)
        assert recorded.returncode == 1 and "cannot make" in recorded.stderr, recorded.stderr
    elif subcommand in ("explain", "tune", "replay"):
        # Nobody listens there, and there is no such model.
        assert run_nereid([*words, "--url=127.0.0.1:1"] if subcommand == "explain" else words, folder).returncode == 1
    elif subcommand in ("check", "config", "init", "api-key", "man", "completions"):
        check_usage(words, folder)
    else:
        # A check reads directories only.
        directory = folder / "models"
        directory.mkdir(exist_ok=True)
        (folder / "nereid.toml").touch()
        words = [re.sub(r"^--config=.*", f"--config={folder / 'nereid.toml'}", word) for word in words]
        words = [re.sub(r"^--model-repository=\w+://.*", f"--model-repository={directory}", word) for word in words]
        check_usage(["check", *words, str(directory)], folder)


def replaced(words):
    at = words.index("-u")
    return [*words[:at], "-u", "127.0.0.1:1", *words[at + 2 :]]


def check_curl(words, routes):
    address = next((word for word in words if "localhost" in word), None)
    if address is None:
        return
    port, path = re.fullmatch(r"(?:https?://)?localhost(?::(\d+))?([^?]*).*", address).groups()
    data = next((words[at + 1] for at, word in enumerate(words) if word in ("-d", "--data-binary")), None)
    if data and data.startswith("{"):
        json.loads(data)
    method = words[words.index("-X") + 1] if "-X" in words else "POST" if data else "GET"
    if port == "8002":
        assert path == "/metrics"
    elif port in ("8000", None):
        # A name such as <model> stands for any.
        assert any(one == method and route.fullmatch(path) for one, route in routes), f"no route {method} {path}"
    else:
        assert port == "8080", "platforms have port 8080"


def check_xtask(words):
    known = (ROOT / "xtask/src/main.rs").read_text()
    for word in words:
        if word.startswith("--") or word == words[0]:
            assert re.search(rf"(cargo xtask |[\[ ]){re.escape(word.split('=')[0])}\b", known), f"xtask does not know {word}"


@named(of("bash", "console"))
def test_commands_are_understood(example, routes, tmp_path):
    for program, *words in commands(example):
        name = pathlib.PurePath(program).name
        if name == "nereid":
            check_nereid(words, tmp_path)
        elif name == "curl":
            check_curl(words, routes)
        elif name == "cargo" and words[0] == "xtask":
            check_xtask(words[1:])
        else:
            own = program.startswith(("target/", "serving/", "environment/"))
            assert name in FOREIGN or own or name == "cargo", f"unknown command: {program}"


@named(of("python"))
def test_python_can_be_compiled(example):
    compile(example.text, str(example), "exec")


@named([example for example in EXAMPLES if example.mode("file")])
def test_parts_of_files_are_in_the_files(example):
    def words(text):
        return "\n".join(line.strip() for line in text.splitlines() if line.strip())

    # An ellipsis stands for what is left out.
    whole = words((ROOT / example.mode("file")).read_text())
    for part in re.split(r"^\s*(?:/\* \.\.\. \*/|# \.\.\.)$", example.text, flags=re.MULTILINE):
        assert words(part) in whole, part


def test_c_is_a_part_of_a_file_that_is_compiled():
    for example in of("c"):
        assert (example.mode("file") or "").startswith("examples/"), f"{example}: name the file: ```c,file=examples/..."


def here(text, server):
    """The text with the addresses of the server of the tests."""
    for port, own in ((8000, server.http_port), (8001, server.grpc_port), (8002, server.metrics_port)):
        text = text.replace(f"localhost:{port}", f"127.0.0.1:{own}")
    return text


@named([example for example in EXAMPLES if "run" in example.modes])
def test_examples_run(example, examples_server, tmp_path):
    program = {"python": [sys.executable, "-c"], "bash": ["bash", "-euo", "pipefail", "-c"]}[example.language]
    variables = environment() | BUILT_IN.variables
    variables["PATH"] = os.pathsep.join([str(BINARY.parent), variables["PATH"]])
    line = [*program, here(example.text, examples_server)]
    done = processes.run(line, cwd=ROOT, env=variables)
    assert done.returncode == 0, done.stdout + done.stderr
    after = EXAMPLES[EXAMPLES.index(example) + 1 :][:1]
    if after and "answer" in after[0].modes and after[0].page == example.page:
        if after[0].language == "json":
            assert json.loads(done.stdout) == json.loads(after[0].text)
        else:
            assert done.stdout.split() == after[0].text.split()


def test_the_page_of_protocols_lists_all_routes_and_calls(examples_server):
    page = (ROOT / "docs/protocols.md").read_text()
    rows = re.findall(r"^\| (`(?:GET|POST)[^|]*) \| (.*?) \|", page, re.MULTILINE)
    listed = set()
    for first, _ in rows:
        path = re.search(r"(/\S+?)`", first)[1]
        listed |= {(method, path) for method in re.findall(r"`(GET|POST)", first)}
    document = requests.get(f"http://{examples_server.http}/openapi.json", timeout=60).json()
    known = {
        (method.upper(), path)
        for path, item in document["paths"].items()
        for method in item
        if method in ("get", "post") and "/versions/" not in path and not re.search(r"/models/[^{]", path.replace("/repository", ""))
    }
    assert listed == known
    calls = set(re.findall(r"^\|[^|]*\| `(\w+)` \|", page, re.MULTILINE))
    service = (ROOT / "crates/proto/protos/grpc_service.proto").read_text()
    assert calls == set(re.findall(r"rpc (\w+)\(", service))


def test_the_model_on_the_page_adds_up(examples_server):
    tensor = {"name": "X", "datatype": "FP32", "shape": [3], "data": [1, 2, 4]}
    answer = requests.post(f"http://{examples_server.http}/v2/models/sums/infer", json={"inputs": [tensor]}, timeout=60)
    assert answer.json()["outputs"][0]["data"] == [7], answer.text


def test_answers_follow_what_is_run():
    for before, example in zip([None, *EXAMPLES], EXAMPLES, strict=False):
        if "answer" in example.modes:
            assert before and before.page == example.page and {"run", "step"} & set(before.modes), str(example)


# Texts of other programs.
NOT_OURS = ("ModuleNotFoundError", "PermissionError", "[Errno", "... Failed to construct locale")
# Where a text has what is only an example: names, numbers, paths.
VARIABLE = re.compile(r"\.\.\.|'[^']*'|\"[^\"]*\"|\b\d[\w.:]*|/\S+|\[[^\]]*\]|\bnet\b|<[^>]*>")


def texts_of_sources():
    """What the sources say, in one line. A text that is divided over lines is whole, and no place has a name."""
    whole = []
    for path in [*ROOT.glob("crates/*/src/**/*.rs"), *ROOT.glob("crates/*/python/**/*.py")]:
        text = re.sub(r'\\\n\s*|"\s*\n\s*"', "", path.read_text())
        whole.append(re.sub(r"\{[^{}]*\}", "\0", text.replace('\\"', '"')))
    return re.sub(r"\s+", " ", "".join(whole))


def share_in(sources, text):
    """Which share of the words of a text is in sources: in threes, because texts are put together of parts."""
    found = known = 0
    for part in VARIABLE.split(text):
        words = part.split()
        known += len(words)
        here = set()
        size = min(3, len(words))
        for at in range(len(words) - size + 1):
            if " ".join(words[at : at + size]).strip("(),.:;") in sources:
                here.update(range(at, at + size))
        found += len(here)
    return found / max(known, 1)


def test_texts_of_troubleshooting_are_in_the_sources():
    sources = texts_of_sources()
    rows = re.findall(r"^\| (`.*?) \| ", (ROOT / "docs/troubleshooting.md").read_text(), re.MULTILINE)
    texts = [text for row in rows for text in re.findall(r"`([^`]+)`", row) if not text.startswith(NOT_OURS)]
    assert len(texts) > 90
    assert [text for text in texts if share_in(sources, text) < 0.25] == []
    assert share_in(sources, "purple elephants forgot which tensors were sleeping yesterday") < 0.25


# All pages for users together. A page that grows beyond it repeats what another one tells, or belongs to the records.
MOST_WORDS = 76_200
PROSE = {str(page.relative_to(ROOT)): page.read_text() for page in PAGES if "adr" not in page.parts}


def test_functions_and_variables_of_triton_exist():
    known = (ROOT / "include/nereid.h").read_text() + texts_of_sources()
    named = {
        (page, name)
        for page, text in PROSE.items()
        for name in re.findall(r"\bTRITON(?:SERVER|BACKEND|CACHE|REPOAGENT)_\w+", text)
    }
    assert len(named) > 50
    assert [f"{page}: {name}" for page, name in sorted(named) if name not in known] == []


def test_options_in_the_text_exist():
    """Examples are tested above: these are options within sentences and tables."""
    helps = [run_nereid(words, ROOT) for words in (["--help"], ["perf", "--help"], ["check", "--help"], ["config", "--help"], ["init", "--help"], ["explain", "--help"], ["tune", "--help"], ["record", "--help"], ["replay", "--help"])]
    known = set(re.findall(r"--([a-z][\w-]*\w)", "".join(done.stdout + done.stderr for done in helps)))
    known |= set(re.findall(r"--([a-z][\w-]*\w)", (ROOT / "xtask/src/main.rs").read_text()))
    # Those of perf_analyzer that `nereid perf` refuses by name.
    known |= set(re.findall(r'"([a-z][\w-]*\w)"', (ROOT / "crates/perf/src/options/refused.rs").read_text()))
    wrong = []
    for page, text in PROSE.items():
        for code in re.findall(r"`([^`\n]+)`", text):
            # Of other programs, or a group of options.
            if re.match(r"cargo |COPY |--ipc=|--shm-size", code) or "*" in code:
                continue
            named = re.findall(r"(?:^|[ ,(])--([a-z][\w-]*\w)", code)
            wrong += [f"{page}: --{name} in `{code}`" for name in named if name not in known]
    assert wrong == []


def tables_of(text):
    """The tables of a page: each has its rows, each of which has its cells. The first row has the headings."""
    for lines in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))] for line in lines.splitlines()]
        yield rows[:1] + rows[2:]


def evidence_of(text):
    """What the rows of a page name as their tests, and the rows: tables with tests have a column for them."""
    for headings, *rows in tables_of(text):
        if "Shown by" in headings:
            for row in rows:
                yield re.findall(r"`([^`]+)`", row[headings.index("Shown by")]), row


def test_tests_that_pages_name_exist():
    paths = [path for folder in ("crates", "tests") for path in (ROOT / folder).rglob("*") if path.is_file()]
    files = [str(path.relative_to(ROOT)) for path in paths]
    functions = set()
    for name in files:
        if name.endswith((".rs", ".py")):
            functions.update(re.findall(r"\b(?:fn|def) (\w+)\(", (ROOT / name).read_text()))

    def exists(name):
        return name in functions if name.isidentifier() else any(f"/{name.rstrip('/')}" in f"/{path}" for path in files)

    named = [(page, name) for page, text in PROSE.items() for names, _ in evidence_of(text) for name in names]
    assert len(named) > 500
    assert [f"{page}: {name}" for page, name in named if not exists(name)] == []
    assert not exists("test_no_such_test") and not exists("no/such/file.rs")


def test_each_page_of_tritons_documentation_has_a_test():
    rows = list(evidence_of(PROSE["docs/records/triton-documentation.md"]))
    assert len(rows) > 70
    assert [row[0] for names, row in rows if not names] == []


def test_the_figures_of_the_first_page_are_measured():
    [table] = [rows for rows in tables_of(PROSE["README.md"]) if "Triton" in rows[0]]
    figures = {figure.replace(",", "") for _, *cells in table[1:] for cell in cells for figure in re.findall(r"\d[\d,.]*", cell)}
    assert len(figures) >= 10
    measured = set(re.findall(r"\d[\d.]*", PROSE["docs/records/performance.md"]))
    assert figures - measured == set()


def test_options_without_effect_say_so():
    page = PROSE["docs/options.md"]
    rows = [row for _, *rows in tables_of(page) for row in rows]
    without = {re.search(r"`--([\w-]+)`", row[0])[1] for row in rows if "No effect:" in row[-1]}
    [row] = [row for row in PROSE["docs/migration.md"].splitlines() if "accepted without effect" in row]
    assert set(re.findall(r"`--([\w-]+)`", row)) == without


def test_the_first_paragraph_says_for_whom_it_is_and_what_is_missing():
    first = " ".join(PROSE["README.md"].split("\n\n")[1].split())
    assert re.search(r"\bIt is for people who\b.*\bGPUs are missing, and so are the routes of OpenAI\.$", first), first


def test_the_pages_for_users_are_no_longer_than_they_need_to_be():
    """What is told stands on the page whose subject it is, once. Decisions and records are for developers."""
    words = {name: len(text.split()) for name, text in PROSE.items() if name.startswith(("README", "docs/")) and "/records/" not in name}
    assert sum(words.values()) < MOST_WORDS, sorted(words.items(), key=lambda page: -page[1])[:10]


def test_pictures_are_small_and_shown():
    shown = {target for text in PROSE.values() for target in re.findall(r"!\[[^\]]+\]\((?:docs/)?(pictures/[^)]+)\)", text)}
    there = {f"pictures/{path.name}" for path in (ROOT / "docs/pictures").iterdir()}
    assert there == shown and there
    assert [name for name in there if (ROOT / "docs" / name).stat().st_size > 200_000] == []
