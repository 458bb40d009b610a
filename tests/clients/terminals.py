"""Programs on a terminal of a known size, what they show there, and pictures of it."""

import contextlib
import fcntl
import html
import os
import re
import select
import struct
import termios
from dataclasses import dataclass

import processes
from processes import PATIENCE

# A code for the look of what follows, or the end of a line.
CODE = re.compile(r"\x1b\[([\d;]*)m|\r?\n")
FACES = {"1": "bold", "2": "dim"}
COLOURS = {"31": "#ff7b72", "33": "#e3b341", "36": "#76c7e8"}
INK, DIM, PAPER = "#e6edf3", "#9aa4af", "#161b22"
# In pixels: a character, a line, and the space around all. Any font is drawn as wide as these say.
WIDTH, HEIGHT, SPACE, SIZE = 8.4, 19, 14, 14


@dataclass(frozen=True)
class Span:
    """Characters of one look: a colour, `bold`, `dim`."""

    text: str
    look: tuple = ()


def output_of(line, columns, until="", **named):
    """What a program writes to a terminal until it ends, and its code. After the text `until` it gets SIGTERM."""
    ours, its = os.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    output = b""
    streams = {"stdin": its, "stdout": its, "stderr": its}
    with open(ours, "rb", buffering=0) as screen, processes.running(line, **streams, **named) as program:
        os.close(its)
        # Linux answers with an error when the program has ended.
        with contextlib.suppress(OSError):
            while True:
                assert select.select([screen], [], [], PATIENCE)[0], f"nothing more after {output.decode()}"
                output += screen.read(65536)
                if until and until.encode() in output:
                    program.terminate()
                    until = ""
        code = program.wait(PATIENCE)
    assert not until, f"no '{until}' in {output.decode()}"
    return output.decode(), code


def lines_of(output):
    """The lines of an output, each a list of spans."""
    lines, look, at = [[]], (), 0

    def add(text):
        assert "\x1b" not in text, f"an unknown code in {text!r}"
        if text:
            lines[-1].append(Span(text, look))

    for code in CODE.finditer(output):
        add(output[at : code.start()])
        at = code.end()
        if code[1] is None:
            lines.append([])
        else:
            look = tuple(one for one in code[1].split(";") if one in FACES or one in COLOURS)
    add(output[at:])
    return lines if lines[-1] else lines[:-1]


def text_of(line):
    return "".join(span.text for span in line)


def folded(lines, columns):
    """The lines as a terminal shows them: what is longer goes on in the next one."""
    for line in lines:
        row, free = [], columns
        for span in line:
            rest = span.text
            while len(rest) > free:
                yield [*row, Span(rest[:free], span.look)]
                rest, row, free = rest[free:], [], columns
            row.append(Span(rest, span.look))
            free -= len(rest)
        yield row


def picture(lines, columns):
    """An SVG of a terminal that shows the lines."""
    rows = list(folded(lines, columns))
    width, height = round(columns * WIDTH + 2 * SPACE), len(rows) * HEIGHT + 2 * SPACE
    texts = [text for number, row in enumerate(rows) for text in texts_of(number, row)]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
            f'<rect width="100%" height="100%" rx="8" fill="{PAPER}"/>',
            f'<g font-family="ui-monospace, Menlo, Consolas, \'DejaVu Sans Mono\', monospace" font-size="{SIZE}" '
            f'fill="{INK}">',
            *texts,
            "</g>",
            "</svg>",
            "",
        ]
    )


def texts_of(number, row):
    column = 0
    for span in row:
        if span.text.strip():
            yield text_at(column, number, span)
        column += len(span.text)


def text_at(column, number, span):
    colour = next((COLOURS[one] for one in span.look if one in COLOURS), DIM if "2" in span.look else None)
    attributes = f' fill="{colour}"' if colour else ""
    attributes += ' font-weight="bold"' if "1" in span.look else ""
    x, y, length = SPACE + column * WIDTH, SPACE + number * HEIGHT + SIZE, len(span.text) * WIDTH
    # Viewers put other spaces together.
    text = html.escape(span.text, quote=False).replace(" ", "\N{NO-BREAK SPACE}")
    return f'<text x="{x:.1f}" y="{y}" textLength="{length:.1f}" lengthAdjust="spacingAndGlyphs"{attributes}>{text}</text>'
