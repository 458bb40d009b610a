"""Draws what a terminal shows of the program: `cargo xtask pictures`.

docs/pictures gets the screens that pages show. target/pictures gets all of them, with colours and without, to be looked at.
"""

import pathlib
import shlex
import sys
import tempfile
from dataclasses import dataclass

import repository as models
import terminals
from serving import BINARY, LIBRARY, ROOT, TARGET, environment, free_ports

PICTURES = ROOT / "docs/pictures"
ALL_PICTURES = TARGET / "pictures"
COLUMNS = 100
PORTS = {"HTTP": 8000, "GRPC": 8001, "METRICS": 8002}


@dataclass(frozen=True)
class Screen:
    """What a command shows. A server is ended after the text `until`, and what follows that is not shown."""

    name: str
    line: str
    code: int = 0
    until: str = ""
    is_in_pages: bool = True


SCREENS = [
    Screen("nereid", "nereid", 1, is_in_pages=False),
    Screen("help", "nereid -h"),
    Screen("start", "nereid models", until="metrics: http://localhost:8002/metrics"),
    Screen("refused", "nereid broken", 1),
    Screen("check", "nereid check broken", 1),
]


def prepare(folder):
    """Writes the repositories `models`, and `broken` with mistakes that are often made, and puts ONNX Runtime beside them."""
    library = pathlib.Path(environment()[LIBRARY])
    (folder / "lib").mkdir()
    (folder / "lib" / library.name).symlink_to(library)
    rows = "{} (float[n, {}] {}) => (float[n, {}] {}) {{ {} = Relu({}) }}"
    for name, size, before, after in (("digits", 64, "pixels", "scores"), ("shape", 48, "picture", "likelihood")):
        graph = models.graph(rows.format(name, size, before, size, after, after, before))
        for repository in ("models", "broken"):
            models.write(folder / repository, name, graph)
    broken = folder / "broken"
    (broken / "digits/config.pbtxt").write_text("max_batchsize: 64\ndynamic_batching { }\n")
    (broken / "shape/1/model.onnx").rename(broken / "shape/1/shape.onnx")
    (broken / "picture/1").mkdir(parents=True)
    (broken / "picture/1/model.py").write_text("class TritonPythonModel:\n    def execute(self, requests)\n        return []\n")
    (broken / "resnet50.onnx").write_bytes(b"")


def output_of(screen, folder, **variables):
    """What a terminal shows of a screen. The ports are those of a server that has no options."""
    ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
    own = {f"NEREID_{name}_PORT": str(port) for name, port in ports.items()} | {"NEREID_PYTHON": sys.executable}
    # No picture has a path of this machine.
    own[LIBRARY] = f"lib/{pathlib.Path(environment()[LIBRARY]).name}"
    until = screen.until.replace(str(PORTS["METRICS"]), str(ports["METRICS"]))
    words = shlex.split(screen.line)
    output, code = terminals.output_of([BINARY, *words[1:]], COLUMNS, until, env=environment() | own | variables, cwd=folder)
    assert code == screen.code, output
    if until:
        output = output[: output.index("\n", output.index(until)) + 1]
    for name, port in ports.items():
        output = output.replace(str(port), str(PORTS[name]))
    return output


def picture(screen, folder, **variables):
    prompt = terminals.lines_of(f"$ \x1b[1m{screen.line}\x1b[0m\n")
    return terminals.picture(prompt + terminals.lines_of(output_of(screen, folder, **variables)), COLUMNS)


def save(name, drawn, *folders):
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"terminal-{name}.svg"
        path.write_text(drawn)
        print(f"{path}: {path.stat().st_size // 1024} KiB")


def draw_all():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        prepare(folder)
        for screen in SCREENS:
            folders = [ALL_PICTURES, PICTURES] if screen.is_in_pages else [ALL_PICTURES]
            save(screen.name, picture(screen, folder, NO_COLOR=""), *folders)
            save(f"{screen.name}-plain", picture(screen, folder, NO_COLOR="1"), ALL_PICTURES)


if __name__ == "__main__":
    draw_all()
