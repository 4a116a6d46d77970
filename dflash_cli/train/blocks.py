"""Blocks to train on: where their anchors stand, and how several documents share one row.

S context rows, A anchors, b block size. Positions are a token's own in its document, as at inference.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from dflash_cli.train.documents import Document


@dataclass(frozen=True)
class Row:
    """Documents in a row with their blocks: what one training pass computes.

    `ids`, `positions`, `document` [S]: the context. `anchors` [A]: each anchor's position, `owner` [A]: its document.
    `inputs` [A, b]: what the drafter reads. `labels` [A, b - 1]: the tokens at those very places.
    `counts` [A, b - 1]: which slots are learned from. `sizes`: of each document, its context rows and its blocks.
    """

    documents: tuple[Document, ...]
    ids: Tensor
    positions: Tensor
    document: Tensor
    anchors: Tensor
    owner: Tensor
    inputs: Tensor
    labels: Tensor
    counts: Tensor
    sizes: tuple[tuple[int, int], ...]

    def to(self, device: torch.device) -> Row:
        """The same on a device."""
        moved: dict[str, Any] = {name: each.to(device) for name, each in vars(self).items() if isinstance(each, Tensor)}
        return replace(self, **moved)

    @property
    def teachers(self) -> Tensor:
        """[A, b - 1]: the context row whose logits of the target speak of each slot; 0 where a slot has none."""
        steps = torch.arange(self.labels.shape[1], device=self.anchors.device)
        return torch.where(self.counts, self.anchor_rows[:, None] + steps, 0)

    @property
    def anchor_rows(self) -> Tensor:
        """[A]: the context row of each anchor."""
        return torch.searchsorted(self.document, self.owner) + self.anchors

    def without_context(self) -> Row:
        """Its blocks alone, each at the first place of a text."""
        nothing = self.positions[:0]
        sizes = tuple((0, count) for _, count in self.sizes)
        return replace(self, positions=nothing, document=nothing, anchors=torch.zeros_like(self.anchors), sizes=sizes)


def generator(*parts: object) -> torch.Generator:
    """Random numbers that depend on `parts` alone: no state has to be saved to draw them again."""
    digest = hashlib.sha256(" ".join(map(str, parts)).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


def draw_anchors(document: Document, most: int, random: torch.Generator) -> Tensor:
    """Sorted positions of at most `most` anchors: answer tokens that have another answer token after them."""
    places = torch.randperm(document.num_anchors, generator=random)[:most]
    return document.start + places.sort().values


def pack(sizes: Sequence[int], most: int) -> list[list[int]]:
    """Indices grouped into rows of at most `most` in sum, the largest first; a larger one has a row of its own."""
    rows: list[list[int]] = []
    left: list[int] = []
    for index in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        row = next((i for i, room in enumerate(left) if room >= sizes[index]), None)
        if row is None:
            row = len(rows)
            rows.append([])
            left.append(most)
        rows[row].append(index)
        left[row] -= sizes[index]
    return rows


def make_row(documents: Sequence[Document], anchors: Sequence[Tensor], block: int, mask_id: int | None) -> Row:
    """Documents one after the other, with a block at each anchor: the anchor and masks. `mask_id` None: the anchor and
    the tokens after it, for a drafter that reads each draft before the next."""
    lengths = [len(document.ids) for document in documents]
    ids = torch.cat([torch.tensor(document.ids, dtype=torch.long) for document in documents])
    owner = torch.cat([torch.full_like(places, index) for index, places in enumerate(anchors)])
    places = torch.cat(list(anchors))
    ends = torch.tensor(lengths).cumsum(0)
    at = places + (ends - torch.tensor(lengths))[owner]
    slots = at[:, None] + torch.arange(1, block)
    counts = slots < ends[owner, None]
    labels = torch.where(counts, ids[slots.clamp(max=len(ids) - 1)], 0)
    rest = labels if mask_id is None else torch.full_like(labels, mask_id)
    inputs = torch.cat((ids[at, None], rest), 1)
    return Row(
        tuple(documents),
        ids,
        torch.cat([torch.arange(length) for length in lengths]),
        torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths)),
        places,
        owner,
        inputs,
        labels,
        counts,
        tuple(zip(lengths, map(len, anchors), strict=True)),
    )


def reveal(row: Row, randoms: Sequence[torch.Generator]) -> Row:
    """The row with part of each block shown, a share drawn for each block; shown slots are not learned from.

    `randoms`: one of each document, so that nothing depends on what else is in the row.
    """
    width = row.labels.shape[1]
    drawn = [
        torch.rand(blocks, 1 + width, generator=random) for (_, blocks), random in zip(row.sizes, randoms, strict=True)
    ]
    share, draws = torch.cat(drawn).split([1, width], 1)
    shown = (draws < share) & row.counts
    inputs = row.inputs.clone()
    inputs[:, 1:] = torch.where(shown, row.labels, inputs[:, 1:])
    return replace(row, inputs=inputs, counts=row.counts & ~shown)
