"""The book of the documentation in a browser: readable by all, with the keyboard too, and without a network.

`cargo xtask docs` makes it; `cargo xtask integrations` does so before these tests.
"""

import browser
import programs
import pytest
from accessibility import violations
from serving import TARGET

BOOK = TARGET / "docs"
# Width, height, colour scheme.
VIEWS = ((1440, 900, "light"), (1440, 900, "dark"), (375, 800, "light"), (375, 800, "dark"))

pytestmark = pytest.mark.browser


@pytest.fixture(autouse=True)
def book():
    if not (BOOK / "index.html").is_file():
        programs.missing(f"there is no book in {BOOK}", "cargo xtask docs")


def address(name):
    return (BOOK / name).as_uri()


async def opened(running, name):
    page = await running.open(address(name))
    await page.until("document.readyState === 'complete' && !!document.querySelector('main')")
    return page


def check_that_nothing_went_wrong(page):
    own = [url for url in page.loaded if not url.startswith("data:")]
    assert own and all(url.startswith(BOOK.as_uri()) for url in own), own
    assert page.problems == []


async def press(page, key, **more):
    for kind in ("keyDown", "keyUp"):
        await page.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, **more)


@pytest.mark.parametrize("name", ["index.html", "quickstart.html", "metrics.html"])
async def test_a_page_is_readable_by_all(name, tmp_path):
    async with browser.running(tmp_path) as running:
        page = await opened(running, name)
        for width, height, scheme in VIEWS:
            await page.look(width, height, scheme)
            await page.screenshot(tmp_path / f"{width}-{scheme}.png")
            # A reader never has to move a line of text sideways.
            assert await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), width
            assert await violations(page) == [], (width, scheme)
        check_that_nothing_went_wrong(page)


async def test_the_keyboard_is_enough(tmp_path):
    async with browser.running(tmp_path) as running:
        page = await opened(running, "batching.html")
        await press(page, "Tab", windowsVirtualKeyCode=9)
        assert await page.evaluate("document.activeElement.className") == "skip"
        await press(page, "/", text="/")
        assert await page.evaluate("document.activeElement.id") == "search"
        await page.call("Input.insertText", text="preferred_batch_size")
        count = await page.until("document.querySelector('#found p')?.textContent")
        assert int(count.split()[0]) >= 2, count
        await press(page, "Tab", windowsVirtualKeyCode=9)
        assert await page.evaluate("document.activeElement.closest('#found') !== null")
        await press(page, "Escape")
        assert await page.evaluate("document.getElementById('found').hidden")
        await page.look(375, 800)
        await page.evaluate("document.getElementById('menu').focus()")
        await press(page, "Enter", windowsVirtualKeyCode=13, text="\r")
        assert await page.evaluate("getComputedStyle(document.getElementById('chapters')).display") == "block"
        assert await violations(page) == []
        check_that_nothing_went_wrong(page)


async def test_a_search_leads_to_the_section(tmp_path):
    async with browser.running(tmp_path) as running:
        page = await opened(running, "adr/index.html")
        await page.evaluate("document.getElementById('search').focus()")
        await page.call("Input.insertText", text="rate limiter")
        first = await page.until("document.querySelector('#found a')?.href")
        await page.call("Page.navigate", url=first)
        await page.until(f"location.href === {first!r} && document.readyState === 'complete'")
        assert "rate" in (await page.evaluate("document.body.textContent")).lower()
        check_that_nothing_went_wrong(page)
