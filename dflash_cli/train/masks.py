"""Who may see whom in a training row, written once over the drafter's own rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from backends.attention import Rule
from dflash_cli.train.blocks import Row

CONTEXT = -1  # block number of context rows


@dataclass(frozen=True)
class Places:
    """Where rows stand: position, document, block number and that block's anchor. Of one shape."""

    position: Tensor
    document: Tensor
    block: Tensor
    anchor: Tensor

    def split(self, sizes: Sequence[int]) -> list[Places]:
        """In parts of these sizes."""
        return [Places(*part) for part in zip(*(each.split(list(sizes)) for each in vars(self).values()), strict=True)]


def context_places(row: Row) -> Places:
    """The context's S rows."""
    nowhere = torch.full_like(row.positions, CONTEXT)
    return Places(row.positions, row.document, nowhere, nowhere)


def block_places(row: Row) -> Places:
    """The blocks' A * b rows."""
    count, block = row.inputs.shape
    slots = torch.arange(block, device=row.anchors.device)
    numbers = torch.arange(count, device=row.anchors.device)
    position = (row.anchors[:, None] + slots).flatten()
    document, block_number, anchor = (each.repeat_interleave(block) for each in (row.owner, numbers, row.anchors))
    return Places(position, document, block_number, anchor)


def sees(rule: Rule, q: Places, kv: Places, block: int) -> Tensor:
    """Whether a slot of a block sees a row: its own document's context before its anchor, and its own block."""
    context = (kv.block == CONTEXT) & (kv.document == q.document) & (kv.position < q.anchor)
    return (context | (kv.block == q.block)) & rule.visible(q.position, kv.position, q.anchor + block)


def dense_mask(rule: Rule, q: Places, context: Places, block: int, dtype: torch.dtype) -> Tensor:
    """Blocks' rows q [T] over the context's [S] and themselves -> [1, 1, T, S + T] of 0 and -inf."""
    both = (torch.cat((getattr(context, name), getattr(q, name)))[None, :] for name in vars(q))
    asking = Places(*(getattr(q, name)[:, None] for name in vars(q)))
    visible = sees(rule, asking, Places(*both), block)
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill_(~visible, -torch.inf)[None, None]
