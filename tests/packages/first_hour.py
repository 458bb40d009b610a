"""Plays docs/first-hour.md with a wheel, in an empty folder and with no variables but those of a new user and the network:

    target/venv/bin/python tests/packages/first_hour.py

It stops at the first command whose answer is not the one on the page. On the page, `...` stands for any text within a
line, or for any lines. A terminal of a server (`hour=NAME`) goes on when its last command has printed what is there, and
`^C` ends that command.
"""

import contextlib
import os
import pathlib
import re
import signal
import sys
import tempfile

from conftest import ROOT, package  # makes the modules of the client tests known

# isort: split
import processes
from documentation import examples_of
from running import ENVIRONMENT, free_ports
from serving import eventually

EXAMPLES = examples_of(ROOT / "docs/first-hour.md")
# A package may be downloaded, and a machine may be busy.
LIMIT_SECONDS = 300
PORTS = {"HTTP": 8000, "GRPC": 8001, "METRICS": 8002}
END = "the command has ended:"
# How pip reaches a registry.
OF_THE_NETWORK = re.compile(r"PIP_\w+|\w+_proxy|SSL_CERT_\w+|REQUESTS_CA_BUNDLE", re.IGNORECASE)


def typed_in(example):
    """The commands of an example, each with the lines that it prints. `^C` is one of them."""
    typed = []
    for line in example.text.splitlines():
        if line == "^C" or line.startswith("$ "):
            typed.append((line.removeprefix("$ "), []))
        else:
            typed[-1][1].append(line)
    return typed


def pattern(answer):
    """What matches the lines of an answer on the page."""
    lines = (
        "(?:.*\n)*?" if line.strip() == "..." else re.escape(line).replace(r"\.\.\.", ".*") + "\n" for line in answer
    )
    return re.compile("".join(lines))


class Terminal:
    """A shell that runs one command after the other."""

    def __init__(self, folder, variables, log):
        self.log = log
        with open(log, "wb") as output:
            self._shell = processes.start(
                ["bash"], cwd=folder, env=variables, stdin=processes.PIPE, stdout=output, stderr=processes.STDOUT, text=True
            )
        self._read = 0

    def begin(self, command):
        """Starts a command, or ends the one that runs with Ctrl-C."""
        self._read = len(self._text())
        if command == "^C":
            for child in processes.children(self._shell.pid):
                os.kill(child, signal.SIGINT)
        else:
            self._shell.stdin.write(f"{{ {command}\n}} < /dev/null\necho '{END}' $?\n")
            self._shell.stdin.flush()

    def output(self):
        """What the present command has printed, and whether it has ended."""
        told, end, _ = self._text()[self._read :].partition(END)
        # Of a last line without an end, a reader sees the next prompt behind it.
        return told + "\n" * (bool(end) and told[-1:] not in ("", "\n")), bool(end)

    def close(self):
        for child in processes.children(self._shell.pid):
            os.kill(child, signal.SIGTERM)
        self._shell.stdin.close()
        self._shell.wait(processes.PATIENCE)

    def _text(self):
        return self.log.read_text()


class Hour:
    """A page that is being played in a folder. `tell` gets each command before it runs."""

    def __init__(self, folder, examples, wheel, tell=lambda command: None):
        self._folder, self._examples, self._tell = folder, examples, tell
        (folder / wheel.name).symlink_to(wheel)
        first = free_ports(len(PORTS))
        self._ports = dict(zip(PORTS.values(), range(first, first + len(PORTS)), strict=True))
        ports = {f"NEREID_{name}_PORT": str(self._ports[port]) for name, port in PORTS.items()}
        network = {name: value for name, value in os.environ.items() if OF_THE_NETWORK.fullmatch(name)}
        programs = f"{pathlib.Path(sys._base_executable).parent}:{ENVIRONMENT['PATH']}"
        self._variables = network | ports | {"HOME": str(folder), "LANG": "C.UTF-8", "PATH": programs}
        self._terminals = {}

    def play(self):
        with contextlib.ExitStack() as terminals:
            for example in self._examples:
                if path := example.mode("save"):
                    (self._folder / path).write_text(self._own(example.text))
                elif "hour" in example.modes or example.mode("hour"):
                    self._type(example, self._terminal(example.mode("hour"), terminals))

    def _terminal(self, name, terminals):
        if name not in self._terminals:
            self._terminals[name] = Terminal(self._folder, self._variables, self._folder / f".{name or 'first'}.log")
            terminals.callback(self._terminals[name].close)
        return self._terminals[name]

    def _type(self, example, terminal):
        """Runs the commands of an example. In the terminal of a server the last one goes on running."""
        typed = typed_in(example)
        for number, (command, answer) in enumerate(typed, 1):
            serves = bool(example.mode("hour")) and number == len(typed)
            place = f"{example}, line {number} of its commands: {command}"
            self._tell(place)
            terminal.begin(self._own(command))
            expected = pattern(answer)

            def told():
                text, has_ended = terminal.output()
                text = self._as_on_the_page(text)
                if serves and expected.match(text):
                    return True
                if has_ended:
                    assert expected.fullmatch(text), f"{place}\nprints\n{text}\nand not\n" + "\n".join(answer)
                return has_ended

            eventually(told, f"the answer to {place}, in {terminal.log}", patience=LIMIT_SECONDS, pause=0.05)

    def _own(self, text):
        for port, own in self._ports.items():
            text = text.replace(f"localhost:{port}", f"localhost:{own}")
        return text

    def _as_on_the_page(self, text):
        for port, own in self._ports.items():
            text = re.sub(rf"\b{own}\b", str(port), text)
        return text


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        Hour(pathlib.Path(folder), EXAMPLES, package("nereid_server-*.whl"), print).play()
