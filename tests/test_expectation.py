"""When a chat is told that its pair drafts worse than known, and that drafting costs more than it gives."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_cli.expectation import Cost, Setting, acceptance_hint, known_bands, loss_hint, suspects
from dflash_cli.models import PAIRS

QWEN = PAIRS["qwen3-8b"]  # its lowest band begins at 3.8
SMALL = PAIRS["smollm2-135m"]  # at 1.1
PLAIN = Setting()


@pytest.mark.parametrize(
    ("lengths", "told"),
    [
        # mean 3, variance at least 2.8: 3 + 2 * sqrt(2.8 / 20) = 3.748
        ([2, 4] * 10, True),
        ([2, 4] * 9 + [3], False),  # 19 blocks
        # mean 3.1: 3.1 + 0.748 = 3.848
        ([2, 4] * 9 + [4, 4], False),
        # 3.5 + 2 * sqrt(2.8 / 100) = 3.835, and with 400 blocks 3.5 + 0.167 = 3.667
        ([3, 4] * 50, False),
        ([3, 4] * 200, True),
        # mean 3, variance 4: 3 + 2 * sqrt(4 / 20) = 3.894
        ([1, 5] * 10, False),
        ([10] * 100, False),
        ([], False),
    ],
)
def test_only_what_is_clearly_below_every_band_is_told(lengths: list[int], told: bool) -> None:
    assert (acceptance_hint(QWEN, lengths, PLAIN) is not None) is told


WEAK = replace(SMALL, expected=(("math", 2.0, 2.7), ("chat", 1.1, 1.5)))


def test_a_weak_pair_is_given_time() -> None:
    """One block in ten adds a token: 20 without any prove nothing, 40 are just enough, sqrt(0.1 / 40) = 0.05."""
    assert acceptance_hint(WEAK, [1] * 20, PLAIN) is None
    assert acceptance_hint(WEAK, [1] * 39, PLAIN) is None
    assert acceptance_hint(WEAK, [1] * 41, PLAIN) is not None


def test_the_hint_is_one_line_with_figures() -> None:
    hint = acceptance_hint(QWEN, [2, 4] * 10, Setting(thinking_share=0.5, temperature=0.7))
    assert hint == (
        "τ 3.00 over 20 blocks is less than this pair is known for (at least 3.8, for chat). Suspects: thinking, which "
        "the drafter was trained without (50% of the blocks; /think off); sampling at temperature 0.7 "
        "(/set temperature 0); text or a language unlike what the drafter was trained on"
    )


def test_suspects_come_in_order() -> None:
    other = replace(QWEN, target="some.gguf", drafter="mine", expected=())
    setting = Setting(0.2, 1.0, longest=5000, window=4096, precision="float16")
    words = ["thinking", "sampling", "5000 tokens, more than the 4096", "float16", "quantised", "mine", "language"]
    found = list(suspects(other, setting))
    assert len(found) == len(words)
    assert all(word in text for word, text in zip(words, found, strict=True))
    assert list(suspects(QWEN, PLAIN)) == ["text or a language unlike what the drafter was trained on"]
    assert len(list(suspects(replace(QWEN, thinking=None), Setting(thinking_share=1.0)))) == 1
    assert len(list(suspects(QWEN, Setting(longest=4096, window=4096)))) == 1


def test_another_drafter_is_measured_by_the_targets_own() -> None:
    other = replace(QWEN, drafter="mine", expected=())
    assert known_bands(other) == QWEN.expected
    assert "another drafter than the target's own (mine)" in str(acceptance_hint(other, [1] * 20, PLAIN))
    unknown = replace(other, target="nobody/knows")
    assert acceptance_hint(unknown, [1] * 100, PLAIN) is None


@given(st.lists(st.integers(4, 16), min_size=20, max_size=60))
def test_nothing_is_said_where_every_block_is_within_the_band(lengths: list[int]) -> None:
    assert acceptance_hint(QWEN, lengths, PLAIN) is None


@pytest.mark.parametrize(
    ("drafted", "plain", "told"),
    [
        # 30 tokens in 20 blocks of 60 ms: 40 ms a token
        (Cost(1200, 30, 20), Cost(700, 20, 20), True),  # against 35 ms
        (Cost(1200, 30, 20), Cost(780, 20, 20), False),  # against 39 ms: 40 is no more than 1.05 times that
        (Cost(1200, 30, 20), Cost(1000, 20, 20), False),
        (Cost(1140, 30, 19), Cost(200, 20, 20), False),
        (Cost(1200, 30, 20), Cost(190, 19, 19), False),
        (Cost(1200, 30, 20), Cost(0, 20, 20), False),  # nothing was measured
        (Cost(0, 0, 0), Cost(0, 0, 0), False),
    ],
)
def test_loss(drafted: Cost, plain: Cost, told: bool) -> None:
    assert (loss_hint(drafted, plain) is not None) is told


def test_the_loss_is_told_with_both_figures() -> None:
    assert loss_hint(Cost(1200, 30, 20), Cost(700, 20, 20)) == (
        "drafting does not pay here: 40.0 ms a token, plain passes took 35.0 ms; /spec off decodes plainly"
    )
