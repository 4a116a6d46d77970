"""An alert comes where something became clearly worse after a change, and only there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dflash_cli.stats_store.regression import is_lower, regressions
from dflash_cli.stats_store.row import Entry
from dflash_cli.stats_store.selection import Selection
from dflash_cli.stats_store.store import StatsStore
from tests.stats_store.rows import Pass, entry

GOOD: list[list[Pass]] = [[(3, 3)] * 4, [(2, 3)] * 4, [(3, 3), (2, 3)]]
BAD: list[list[Pass]] = [[(1, 3)] * 4, [(0, 3)] * 4, [(1, 3), (0, 3)]]


def turns(kinds: list[list[Pass]], count: int = 12, **facts: Any) -> list[Entry]:
    return [entry(kinds[index % len(kinds)], **facts) for index in range(count)]


@pytest.fixture
def store(tmp_path: Path) -> StatsStore:
    return StatsStore(tmp_path / "stats.db")


def found(store: StatsStore) -> list[str]:
    return [each.text for each in regressions(store, Selection())]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": "1.1"}, "version 1.0 became 1.1"),
        ({"backend": "flex"}, "backend eager became flex"),
        ({"drafter_hash": "cc"}, "drafter checkpoint bb became cc"),
        ({"target_hash": "dd", "version": "2"}, "version 1.0 became 2 and target checkpoint aa became dd"),
    ],
)
def test_less_acceptance_after_a_change(store: StatsStore, change: dict[str, Any], words: str) -> None:
    store.add(turns(GOOD) + turns(BAD, **change))
    tau, speed = found(store)
    # (4·4 + 4·3 + 7) and (4·2 + 4·1 + 3) tokens in ten blocks of 5 ms.
    assert tau == (f"τ of p (prose, temperature 0, cpu) went from 3.50 to 1.50 (-57%, 12 turns since) after {words}")
    assert speed.startswith("tok/s of p (prose, temperature 0, cpu) went from 700.00 to 300.00")


def test_only_slower(store: StatsStore) -> None:
    slow = [entry(each, version="1.1", decode_ms=5.0 * len(each) * 1.5) for each in GOOD * 4]
    store.add(turns(GOOD) + slow)
    (text,) = found(store)
    assert text.startswith("tok/s of p")


@pytest.mark.parametrize(
    "later",
    [
        turns(GOOD, version="1.1"),
        turns(BAD),  # nothing changed: the text may be harder
        turns(BAD, 4, version="1.1"),  # too few to tell
        turns(BAD, kind="code", version="1.1"),  # another kind of text
        turns(BAD, temperature=0.7, version="1.1"),
        turns(BAD, device="cuda", version="1.1"),
        turns([[(0, 0)] * 4], drafter="", version="1.1"),
        [entry(each, version="1.1", decode_ms=5.0 * len(each) * 1.05) for each in GOOD * 4],  # 5 % slower
    ],
)
def test_no_alert(store: StatsStore, later: list[Entry]) -> None:
    store.add(turns(GOOD) + later)
    assert found(store) == []


def test_what_became_worse_and_better_again(store: StatsStore) -> None:
    store.add(turns(GOOD) + turns(BAD, version="1.1") + turns(GOOD, version="1.2"))
    assert found(store) == []


def test_confidence() -> None:
    assert is_lower(4.0, 3.0, 0.0, 0.0)
    assert is_lower(4.0, 3.0, 0.05, 0.05)
    assert not is_lower(4.0, 3.0, 0.10, 0.10)
    assert not is_lower(4.0, 3.7, 0.0, 0.0)
    assert not is_lower(3.0, 4.0, 0.0, 0.0)
