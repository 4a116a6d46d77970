"""Which turns are meant."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from dflash_cli.errors import UsageError
from dflash_cli.stats_store.selection import Selection, parse_day
from dflash_cli.stats_store.store import StatsStore
from dflash_cli.stats_store.views import overview
from tests.stats_store.rows import entry

TODAY = date(2026, 3, 1)


@pytest.mark.parametrize(
    ("text", "day"),
    [("2026-01-31", "2026-01-31"), ("today", "2026-03-01"), ("Yesterday", "2026-02-28"), ("7d", "2026-02-22"),
     ("2w", "2026-02-15"), ("0d", "2026-03-01")],
)  # fmt: skip
def test_days(text: str, day: str) -> None:
    assert parse_day(text, TODAY) == day


@pytest.mark.parametrize(
    "text", ["", "d", "-1d", "1.5d", "soon", "2026-02-30", "31.1.2026", "²d", "99999999999d", "7m"]
)
def test_what_is_no_day(text: str) -> None:
    with pytest.raises(UsageError, match="expected a day such as 2026-01-31"):
        parse_day(text, TODAY)


@pytest.mark.parametrize(
    ("selection", "turns", "words"),
    [
        (Selection(), 4, ""),
        (Selection(since="2026-02-01"), 2, "since 2026-02-01"),
        (Selection(pair="q"), 1, "q"),
        (Selection(backend="flex"), 2, "backend flex"),
        (Selection(since="2026-02-01", backend="flex"), 2, "since 2026-02-01, backend flex"),
        (Selection(last=3), 3, "the last 3"),
        (Selection(last=99), 4, "the last 99"),
        (Selection(backend="flex", last=1), 1, "backend flex, the last 1"),
        (Selection(where=(("kind", "code"),)), 2, "kind code"),
        (Selection(where=(("id", 2),)), 1, "id 2"),
        (Selection(where=(("quantisation", "none"), ("kind", "code"))), 2, "quantisation none, kind code"),
        (Selection(pair="'; DROP TABLE turns; --"), 0, "'; DROP TABLE turns; --"),
    ],
)
def test_all_views_are_of_the_selected_turns(tmp_path: Path, selection: Selection, turns: int, words: str) -> None:
    store = StatsStore(tmp_path / "stats.db")
    store.add([
        entry(), entry(pair="q", kind="code"), entry(backend="flex", day="2026-02-01"),
        entry(backend="flex", day="2026-02-01", kind="code"),
    ])  # fmt: skip
    view = overview(store, selection)
    assert view.figures.turns == turns
    assert sum(view.lengths.values()) == 2 * turns
    assert [each.drafted for each in view.positions] == ([2 * turns] * 3 if turns else [])
    assert selection.words == words
