"""Completions in real shells: what a user gets for a beginning and the tabulator key.

bash is everywhere. $NEREID_TEST_ZSH and $NEREID_TEST_FISH are the other programs; `cargo xtask test` installs them.
Otherwise those of the system are used, or those that `cargo xtask setup` has taken out of their packages.
"""

import os
import pathlib
import pty
import select
import time

import processes
import programs
import pytest
from serving import BINARY, PATIENCE

# What is typed, and the words of the line after the tabulator key.
LINES = {
    "che": ["check"],
    "--http-po": ["--http-port"],
    "--rate-limit exec": ["--rate-limit", "execution_count"],
    "--rate-limit=exec": ["--rate-limit=execution_count"],
    "check --stri": ["check", "--strict"],
    "check --format=sa": ["check", "--format=sarif"],
    "check --format sa": ["check", "--format", "sarif"],
    "check --model-nam": ["check", "--model-namespacing"],
    "check --rate-limit=exec": ["check", "--rate-limit=execution_count"],
    "check my": ["check", "my models/"],
    "config sch": ["config", "schema"],
    "config fmt --che": ["config", "fmt", "--check"],
    "config fmt notes": ["config", "fmt", "notes of 'x'.pbtxt"],
    "config show --format=js": ["config", "show", "--format=json"],
    "config show --model-nam": ["config", "show", "--model-namespacing"],
    "init --fo": ["init", "--force"],
    "explain --js": ["explain", "--json"],
    "api-key --ha": ["api-key", "--hash"],
    "completions fi": ["completions", "fish"],
    "man opt": ["man", "options"],
    "perf --binary-s": ["perf", "--binary-search"],
    "perf -i gr": ["perf", "-i", "grpc"],
    "perf --csv notes": ["perf", "--csv", "notes of 'x'.pbtxt"],
    "perf --report tab": ["perf", "--report", "table"],
    "record --hide": ["record", "--hide-tensors"],
    "replay --no-comp": ["replay", "--no-compare"],
    "tune --exhau": ["tune", "--exhaustive"],
    "tune m -- --rate-limit exec": ["tune", "m", "--", "--rate-limit", "execution_count"],
    "tune m -- --shutdown-de": ["tune", "m", "--", "--shutdown-delay-secs"],
    # The options of the server are not those of the commands, nor those of the commands the server's.
    "perf --http-po": ["perf", "--http-po"],
    "tune --rate-li": ["tune", "--rate-li"],
    "config fmt --http-po": ["config", "fmt", "--http-po"],
    "--stric": ["--strict-"],
    "--binary-s": ["--binary-s"],
    # A number is no file.
    "--http-port notes": ["--http-port", "notes"],
    "completions notes": ["completions", "notes"],
}

# Both print the words of the line instead of running the program.
BASH = """
PS1= PS2=
source <("{binary}" completions bash)
nereid() {{ printf '<%s>' "$@"; printf '\\n%s%s\\n' do ne; }}
cd "{folder}"
"""
ZSH = """
PS1= PS2= PROMPT_EOL_MARK=
unsetopt zle_bracketed_paste prompt_sp 2>/dev/null
fpath=("{folder}/functions" $fpath)
autoload -Uz compinit && compinit -D -u
nereid() {{ printf '<%s>' "$@"; printf '\\n%s%s\\n' do ne }}
cd "{folder}"
printf '%s%s\\n' rea dy
"""
# Of a zsh that is not installed: where its parts are, which it must know before it reads a key.
ZSH_PARTS = """
module_path=({root}/usr/lib/*/zsh/*(N/))
fpath=({root}/usr/share/zsh/functions {root}/usr/share/zsh/functions/**/*(N/))
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "my models").mkdir()
    (tmp_path / "notes of 'x'.pbtxt").touch()
    return tmp_path


class Terminal:
    """A shell that takes a user's keys."""

    def __init__(self, command, environment):
        self.keys, inside = pty.openpty()
        self.process = processes.start(
            command, stdin=inside, stdout=inside, stderr=inside, env=environment, start_new_session=True
        )
        os.close(inside)
        self.seen = b""

    def type(self, text):
        os.write(self.keys, text.encode())

    def read_until(self, end):
        """What the shell has printed since the last call."""
        deadline = time.monotonic() + PATIENCE
        while end not in self.seen:
            ready, _, _ = select.select([self.keys], [], [], max(0, deadline - time.monotonic()))
            assert ready, self.seen
            self.seen += os.read(self.keys, 65536)
        text, self.seen = self.seen.split(end, 1)
        return text.decode()

    def words(self, line):
        """The words of a line that is completed."""
        self.type(f"nereid {line}\t\n")
        printed = self.read_until(b"done\r\n").rstrip()
        return printed.rpartition("\n")[2].lstrip("\r").removeprefix("<").removesuffix(">").split("><")

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.keys)


@pytest.fixture
def terminal():
    opened = []

    def open_terminal(command, **variables):
        environment = {"PATH": os.environ["PATH"], "TERM": "dumb", "INPUTRC": "/dev/null", "LC_ALL": "C.UTF-8"}
        opened.append(Terminal(command, environment | variables))
        return opened[-1]

    yield open_terminal
    for shell in opened:
        shell.close()


def check(shell, lines=LINES):
    completed = {line: shell.words(line) for line in lines}
    assert completed == {line: [*words] for line, words in lines.items()}


def test_bash_completes_each_command(terminal, folder):
    (folder / "rc").write_text(BASH.format(binary=BINARY, folder=folder))
    shell = terminal(["bash", "--noprofile", "--rcfile", str(folder / "rc"), "-i"])
    check(shell)
    # A name may begin with blanks in it, or with a quote.
    lines = {
        "tune m -- --exhau": ["tune", "m", "--", "--exhau"],
        "check my\\ mod": ["check", "my models/"],
        'config fmt "notes of': ["config", "fmt", "notes of 'x'.pbtxt"],
    }
    check(shell, lines)


def test_zsh_completes_each_command(terminal, folder):
    found = programs.find("zsh", "NEREID_TEST_ZSH")
    (folder / "functions").mkdir()
    script = processes.run([BINARY, "completions", "zsh"], check=True).stdout
    (folder / "functions" / "_nereid").write_text(script)
    root = pathlib.Path(found).resolve().parent
    parts = ZSH_PARTS.format(root=root) if (root / "usr/share/zsh").exists() else ""
    (folder / ".zshenv").write_text(parts)
    (folder / ".zshrc").write_text(ZSH.format(folder=folder))
    shell = terminal([found, "-d", "-i"], ZDOTDIR=str(folder))
    shell.read_until(b"ready\r\n")
    # zsh takes the slash after a directory back when the line ends.
    check(shell, LINES | {"check my": ["check", "my models"]})


def test_fish_completes_each_command(folder):
    found = programs.find("fish", "NEREID_TEST_FISH")
    script = processes.run([BINARY, "completions", "fish"], check=True).stdout
    (folder / "nereid.fish").write_text(script)

    def completed(line):
        command = f"source nereid.fish; complete -C 'nereid {line}'"
        ended = processes.run(
            [found, "--no-config", "-c", command], cwd=folder, check=True, env=os.environ | {"HOME": str(folder)}
        )
        return [candidate.split("\t")[0] for candidate in ended.stdout.splitlines()]

    for line, words in LINES.items():
        candidates = completed(line)
        # The shell completes what all have in common.
        assert words[-1] == (os.path.commonprefix(candidates) or line.rpartition(" ")[2]), (line, candidates)
