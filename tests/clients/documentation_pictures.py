"""Draws the pictures of the documentation, from the program as it is: `cargo xtask pictures`.

They show the models of the demo under load. The numbers in them are those of the machine that has drawn them.
"""

import asyncio
import base64
import contextlib
import json
import pathlib
import struct
import sys
import tempfile

import browser
import processes
import programs
from PIL import Image
from serving import BINARY, ROOT, TARGET, Server, environment

PICTURES = ROOT / "docs/pictures"
MODELS = TARGET / "demo/models"
# In the pixels of a page. A picture has more of them, for screens with small ones.
WIDTH, SCALE = 1000, 1.5
CURVE_POINTS = 20
TUNED_SECONDS = 60
# How long a command may take on a busy machine.
LIMIT_SECONDS = 300


def perf(server, *options):
    return [BINARY, "perf", "-u", server.grpc, "-i", "grpc", *options]


def inputs(folder, name, **values):
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"data": [values]}))
    return f"--input-data={path}"


@contextlib.contextmanager
def load(server, folder):
    """Callers of several models, until the end of the block."""
    picture = (TARGET / "demo/pictures/circle300.png").read_bytes()
    # An element of BYTES is behind its length.
    encoded = base64.b64encode(struct.pack("<I", len(picture)) + picture).decode()
    encoded = inputs(folder, "picture", picture={"b64": encoded})
    text = inputs(folder, "text", text_input=["The server "], max_tokens=[60], seed=[1])
    with contextlib.ExitStack() as stack:
        for options in (
            ("-m", "digits", "--concurrency-range=8"),
            ("-m", "shape_of_picture", encoded, "--concurrency-range=6"),
            ("-m", "text", "--streaming", text, "--concurrency-range=20"),
        ):
            line = perf(server, *options, f"-p{LIMIT_SECONDS}000")
            stack.enter_context(processes.running(line, stdout=processes.DEVNULL, stderr=processes.DEVNULL))
        yield


def save(picture):
    """Saves a picture with 256 colours, which makes it small: pages have few."""
    path = PICTURES / picture.name
    Image.open(picture).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size // 1024} KiB")


def plot_load(server):
    path = PICTURES / "load.svg"
    line = perf(server, "-m", "digits", "--concurrency=2,4,8,16,32,64,128", f"--plot={path}")
    ended = processes.run(line, timeout=LIMIT_SECONDS)
    # 3: on a busy machine, a point may not be stable. The plot says so.
    assert ended.returncode in (0, 3), ended.stderr


async def draw_page(page, bottom, path):
    """The page down to a place, which is an expression of JavaScript."""
    await page.call("Emulation.setScrollbarsHidden", hidden=True)
    await page.look(WIDTH, WIDTH, scale=SCALE)
    await page.look(WIDTH, await page.evaluate(f"Math.ceil({bottom})"), scale=SCALE)
    await page.screenshot(path)
    save(path)


async def show_status(running, server, folder):
    page = await running.open(f"http://{server.http}/status")
    with load(server, folder):
        # The page asks once a second, and has a curve of what it has been told.
        asked = "performance.getEntriesByType('resource').filter((one) => one.name.includes('/v2/explain')).length"
        await page.until(f"{asked} >= {CURVE_POINTS}")
        first = "[...document.querySelectorAll('h2')].find((title) => title.innerText.startsWith('digits,'))"
        await draw_page(page, f"{first}.closest('section').getBoundingClientRect().bottom + 16", folder / "status.png")


async def show_tuning(running, folder):
    written = folder / "tune"
    line = [BINARY, "tune", "shape", f"--model-repository={MODELS}", f"--time={TUNED_SECONDS}", f"--output={written}"]
    processes.run(line, timeout=LIMIT_SECONDS, check=True, env=environment())
    page = await running.open(f"file://{written / 'report.html'}")
    await draw_page(page, "document.querySelectorAll('h2')[1].getBoundingClientRect().top - 16", folder / "tune.png")


async def draw(folder):
    PICTURES.mkdir(exist_ok=True)
    programs.marks.add("browser")
    python = f"--backend-config=python,python-executable={sys.executable}"
    async with browser.running(folder) as running:
        await show_tuning(running, folder)
        with Server(folder, MODELS, python) as server:
            plot_load(server.wait_until_ready())
        with Server(folder, MODELS, python) as server:
            await show_status(running, server.wait_until_ready(), folder)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(draw(pathlib.Path(folder)))
