"""The page of all views, and the picture of some."""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from dflash_cli.errors import DFlashError
from dflash_cli.stats_store.plot import write_plot
from dflash_cli.stats_store.report import write_report
from dflash_cli.stats_store.selection import Selection
from dflash_cli.stats_store.store import StatsStore
from tests.browser import Browser, needs_browser
from tests.stats_store.rows import entry

ALL = Selection()


@pytest.fixture
def store(tmp_path: Path) -> StatsStore:
    store = StatsStore(tmp_path / "stats.db")
    store.add([entry(pair="<script>alert(1)</script>\u202e"), entry(day="2026-02-01")])
    return store


class Page(HTMLParser):
    """The tags of a page, and that each is closed."""

    VOID = ("meta", "br", "input")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[Any]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_report_is_whole_and_needs_nothing_else(store: StatsStore, tmp_path: Path) -> None:
    text = write_report(store, ALL, tmp_path / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    assert "script" not in page.tags
    assert not {name for name, _ in page.attributes} & {"src", "href", "onclick"}
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&lt;U+202E&gt;" in text
    assert "default-src 'none'" in text
    assert not re.search(r"https?://|url\(|@import", text)
    for heading in ("Acceptance lengths", "Survival", "Decoding time", "By pair", "By depth", "Definitions"):
        assert heading in text
    assert "speed-up not measured" in text


@needs_browser
def test_in_a_browser_the_report_can_be_looked_at(store: StatsStore, tmp_path: Path) -> None:
    """Bars as long as what they stand for, nothing wider than the window, and nothing asked of anybody."""
    with Browser(tmp_path) as browser:
        browser.open(write_report(store, ALL, tmp_path / "report.html"))
        # Survival of the first two places is 1/2, that of the third 0.
        bars = "[...document.querySelectorAll('.bar div')].slice(2, 5).map(each => each.offsetWidth)"
        first, second, third = browser.run(bars)
        whole = browser.run("document.querySelector('.bar').clientWidth")
        assert first == second == pytest.approx(whole / 2, abs=10)
        assert third == 0
        assert browser.run("document.documentElement.scrollWidth <= window.innerWidth")
        assert browser.run("performance.getEntriesByType('resource').length") == 0
        assert browser.shoot(tmp_path / "shot.png").stat().st_size > 5000


@pytest.mark.parametrize(
    ("name", "message"),
    [("report.txt", r"ends in \.html or \.htm"), ("no/report.html", "does not exist"), ("folder.html", "is a folder")],
)
def test_where_no_report_can_be(store: StatsStore, tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(DFlashError, match=message):
        write_report(store, ALL, tmp_path / name)


def test_a_plot_without_matplotlib_says_what_to_install(
    store: StatsStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(DFlashError, match=r"pip install 'dflash-cli\[plot\]'"):
        write_plot(store, ALL, tmp_path / "a.png")
    with pytest.raises(DFlashError, match=r"ends in \.png or \.svg"):
        write_plot(store, ALL, tmp_path / "a.gif")


@pytest.mark.parametrize(("name", "begin"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("b.PNG", b"\x89PNG")])
def test_plots(store: StatsStore, tmp_path: Path, name: str, begin: bytes) -> None:
    pytest.importorskip("matplotlib")
    assert write_plot(store, ALL, tmp_path / name).read_bytes().startswith(begin)
    assert "matplotlib.pyplot" not in sys.modules  # it would look for a display


def test_a_plot_of_plain_decoding(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    store = StatsStore(tmp_path / "stats.db")
    store.add([entry([(0, 0)], drafter="")])
    assert write_plot(store, ALL, tmp_path / "a.png").stat().st_size > 1000
