"""Figures against hand-computed event lists, and sums that must hold for any."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_cli.events import BlockDrafted, BlockVerified, Event, Finished, Prefilled
from dflash_cli.stats import AnswerStats

EVENTS: list[Event] = [
    Prefilled(10, 4, (7,), 50.0),
    BlockDrafted(10, (1, 2, 3)),
    BlockVerified(10, 2, (1, 2, 9), 3, 5.0, 20.0),
    BlockDrafted(13, (4, 5, 6)),
    BlockVerified(13, 0, (8,), 3, 6.0, 22.0),
    BlockDrafted(14, (1, 0, 3)),
    BlockVerified(14, 2, (1, 0), 2, 5.0, 21.0),
    Finished("stop", 100.0),
]


def folded(events: list[Event]) -> AnswerStats:
    stats = AnswerStats()
    for event in events:
        stats.add(event)
    return stats


def test_figures_by_hand() -> None:
    stats = folded(EVENTS)
    assert stats.ids == [7, 1, 2, 9, 8, 1, 0]
    assert stats.acceptance() == {"tau": 2.0, "rate": 0.5, "lengths": [3, 1, 2]}
    timings = stats.timings()
    assert timings.pop("ttft_ms") is not None
    assert timings == {
        "prefill_ms": 50.0,
        "draft_ms": 16.0,
        "verify_ms": 63.0,
        "other_ms": 21.0,
        "decode_s": 0.1,
        "tokens_per_s": 60.0,
    }
    assert stats.reason == "stop"
    assert stats.summary() == "7 tokens · 60.0 tok/s · τ 2.00 · 50% of drafts accepted · reused 4 of 10"


def test_without_drafts_there_is_no_rate() -> None:
    stats = folded([Prefilled(3, 0, (1,), 1.0), BlockVerified(3, 0, (2,), 0, 0.0, 9.0), Finished("length", 10.0)])
    assert stats.acceptance() == {"tau": 1.0, "rate": None, "lengths": [1]}
    assert "τ" not in stats.summary()
    assert "length limit" in stats.summary()


def test_a_draft_none_of_which_was_verified_is_no_plain_decoding() -> None:
    events = [
        Prefilled(3, 0, (1,), 1.0),
        BlockVerified(3, 0, (2,), 0, 4.0, 9.0),
        BlockVerified(4, 0, (2,), 0, 0.0, 9.0),
    ]
    stats = folded([*events, Finished("stop", 30.0)])
    assert (stats.draft_passes, stats.in_vain, stats.drafted, stats.draft_ms) == (1, 1, 0, 4.0)
    assert "no draft was worth verifying" in stats.summary()
    assert folded(EVENTS).draft_passes == 3


def test_an_interrupted_answer_keeps_its_figures() -> None:
    stats = folded(EVENTS[:3])
    assert stats.reason == "interrupted"
    assert stats.decode_ms >= 0
    assert stats.tau == 3
    assert folded([]).acceptance() == {"tau": None, "rate": None, "lengths": []}


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), min_size=1, max_size=40))
def test_tau_times_blocks_is_the_tokens_after_the_first(blocks: list[tuple[int, int]]) -> None:
    events: list[Event] = [Prefilled(1, 0, (1,), 1.0)]
    for accepted, more in blocks:
        events.append(BlockVerified(0, accepted, (5,) * (accepted + 1), accepted + more, 1.0, 1.0))
    stats = folded(events)
    assert stats.tau is not None
    assert stats.tau * len(blocks) == pytest.approx(len(stats.ids) - 1)
    assert stats.rate is None or 0 <= stats.rate <= 1


def test_thinking_and_answer_apart_by_hand() -> None:
    stats = AnswerStats()
    stats.add(EVENTS[0], (True,))
    stats.add(EVENTS[2], (True, True, False))  # a pass belongs where its first id does
    stats.add(EVENTS[4], (False,))
    stats.add(EVENTS[6], (False, False))
    assert (stats.thinking_tokens, stats.thinking_passes) == (3, 1)
    assert (stats.thinking.tau, stats.thinking.rate) == (3.0, 2 / 3)
    assert (stats.answer.tau, stats.answer.rate) == (1.5, 2 / 5)
    assert (stats.tau, stats.rate) == (2.0, 0.5)


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 4)), min_size=1, max_size=8), st.data())
def test_thinking_is_the_beginning(blocks: list[tuple[int, int]], data: st.DataObject) -> None:
    """Wherever in a block it begins, after blanks, and wherever it ends: its passes are the first ones."""
    num_ids = 1 + sum(length for length, _ in blocks)
    begin = data.draw(st.integers(0, num_ids))
    end = data.draw(st.integers(begin, num_ids))
    flags, stats, at = [begin <= i < end for i in range(num_ids)], AnswerStats(), 1
    stats.add(Prefilled(8, 0, (1,), 1.0), flags[:1])
    expected = 0
    for length, drafted in blocks:
        stats.add(BlockVerified(8, min(drafted, length), (1,) * length, drafted, 0, 1.0), flags[at : at + length])
        expected = at + length - 1 if flags[at] else expected
        at += length
    assert stats.thinking_tokens == (end if begin < end else 0)
    assert stats.thinking.tokens == expected
    assert stats.thinking.tokens + stats.answer.tokens == num_ids - 1


def test_pauses_are_not_decoding_time() -> None:
    stats = AnswerStats()
    for event in EVENTS:
        stats.add(event, paused_ms=5.0)
    assert (stats.paused_ms, stats.decode_ms) == (40.0, 60.0)


def test_a_full_context_is_told_from_a_length_limit() -> None:
    events: list[Event] = [Prefilled(8, 0, (1,), 1.0), BlockVerified(8, 0, (2,), 0, 0, 1.0), Finished("length", 2.0)]
    for context, word in ((10, "the context is full"), (11, "cut at the length limit"), (None, "cut at the length")):
        stats = AnswerStats(context=context)
        for event in events:
            stats.add(event)
        assert stats.is_full == (context == 10)
        assert word in stats.summary()
        assert "2 tokens · " in stats.summary()
        assert "plain decoding" in stats.summary()
