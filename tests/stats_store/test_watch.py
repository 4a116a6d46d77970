"""Turns of another process, as they come."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dflash_cli.stats_store import watch as module
from dflash_cli.stats_store.selection import Selection
from dflash_cli.stats_store.store import StatsStore
from dflash_cli.stats_store.watch import watch
from tests.stats_store.rows import entry


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "SECONDS", 0)
    return tmp_path / "stats.db"


class Looks:
    """Lets the other process write before each look, and ends after the last."""

    def __init__(self, path: Path, *batches: list[Any]) -> None:
        self.other, self.batches = StatsStore(path), list(batches)

    def __call__(self) -> bool:
        if not self.batches:
            return True
        self.other.add(self.batches.pop(0))
        return False


def test_a_line_for_each_new_turn(path: Path, capfd: Any) -> None:
    looks = Looks(path, [entry(pair=f"old{number}") for number in range(7)], [], [entry(pair="new\x1b[2J")] * 2, [])
    watch(StatsStore(path), Selection(), has_color=False, is_over=looks)
    lines = capfd.readouterr().out.splitlines()
    assert [line.split(" · ")[1] for line in lines] == [*(f"old{number}" for number in range(2, 7)), *["new␛[2J"] * 2]
    assert lines[0] == "turn 3 · old2 · prose · 5 tokens · τ 2.00 · 400.0 tok/s"


def test_before_the_first_turn_it_waits(path: Path, capfd: Any) -> None:
    watch(StatsStore(path), Selection(), has_color=False, is_over=Looks(path, [], [entry()]))
    assert capfd.readouterr().out.startswith("turn 1 · p")


def test_on_a_terminal_the_page_changes(path: Path, capfd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "is_terminal", lambda _: True)
    pages: list[str] = []
    monkeypatch.setattr(module, "_page", lambda store, selection: pages.append(str(store.version())) or "page")
    looks = Looks(path, [entry()], [], [], [entry()], [])
    watch(StatsStore(path), Selection(), has_color=True, is_over=looks)
    assert len(pages) >= 2
    assert len(pages) < 5  # not where nothing has changed


def test_a_terminal_of_another_size_is_drawn_anew(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "is_terminal", lambda _: True)
    console = Console(file=io.StringIO(), force_terminal=True)
    monkeypatch.setattr(module, "console_for", lambda _: console)
    pages: list[int] = []
    monkeypatch.setattr(module, "_page", lambda *_: pages.append(console.width) or "page")
    widths = [80, 80, 40, 40, 90]

    def is_over() -> bool:
        console.width = widths.pop(0) if widths else console.width
        return not widths

    watch(StatsStore(path), Selection(), has_color=True, is_over=is_over)
    assert pages == [80, 40]


def test_ctrl_c_ends_it(path: Path) -> None:
    asked: list[int] = []

    def interrupt() -> bool:
        asked.append(1)
        raise KeyboardInterrupt

    watch(StatsStore(path), Selection(), has_color=False, is_over=interrupt)  # and raises nothing
    assert asked == [1]


def test_the_page(path: Path) -> None:
    store = StatsStore(path)
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    console.print(module._page(store, Selection()))
    store.add([entry(pair="pears")])
    console.print(module._page(store, Selection()))
    text = console.export_text()
    assert "waiting for the first turn" in text
    assert "pears" in text
    assert "acceptance length" in text
