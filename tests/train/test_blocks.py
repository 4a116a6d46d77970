"""Anchors, labels, packing: what a block is asked, and that random numbers depend on their names alone."""

from __future__ import annotations

from array import array

import torch
from hypothesis import given
from hypothesis import strategies as st

from dflash_cli.train.blocks import draw_anchors, generator, make_row, pack, reveal
from dflash_cli.train.documents import Document
from tests.train.lessons import documents

MASK = 271


def test_labels_stand_at_their_own_places() -> None:
    """No shift: slot k is asked for the token at anchor + k; what lies outside the document is not asked."""
    first, second = Document(array("i", range(10, 16)), 2, "a"), Document(array("i", range(20, 24)), 1, "b")
    row = make_row([first, second], [torch.tensor([2, 4]), torch.tensor([1])], 4, MASK)
    assert row.inputs.tolist() == [[12, MASK, MASK, MASK], [14, MASK, MASK, MASK], [21, MASK, MASK, MASK]]
    asked = [labels[counts].tolist() for labels, counts in zip(row.labels, row.counts, strict=True)]
    assert asked == [[13, 14, 15], [15], [22, 23]]
    assert row.ids.tolist() == [*range(10, 16), *range(20, 24)]
    assert row.positions.tolist() == [*range(6), *range(4)]


def test_teachers_are_one_place_earlier_in_the_packed_row() -> None:
    docs = documents(3)
    row = make_row(docs, [torch.tensor([document.start]) for document in docs], 4, MASK)
    begins = [0, len(docs[0].ids), len(docs[0].ids) + len(docs[1].ids)]
    for block, (begin, document) in enumerate(zip(begins, docs, strict=True)):
        assert row.teachers[block].tolist() == [begin + document.start + k for k in range(3)]


def test_anchors_are_answer_tokens_with_a_token_after_them() -> None:
    document = Document(array("i", range(20)), 12, "a")
    assert draw_anchors(document, 99, generator(1)).tolist() == list(range(12, 19))
    drawn = [draw_anchors(document, 3, generator("anchors", 0, epoch, 7)).tolist() for epoch in range(20)]
    assert all(places == sorted(set(places)) and len(places) == 3 for places in drawn)
    assert len({tuple(places) for places in drawn}) > 5  # redrawn each epoch
    assert draw_anchors(document, 3, generator("anchors", 0, 4, 7)).tolist() == drawn[4]


@given(st.lists(st.integers(1, 50), max_size=30), st.integers(10, 60))
def test_packing_keeps_everything_and_the_limit(sizes: list[int], most: int) -> None:
    rows = pack(sizes, most)
    assert sorted(index for row in rows for index in row) == list(range(len(sizes)))
    assert all(len(row) == 1 or sum(sizes[index] for index in row) <= most for row in rows)


def test_revealed_slots_show_the_label_and_are_not_asked() -> None:
    docs = documents(4)
    row = make_row(docs, [draw_anchors(document, 20, generator(2)) for document in docs], 6, MASK)
    shown = reveal(row, [generator("reveal", index) for index in range(len(docs))])
    alone = make_row([docs[2]], [draw_anchors(docs[2], 20, generator(2))], 6, MASK)
    own = row.owner == 2  # what is shown of a document does not depend on what shares its row
    assert torch.equal(reveal(alone, [generator("reveal", 2)]).inputs, shown.inputs[own])
    is_shown = shown.inputs[:, 1:] != MASK
    assert is_shown.any()
    assert torch.equal(shown.counts, row.counts & ~is_shown)
    assert torch.equal(shown.inputs[:, 1:][is_shown], row.labels[is_shown])
    assert torch.equal(shown.inputs[:, 0], row.inputs[:, 0])
