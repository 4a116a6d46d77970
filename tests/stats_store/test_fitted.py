"""Views at any width: no number is cut, no line is too long."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from dflash_cli.stats_command import VIEWS
from dflash_cli.stats_store.compare import compare
from dflash_cli.stats_store.fitted import FittedBars, FittedTable
from dflash_cli.stats_store.selection import Selection
from dflash_cli.stats_store.show import show
from dflash_cli.stats_store.store import StatsStore
from dflash_cli.stats_store.turn_view import turn_view
from dflash_cli.stats_store.views import turn_of
from tests.stats_store.rows import entry, shown
from tests.test_overlay_render import COLORS as LOOK

ROWS = [("a-rather-long-name", "12", "1,234,567", "3.50"), ("b", "1", "5", "1.00")]


@pytest.mark.parametrize(
    ("width", "line", "left_out"),
    [
        (80, "a-rather-long-name     12  1,234,567  3.50", ""),
        (42, "a-rather-long-name     12  1,234,567  3.50", ""),
        (40, "a-rather-long-n…     12  1,234,567  3.50", ""),
        (34, "a-rather-…     12  1,234,567  3.50", ""),
        (33, "a-rather-long-name     12  3.50", "(no room for tokens)"),
        (20, "a-rather-long…  3.50", "(no room for tokens, turns)"),
    ],
)
def test_names_are_cut_and_columns_left_out(width: int, line: str, left_out: str) -> None:
    text = shown(FittedTable(("pair", "turns", "tokens", "τ"), ROWS, spare=("tokens", "turns")), width)
    assert text.splitlines()[1] == line
    assert " ".join(text.splitlines()[3:]) == left_out


@settings(max_examples=50)
@given(st.integers(29, 120), st.lists(st.tuples(st.text("ab日", max_size=30), st.integers(0, 10**9)), min_size=1))
def test_every_line_has_room(width: int, rows: list[tuple[str, int]]) -> None:
    cells = [(name, f"{count:,}", "1.00") for name, count in rows]
    text = shown(FittedTable(("name", "count", "τ"), cells), width)
    assert max(map(cell_len, text.splitlines())) <= width
    assert all(f"{count:,}" in line for (_, count), line in zip(rows, text.splitlines()[1:], strict=True))


def test_bars_are_shortened_then_left_out() -> None:
    bars = FittedBars([("1", 1.0, "1,234 (80%)"), ("2", 0.25, "5 (20%)")], "lengths")
    assert shown(bars, 80).splitlines()[1] == f"1  {'█' * 40}  1,234 (80%)"
    assert shown(bars, 24).splitlines()[1:] == ["1  ████████  1,234 (80%)", "2  ██            5 (20%)"]
    assert shown(bars, 18).splitlines()[1:] == ["1  1,234 (80%)", "2      5 (20%)"]
    assert shown(FittedBars([], "none"), 20).splitlines()[0] == "none"


@pytest.mark.parametrize("width", [40, 80])
@pytest.mark.parametrize("what", ["pair", "kind", "depth", *VIEWS])
def test_views_on_small_terminals(tmp_path: Path, what: str, width: int) -> None:
    """What is cut is a pair's name at most."""
    store = StatsStore(tmp_path / "stats.db")
    store.add([entry([(3, 4)] * 2000 + [(7, 9)] * 30, pair="smollm2-135m", prompt=9000)] * 12)
    text = shown(show(store, Selection(), what, 20).picture(), width)
    assert max(map(cell_len, text.splitlines())) <= width
    cut = [line for line in text.splitlines() if "…" in line]
    assert all("smollm2-…" in line for line in cut), cut


@pytest.mark.parametrize("width", [40, 80])
def test_one_turn_and_two_sides_on_small_terminals(tmp_path: Path, width: int) -> None:
    store = StatsStore(tmp_path / "stats.db")
    store.add(
        [
            entry(
                target="embedded:smollm2-135m",
                drafter="a/very-long-name-of-a-drafter" * 3,
                adaptive=1,
                draft_vocabulary=8000,
            )
        ]
        * 2
    )
    row = turn_of(store, 1)
    assert row is not None
    for view in (turn_view(row, None, width, LOOK), compare(store, Selection(), "1", "2").view()):
        text = shown(view, width)
        assert max(map(cell_len, text.splitlines())) <= width
        assert "…" not in text
    words = " ".join(shown(turn_view(row, None, width, LOOK), width).split())
    assert "2 blocks of up to 4" in words
    assert "drafts of 8000 ids" in words
