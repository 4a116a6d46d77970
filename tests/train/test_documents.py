"""What is held out, and how often the documents of each source are drawn: exactly as weighed, in turns, and the same
whenever asked."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from dflash_cli.train.documents import Mixture, split
from tests.train.lessons import documents

WEIGHTS = st.floats(0.1, 3.5)


@given(st.integers(2, 12), WEIGHTS, WEIGHTS, st.integers(0, 3))
def test_every_epoch_has_what_the_weights_say(count: int, first: float, second: float, seed: int) -> None:
    held = documents(count)
    mixture = Mixture(held, {"s0": first, "s1": second})
    drawn = [mixture.order(seed, epoch) for epoch in range(12)]
    for order in drawn:
        assert len(order) == mixture.size
        sources = Counter(held[index].source for _, index in order)
        for source, weight in (("s0", first), ("s1", second)):
            size = sum(each.source == source for each in held)
            assert sources[source] == max(1, round(weight * size))
    every = [each for order in drawn for each in order]
    assert len(set(every)) == len(every)  # anchors are drawn by these numbers: never the same ones twice
    times = Counter(index for _, index in every)
    for source in ("s0", "s1"):
        found = [times[i] for i, each in enumerate(held) if each.source == source]
        assert max(found) - min(found) <= 1


def test_without_weights_the_order_is_a_shuffle_of_the_documents() -> None:
    """As it always was: runs that began before there were weights go on."""
    expected = list(range(9))
    random.Random("3 2").shuffle(expected)
    assert Mixture(documents(9), {}).order(3, 2) == [(2, index) for index in expected]


def test_an_order_depends_on_seed_and_epoch_alone() -> None:
    mixture, again = Mixture(documents(8), {"s0": 0.4}), Mixture(documents(8), {"s0": 0.4})
    assert mixture.order(1, 5) == again.order(1, 5)
    assert mixture.order(1, 5) != mixture.order(2, 5)
    assert mixture.order(1, 5) != mixture.order(1, 6)


def keys(count: int, *earlier: set[str]) -> list[str]:
    return [document.key for document in split(documents(40), count, earlier)[1]]


def test_what_all_earlier_sittings_held_out_comes_first() -> None:
    everything = keys(4) + [document.key for document in split(documents(40), 4)[0]]
    *_, one, other = everything
    assert not {one, other} & set(keys(4))
    assert keys(4, {one, other}, {one}) == [one, other, *keys(2)]
    assert keys(4, {one}, set(keys(4))) == keys(4, {one, *keys(4)})
    assert keys(1, {one}, {one, other}, {other, one}) in ([one], [other])
