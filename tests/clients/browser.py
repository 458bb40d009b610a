"""A real browser without a window, driven by its own protocol (Chrome DevTools).

$NEREID_TEST_BROWSER is the program. Otherwise that of the system is used, or the one that `cargo xtask integrations` has
fetched. Tests that need it have the mark `browser`.
"""

import asyncio
import base64
import contextlib
import itertools
import re

import aiohttp
import processes
import programs
from serving import PATIENCE

# Without sandbox: the tests may run as root. Without network: a browser asks its maker for news.
OPTIONS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --remote-debugging-port=0"
).split()
LISTENS = re.compile(rb"DevTools listening on (ws://\S+)")


def program():
    return programs.find("chromium-headless-shell", "NEREID_TEST_BROWSER", group="browser")


class Page:
    """A page in a tab of its own."""

    def __init__(self, browser, session):
        self._browser, self._session = browser, session
        # What the page has loaded, and what went wrong in it.
        self.loaded, self.problems = [], []

    async def call(self, method, **parameters):
        return await self._browser.call(method, self._session, **parameters)

    async def evaluate(self, expression):
        """The value of an expression of JavaScript, also of a promise."""
        answer = await self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True, userGesture=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def until(self, expression):
        """Waits until an expression has a true value, and gives it."""
        async with asyncio.timeout(PATIENCE):
            while not (value := await self.evaluate(expression)):
                await asyncio.sleep(0.01)
        return value

    async def look(self, width, height, scheme="light", scale=1):
        """Sets the size of the window, its pixels for each pixel of a page, and the colour scheme that the reader prefers."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": width < 600}
        await self.call("Emulation.setDeviceMetricsOverride", **metrics)
        await self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    async def screenshot(self, path, whole=False):
        """The window, or the whole page."""
        picture = await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole, **await self._area(whole))
        path.write_bytes(base64.b64decode(picture["data"]))


    async def _area(self, whole):
        if not whole:
            return {}
        size = (await self.call("Page.getLayoutMetrics"))["cssContentSize"]
        return {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}


class Browser:
    def __init__(self, socket):
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers = {}
        self._pages = {}
        self._reader = asyncio.create_task(self._read())

    async def _read(self):
        async for message in self._socket:
            self._take(message.json())

    def _take(self, message):
        if "id" in message:
            self._answers.pop(message["id"]).set_result(message)
            return
        page = self._pages.get(message.get("sessionId"))
        event, content = message["method"], message["params"]
        if page and event == "Network.requestWillBeSent":
            page.loaded.append(content["request"]["url"])
        elif page and event in ("Runtime.exceptionThrown", "Log.entryAdded"):
            page.problems.append(content)

    async def call(self, method, session=None, **parameters):
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        message = {"id": number, "method": method, "params": parameters}
        await self._socket.send_json(message | ({"sessionId": session} if session else {}))
        told = await asyncio.wait_for(answer, PATIENCE)
        assert "error" not in told, told
        return told["result"]

    async def open(self, url):
        target = (await self.call("Target.createTarget", url="about:blank"))["targetId"]
        session = (await self.call("Target.attachToTarget", targetId=target, flatten=True))["sessionId"]
        page = self._pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Network", "Log"):
            await page.call(f"{domain}.enable")
        await page.call("Page.navigate", url=url)
        return page


@contextlib.asynccontextmanager
async def running(folder):
    """A browser with nothing in its memory, until the end of the block."""
    line = processes.bound([program(), *OPTIONS, f"--user-data-dir={folder / 'browser'}"])
    process = await asyncio.create_subprocess_exec(*line, stderr=asyncio.subprocess.PIPE)
    try:
        async with asyncio.timeout(PATIENCE):
            while not (found := LISTENS.search(await process.stderr.readline())):
                assert process.returncode is None, "the browser has ended"
        async with aiohttp.ClientSession() as session, session.ws_connect(found[1].decode(), max_msg_size=0) as socket:
            yield Browser(socket)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
