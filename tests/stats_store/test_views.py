"""Views against hand-computed events, and sums that must hold for any."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dflash_cli.stats import Acceptance
from dflash_cli.stats_store.figures import Figures, total
from dflash_cli.stats_store.row import Baseline
from dflash_cli.stats_store.selection import LENGTHS, POSITIONS, SUMS, Selection
from dflash_cli.stats_store.store import StatsStore
from dflash_cli.stats_store.views import GROUPS, blocks_of_turn, by, depth_name, last_turns, overview, turn_of
from tests.stats_store.many import fill
from tests.stats_store.rows import entry

ALL = Selection()


@pytest.fixture
def store(tmp_path: Path) -> StatsStore:
    return StatsStore(tmp_path / "stats.db")


def test_an_empty_store(store: StatsStore) -> None:
    assert overview(store, ALL).as_dict() == {
        "turns": 0, "new_tokens": 0, "blocks": 0, "tau": None, "acceptance_rate": None, "tokens_per_s": None,
        "lengths": {}, "positions": [],
    }  # fmt: skip
    assert all(by(store, ALL, what) == [] for what in GROUPS)
    assert last_turns(store, ALL, 5) == []
    assert turn_of(store, None) is turn_of(store, 1) is None


def test_two_turns_by_hand(store: StatsStore) -> None:
    """Blocks of four: (kept, verified) and a bonus each; 5 ms a block; the first token is in no block."""
    store.add([entry([(2, 3), (0, 3)]), entry([(3, 3), (1, 2), (0, 0)])])
    view = overview(store, ALL)
    assert view.as_dict() == {
        "turns": 2,
        "new_tokens": (1 + 3 + 1) + (1 + 4 + 2 + 1),
        "blocks": 5,
        "tau": round(11 / 5, 3),
        "acceptance_rate": round(6 / 11, 4),
        "tokens_per_s": round(11 / 0.025, 2),
        "lengths": {"1": 2, "2": 1, "3": 1, "4": 1},
        "positions": [
            {"position": 1, "drafted": 4, "tested": 4, "accepted": 3, "survival": 0.75, "conditional": 0.75},
            {"position": 2, "drafted": 4, "tested": 3, "accepted": 2, "survival": 0.5, "conditional": 0.6667},
            {"position": 3, "drafted": 3, "tested": 2, "accepted": 1, "survival": 0.3333, "conditional": 0.5},
        ],
    }
    assert view.figures.time_split == [("draft", 5.0, 0.2), ("verify", 10.0, 0.4), ("other", 10.0, 0.4)]
    assert view.figures.ttft is not None


def test_one_turn(store: StatsStore) -> None:
    store.add([entry([])])
    figures = overview(store, ALL).figures
    assert (figures.turns, figures.new_tokens, figures.tau, figures.tokens_per_s) == (1, 1, None, None)
    assert figures.tau_estimate is figures.speed_estimate is None


def test_groups_by_hand(store: StatsStore) -> None:
    store.add([
        entry(kind="code", prompt=600, temperature=0.7),
        entry(day="2026-02-01", pair="q", backend="flex"),
        entry([(0, 0)] * 4, drafter="", drafter_hash=""),
        entry(drafter="other"), entry(),
    ])  # fmt: skip

    def groups(what: str) -> list[tuple[str, int]]:
        return [(each.name, each.figures.turns) for each in by(store, ALL, what)]

    assert groups("pair") == [("p with d", 2), ("q", 1), ("p, plain", 1), ("p with other", 1)]
    assert groups("backend") == [("eager", 4), ("flex", 1)]
    assert groups("day") == [("2026-01-31", 4), ("2026-02-01", 1)]
    assert groups("temperature") == [("0.0", 4), ("0.7", 1)]
    assert groups("kind") == [("prose", 4), ("code", 1)]
    assert groups("depth") == [("0-511", 4), ("512-1023", 1)]
    assert depth_name(8192) == "8192-16383"
    plain = next(each for each in by(store, ALL, "pair") if each.name == "p, plain").figures
    assert (plain.tau, plain.rate) == (1.0, None)
    assert overview(store, ALL).plain.turns == 1


def test_speed_up_is_against_plain_decoding_of_the_same_place(store: StatsStore) -> None:
    """Plain: 100 tok/s (two measurements of 10 tokens together). Ours: 4 tokens in 10 ms, so 4 times as fast."""
    store.add([entry()], [Baseline(1, "t", "aa", "eager", "cpu", "float32", 4, 30.0),
                          Baseline(2, "t", "aa", "eager", "cpu", "float32", 6, 70.0)])  # fmt: skip
    assert overview(store, ALL).figures.speedup == pytest.approx(4.0)
    # Nothing is known of these, so nothing is said of them, and they do not change what is known.
    others: list[dict[str, Any]] = [
        {"backend": "flex"}, {"target_hash": "zz"}, {"dtype": "bfloat16"}, {"drafter": ""}, {"batch": 8},
    ]  # fmt: skip
    store.add([entry(decode_ms=9e9, **each) for each in others])
    assert overview(store, ALL).figures.speedup == pytest.approx(4.0)
    assert overview(store, Selection(backend="flex")).figures.speedup is None


def test_last_turns_and_one_turn(store: StatsStore) -> None:
    store.add([entry(pair=name) for name in "abc"])
    store.add([entry(pair="d", blocks="[[3,3,2,3,1.0,2.0]]")])
    assert [row["pair"] for row in last_turns(store, ALL, 2)] == ["d", "c"]
    assert [row["pair"] for row in last_turns(store, Selection(last=1), 9)] == ["d"]
    assert [row["pair"] for row in last_turns(store, Selection(pair="a"), 9)] == ["a"]
    newest, first = turn_of(store, None), turn_of(store, 1)
    assert newest is not None
    assert first is not None
    assert (newest["pair"], first["pair"]) == ("d", "a")
    assert first["lengths"] == {"1": 1, "3": 1}
    assert blocks_of_turn(store, 4) == [[3, 3, 2, 3, 1.0, 2.0]]
    assert blocks_of_turn(store, 1) is None


passes = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)).map(lambda x: (min(x), max(x))), max_size=6)
facts = st.fixed_dictionaries({
    "pair": st.sampled_from("pq"), "backend": st.sampled_from(["eager", "flex"]), "drafter": st.sampled_from(["d", ""]),
    "day": st.sampled_from(["2026-01-30", "2026-01-31"]), "kind": st.sampled_from(["code", "prose"]),
    "temperature": st.sampled_from([0.0, 0.7]), "prompt": st.sampled_from([1, 600, 2000]),
})  # fmt: skip


@settings(max_examples=40)
@given(st.lists(st.tuples(passes, facts), max_size=12), st.integers(1, 12))
def test_sums_over_groups_are_the_totals(turns: list[tuple[Any, dict[str, Any]]], last: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = StatsStore(Path(folder) / "stats.db")
        entries = [entry(each, **more) for each, more in turns]
        store.add(entries)
        view = overview(store, ALL)
        rows = [each.row for each in entries]
        assert view.figures.committed == sum(row.committed for row in rows)
        assert view.figures.new_tokens == sum(row.new_tokens for row in rows)
        assert view.figures.decode_ms == pytest.approx(sum(row.decode_ms for row in rows))
        # τ · blocks = the new tokens, less the first of each answer, which no block has made.
        assert (view.figures.tau or 0) * view.figures.passes == pytest.approx(view.figures.new_tokens - len(rows))
        assert sum(length * blocks for length, blocks in view.lengths.items()) == view.figures.committed
        assert sum(view.lengths.values()) == view.figures.passes
        assert sum(each.accepted for each in view.positions) == view.figures.accepted
        assert sum(each.drafted for each in view.positions) == view.figures.drafted
        for what in GROUPS:
            together = total([each.figures for each in by(store, ALL, what)])
            assert together.turns == view.figures.turns
            assert together.committed_passes == view.figures.committed_passes
            assert together.ms_ms == pytest.approx(view.figures.ms_ms)
            assert together.other_ms == pytest.approx(view.figures.other_ms)
        newest = overview(store, Selection(last=last))
        assert newest.figures.committed == sum(row.committed for row in rows[-last:])
        assert sum(each.drafted for each in newest.positions) == newest.figures.drafted
        store.close()


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=2, max_size=8))
def test_the_error_of_a_ratio(pairs: list[tuple[int, int]]) -> None:
    """Against its definition: residuals of each answer from the common ratio."""
    above, below = sum(a for a, _ in pairs), sum(b for _, b in pairs)
    figures = Figures(
        turns=len(pairs), committed=above, passes=below, committed_committed=sum(a * a for a, _ in pairs),
        committed_passes=sum(a * b for a, b in pairs), passes_passes=sum(b * b for _, b in pairs),
    )  # fmt: skip
    ratio = above / below
    variance = sum((a - ratio * b) ** 2 for a, b in pairs) * len(pairs) / (len(pairs) - 1) / below**2
    assert figures.tau == Acceptance(above, below, 0, 0).tau == ratio
    assert figures.tau_estimate is not None
    assert figures.tau_estimate.error == pytest.approx(variance**0.5 / ratio, abs=1e-6)


def test_sums_are_used_where_they_will_do() -> None:
    for what in (SUMS, LENGTHS, POSITIONS):
        assert "turn" not in Selection(since="2026-01-01", pair="p", backend="b").source(what)[0]
    assert "turn" not in Selection(where=(("kind", "code"), ("version", "1"))).source(SUMS)[0]


def test_a_million_turns(store: StatsStore) -> None:
    fill(store, 1_000_000)
    begun = time.perf_counter()
    view = overview(store, ALL)
    pairs = by(store, ALL, "pair")
    seconds = time.perf_counter() - begun
    assert (view.figures.turns, view.figures.passes, sum(view.lengths.values())) == (10**6, 2 * 10**6, 2 * 10**6)
    assert sum(each.figures.turns for each in pairs) == 10**6
    assert seconds < 5  # a busy machine takes longer than the second it needs at most
    begun = time.perf_counter()
    assert len(last_turns(store, ALL, 20)) == 20
    assert overview(store, Selection(last=100)).figures.turns == 100
    assert time.perf_counter() - begun < 5
