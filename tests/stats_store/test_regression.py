"""An alert comes where something became clearly worse after a change, and only there."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from dflash_cli.stats_store.confidence import Estimate
from dflash_cli.stats_store.figures import Figures
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
        turns(BAD, quantisation="int8", version="1.1"),  # settings of the user are no fault of the version
        turns(BAD, block_size=8, version="1.1"),
        turns(BAD, adaptive=1, version="1.1"),
        turns(BAD, draft_vocabulary=8000, version="1.1"),
        turns(BAD, prompt=5000, version="1.1"),  # longer conversations
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


def test_what_is_used_again_is_no_regression(store: StatsStore) -> None:
    """Somebody tried a slower backend and went back."""
    store.add(turns(GOOD) + turns(BAD, backend="flex"))
    assert len(found(store)) == 2
    store.add(turns(GOOD, 1))
    assert found(store) == []


def test_a_version_that_was_hardly_used_does_not_hide_what_came_before(store: StatsStore) -> None:
    store.add(turns(GOOD) + turns(GOOD, 2, version="1.1") + turns(BAD, version="1.2"))
    tau, _ = found(store)
    assert tau.endswith("after version 1.0 became 1.2")


def test_only_from_some_depth_on(store: StatsStore) -> None:
    store.add(turns(GOOD, prompt=3000) + turns(GOOD) + turns(GOOD, version="2") + turns(BAD, prompt=3000, version="2"))
    tau, _ = found(store)
    assert tau.startswith("τ of p (prose, temperature 0, cpu, context 2048-4095) went")


@pytest.mark.parametrize(
    ("before", "after", "error", "count", "lower"),
    [(4.0, 3.0, 0.0, 9, True), (4.0, 3.0, 0.05, 9, True), (4.0, 3.0, 0.10, 9, False), (4.0, 3.7, 0.0, 9, False),
     (3.0, 4.0, 0.0, 9, False), (4.0, 3.0, 0.07, 99, True), (4.0, 3.0, 0.07, 5, False), (4.0, 3.0, None, 9, False),
     (4.0, 3.0, 0.0, 1, False)],
)  # fmt: skip
def test_confidence(before: float, after: float, error: float | None, count: int, lower: bool) -> None:
    """The same error says less where fewer answers tell how large it is."""
    assert is_lower(Estimate(before, error, count), Estimate(after, error, count)) == lower


def simulated(chance: random.Random, count: int, factor: float) -> Estimate:
    """τ of answers whose own τ varies by a fifth around 3 · factor."""
    figures = Figures()
    for _ in range(count):
        passes = chance.randint(20, 120)
        tokens = round(passes * 3 * factor * chance.lognormvariate(0, 0.2))
        figures = figures.plus(Figures(turns=1, committed=tokens, passes=passes, committed_committed=tokens**2,
                                       committed_passes=tokens * passes, passes_passes=passes**2))  # fmt: skip
    assert figures.tau_estimate is not None
    return figures.tau_estimate


@pytest.mark.parametrize(
    ("count", "factor", "least", "most"),
    [(5, 1.0, 0, 0.05), (20, 1.0, 0, 0.02), (20, 0.9, 0, 0.10), (60, 0.85, 0.15, 1), (20, 0.7, 0.8, 1)],
)
def test_alarms_are_rarely_false_and_mostly_raised(count: int, factor: float, least: float, most: float) -> None:
    chance = random.Random(count)
    alarms = sum(is_lower(simulated(chance, count, 1.0), simulated(chance, count, factor)) for _ in range(300))
    assert least <= alarms / 300 <= most
