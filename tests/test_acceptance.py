"""What blocks tell of the next ones: acceptance by position, and how far a drafter may be believed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_cli.acceptance import AcceptanceByPosition, Trust, expected_tokens


def test_what_was_not_tested_says_nothing() -> None:
    positions = AcceptanceByPosition(4)
    positions.observe([(1, 3)])
    assert positions.tested == [1, 1, 0, 0]
    assert positions.kept == [1, 0, 0, 0]
    positions.observe([(2, 2)])
    assert positions.tested[2:] == [0, 0]


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)).map(lambda pair: (min(pair), max(pair))), max_size=60))
def test_acceptance_is_a_share_and_forgets(blocks: list[tuple[int, int]]) -> None:
    positions = AcceptanceByPosition(7)
    for block in blocks:
        positions.observe([block])
    assert all(0 <= kept <= tested for kept, tested in zip(positions.kept, positions.tested, strict=True))
    assert all(0 < rate < 1 for rate in positions.rates())
    positions.limit(2.0)
    assert max(positions.tested) <= 2 + 1e-9
    for _ in range(40):
        positions.observe([(7, 7)])
    assert min(positions.rates()) > 0.9


def test_expected_tokens() -> None:
    assert expected_tokens([0.5, 0.5, 1.0]) == [1.0, 1.5, 1.75, 2.0]


def test_what_was_not_verified_counts_by_its_chance() -> None:
    chances = [[0.9, 0.8, 0.5, 0.4]]
    positions = AcceptanceByPosition(4)
    positions.observe([(2, 2)], chances, 3)
    assert positions.tested == pytest.approx([1, 1, 1, 0.5])
    assert positions.kept == pytest.approx([1, 1, 0.5, 0.2])
    positions = AcceptanceByPosition(4)
    positions.observe([(1, 2)], chances, 3)  # a draft before was wrong: what comes after was in no question
    assert positions.tested == [1, 1, 0, 0]
    positions = AcceptanceByPosition(4)
    positions.observe([(2, 2)], chances, 5)  # a stop came: what was drafted after it was in no question either
    assert positions.tested == [1, 1, 0, 0]
    positions = AcceptanceByPosition(4)
    positions.observe([(0, 0)], chances, 1)
    assert positions.tested == pytest.approx([1, 0.9, 0.72, 0.36])
    assert positions.kept == pytest.approx([0.9, 0.72, 0.36, 0.144])


def test_probabilities_are_believed_as_far_as_they_were_right() -> None:
    sure = [[0.8] * 4]
    right, wrong, modest = Trust(), Trust(), Trust()
    for block in range(200):
        right.observe([(min(block % 5, 1), 1)], sure)
        wrong.observe([(0, 4)], sure)
        modest.observe([(4, 4)], [[0.1] * 4])
    assert Trust().applied([0.5, 0.25]) == [0.5, 0.25]
    assert right.applied(sure[0])[0] == pytest.approx(0.8, abs=0.05)
    assert wrong.applied(sure[0])[0] < 0.1
    assert modest.applied([0.1, 0.9]) == [pytest.approx(0.9, abs=0.1), 1.0]


def test_what_was_not_tested_tells_nothing_of_trust() -> None:
    trust = Trust()
    trust.observe([(0, 0)], [[0.9] * 4])
    trust.observe([(1, 1)], [[1.0, 0.9, 0.9, 0.9]])
    assert trust.applied([0.5]) == [0.5]
