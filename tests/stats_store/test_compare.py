"""Two sets of turns side by side."""

from __future__ import annotations

from pathlib import Path

import pytest

from dflash_cli.errors import UsageError
from dflash_cli.stats_store.compare import compare
from dflash_cli.stats_store.selection import Selection
from dflash_cli.stats_store.store import StatsStore
from tests.stats_store.rows import entry, shown

ALL = Selection()


@pytest.fixture
def store(tmp_path: Path) -> StatsStore:
    store = StatsStore(tmp_path / "stats.db")
    store.add([entry([(3, 3)] * 4)] * 3 + [entry([(1, 3)] * 4, backend="flex", kind="code")] * 3)
    return store


@pytest.mark.parametrize(
    ("first", "second"),
    [("eager", "flex"), ("prose", "code"), ("1", "4"), ("backend=eager", "backend=flex, kind=code"),
     ("temperature=0,kind=prose", "flex"), ("quantisation=none,kind=prose", "day=2026-01-31,kind=code")],
)  # fmt: skip
def test_b_against_a(store: StatsStore, first: str, second: str) -> None:
    compared = compare(store, ALL, first, second).as_dict()
    assert compared["tau_ratio"] == 0.5
    assert compared["tokens_per_s_ratio"] == 0.5
    assert compared["a"]["selection"] == first  # type: ignore[index]
    assert compared["b"]["tau"] == 2.0  # type: ignore[index]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("eagr", "no turn has 'eagr'; did you mean 'eager'"),
        ("99", "there are no turns of '99'"),
        ("flavour=x", "told apart by 'flavour'"),
        ("kin=code", "did you mean 'kind'"),
        ("temperature=hot", "temperature is a number; found 'hot'"),
        ("day=soon", "expected a day"),
        ("kind=poem", "there are no turns of 'kind=poem'"),
    ],
)
def test_what_has_no_turns(store: StatsStore, word: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        compare(store, ALL, "eager", word)


def test_chance_is_told(store: StatsStore) -> None:
    store.add([entry([(3, 3)] * 4, kind="math"), entry([(2, 3)] * 4, kind="math")])
    verdicts = {
        ("prose", "code"): "clear", ("prose", "math"): "may be chance", ("1", "4"): "too few turns to tell from chance",
    }  # fmt: skip
    for (first, second), verdict in verdicts.items():
        assert f"% ({verdict})\nB against A: tok/s" in shown(compare(store, ALL, first, second).view(), 80)
