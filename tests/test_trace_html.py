"""The page of a trace: whole, escaped, and stepped through in a real browser where there is one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from dflash_cli.events import BlockDrafted, BlockVerified, Event, Finished, Prefilled
from dflash_cli.trace_html import render, write_page
from tests.browser import Browser, needs_browser
from tests.stats_store.test_report import Page
from tests.test_replay import HEAD, recording

EVIL = "</script><script>alert(1)</script>"
STEPS: list[tuple[Event, Sequence[str], float]] = [
    (Prefilled(3, 0, (1,), 1.0), ["A"], 0.0),
    (BlockDrafted(3, (2, 3, 4)), [" b", "X\n", ""], 0.1),
    (BlockVerified(3, 1, (2, 4), 3, 1.0, 2.0), [" b", EVIL], 0.2),
    (BlockDrafted(5, (2, 3)), ["?", "!"], 0.3),
    (BlockVerified(5, 1, (2,), 1, 1.0, 1.0), ["?"], 0.4),
    (BlockVerified(6, 0, (5,), 0, 0.0, 1.0), ["\x1b\u202e."], 0.5),
    (Finished("stop", 500.0), [" end"], 0.6),
]
ANSWER = recording(*STEPS)


def test_text_and_colours_by_hand() -> None:
    text = render([ANSWER])
    blocks = re.findall(r'<span class="block".*?</span></span>', text, re.DOTALL)
    assert len(blocks) == 5
    assert '<span class="plain">A</span>' in blocks[0]
    first = blocks[1]
    assert first.index('class="accepted"> b<') < first.index('class="rejected">X↵<') < first.index('class="bonus">')
    assert "1 of 3 drafts kept, 2 committed; draft 1.0 ms, verify 2.0 ms" in first
    assert '<span class="accepted"> b</span>|<span class="rejected">X↵</span>|<span class="rejected">·</span>' in first
    assert '<span class="accepted">?</span>|<span class="plain">!</span>' in blocks[2]  # past the stop, not rejected
    assert "plain step" in blocks[3]
    doubted = (BlockVerified(6, 0, (5,), 0, 3.0, 1.0), ["."], 0.5)
    assert "no draft verified; draft 3.0 ms" in render([recording(*STEPS[:-2], doubted, STEPS[-1])])
    assert '<span class="plain"> end</span>' in blocks[4]


def test_it_is_whole_escaped_and_needs_nothing_else() -> None:
    answer = replace(ANSWER, head=replace(HEAD, prompt=EVIL, pair=EVIL, target='"><img src=x onerror=alert(1)>'))
    text = render([answer, ANSWER])
    page = Page(text)
    assert page.tags.count("script") == 1
    assert page.tags.count("section") == 2
    assert "img" not in page.tags
    assert not {name for name, _ in page.attributes} & {"src", "href", "onerror"}
    assert not re.search(r"https?://|url\(|@import", text)
    assert "default-src 'none'" in text
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_without_a_script_the_whole_text_is_there() -> None:
    assert 'class="block future"' not in render([ANSWER])


def test_thinking_is_marked() -> None:
    thought = recording(
        (Prefilled(3, 0, (1,), 1.0), ["<think>"], 0.0),
        (BlockVerified(3, 0, (2, 3, 4), 0, 0.0, 1.0), ["hm", "</think>", "yes"], 0.1),
        (Finished("stop", 100.0), [""], 0.2),
    )
    text = render([thought])
    assert '<span class="plain thinking">hm</span>' in text
    assert '<span class="plain">yes</span>' in text


@pytest.mark.parametrize("steps", [[], STEPS[:1], STEPS[:2], STEPS[:5]])
def test_an_answer_that_broke_off(steps: list[tuple[Event, Sequence[str], float]]) -> None:
    for page in (render([recording(*steps)]), render([])):
        Page(page)
        assert page.rstrip().endswith("</html>")


SEEN = """[...document.querySelectorAll(".block, .text .rejected, .drafts")]
  .filter(each => getComputedStyle(each).display !== "none" && each.offsetParent !== null)
  .map(each => each.className.split(" ")[0]).join(",")"""
TOLD = 'document.querySelector("output").textContent'
WHOLE = "block,block,block,block,block"
OPEN = "block,block,drafts,rejected,rejected,block,block,block"


@needs_browser
def test_in_a_browser_the_slider_steps_and_a_block_shows_its_drafts(tmp_path: Path) -> None:
    """Step 2 of 5: the first token and the newest block, with what was rejected; the rest is not there yet."""
    with Browser(tmp_path) as browser:
        browser.open(write_page([ANSWER], tmp_path / "page.html"))
        assert (browser.run(TOLD), browser.run(SEEN)) == ("5 of 5, 0.600 s", WHOLE)
        browser.hover(".block:nth-of-type(2)")
        assert browser.run(SEEN) == OPEN
        told = browser.run('document.querySelector(".block:hover > .drafts").innerText')
        assert told == "1 of 3 drafts kept, 2 committed; draft 1.0 ms, verify 2.0 ms\n b|X↵|·"
        browser.hover("h2")
        assert browser.run(SEEN) == WHOLE
        browser.run('document.querySelector("input").focus()')
        for expected in ("4 of 5, 0.500 s", "3 of 5, 0.400 s", "2 of 5, 0.200 s"):
            browser.press("ArrowLeft", 37)
            assert browser.run(TOLD) == expected
        assert browser.run(SEEN) == "block,block,rejected"
        browser.press("Home", 36)
        assert (browser.run(TOLD), browser.run(SEEN)) == ("0 of 5, 0.000 s", "")
        browser.press("End", 35)
        browser.press("Tab", 9)
        browser.press("Tab", 9)
        assert browser.run(SEEN) == OPEN  # without a mouse, too


@needs_browser
def test_in_a_browser_it_can_be_looked_at(tmp_path: Path) -> None:
    """Coloured as the legend says, without what a page from elsewhere could bring, and no wider than the window."""
    with Browser(tmp_path) as browser:
        browser.open(write_page([ANSWER], tmp_path / "page.html"))
        color = "getComputedStyle(document.querySelector('{} .{}')).color"
        colors = {kind: browser.run(color.format(".text", kind)) for kind in ("accepted", "bonus", "plain")}
        assert colors == {kind: browser.run(color.format(".legend", kind)) for kind in ("accepted", "bonus")} | {
            "plain": "rgb(34, 34, 34)"
        }
        assert browser.run("typeof window.alerted") == "undefined"
        assert browser.run("document.documentElement.scrollWidth <= window.innerWidth")
        assert browser.shoot(tmp_path / "shot.png").read_bytes().startswith(b"\x89PNG")
        assert (tmp_path / "shot.png").stat().st_size > 5000
