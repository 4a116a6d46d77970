"""The training pass of the autoregressive drafter: drafts unrolled as at inference, all blocks of a row at once.

Each draft reads the feature the drafter itself gave for the draft before ("training-time test", arXiv 2503.01840), and
the token that was right there. Text before a block is seen through the same mask as in `RowPass`.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from backends.attention import Rule
from backends.eagle import EagleDrafter
from backends.layers import Rotary
from dflash_cli.train.blocks import Row
from dflash_cli.train.row_attention import ByDocument, Pair, masked


class ChainAttention:
    """The `attend` of one draft after the other: each call is the next slot of all blocks."""

    def __init__(self, rule: Rule, row: Row, dtype: torch.dtype, context: Pair) -> None:
        """`context`: K and V [1, K, S, D] of the text."""
        whole = ByDocument([rule], row, dtype)
        self.block, self.masks = row.inputs.shape[1], whole.masks[rule]
        self.lengths, self.counts = (list(each) for each in zip(*row.sizes, strict=True))
        self.context = [each.split(self.lengths, 2) for each in context]
        self.own: list[Pair] = []

    def __call__(self, _layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q [1, H, A, D], k and v [1, K, A, D] of a slot -> [1, H, A, D]."""
        self.own.append((k, v))
        so_far = [torch.stack(each, 3).split(self.counts, 2) for each in zip(*self.own, strict=True)]
        parts = zip(
            q.split(self.counts, 2), *so_far, *self.context, map(self._mask, self.masks, self.lengths), strict=True
        )
        return torch.cat(
            [
                masked(q, torch.cat((text_k, k.flatten(2, 3)), 2), torch.cat((text_v, v.flatten(2, 3)), 2), mask)
                for q, k, v, text_k, text_v, mask in parts
            ],
            2,
        )

    def _mask(self, whole: Tensor, length: int) -> Tensor:
        """A document's mask [1, 1, A * b, S + A * b], cut to this slot's rows and to the text and slots so far."""
        count = len(self.own)
        text, slots = whole.unflatten(2, (-1, self.block))[:, :, :, count - 1].tensor_split([length], -1)
        return torch.cat((text, slots.unflatten(-1, (-1, self.block))[..., :count].flatten(-2)), -1)


class ChainPass(nn.Module):
    """As `RowPass`: what a row holds in, hidden states of the slots out."""

    def __init__(self, drafter: EagleDrafter, rotary: Rotary) -> None:
        super().__init__()
        self.drafter, self.rotary = drafter, rotary

    def ids(self, row: Row) -> Tensor:
        """The token ids whose embeddings it reads: the text's, then those of the blocks."""
        return torch.cat((row.ids, row.inputs.flatten()))

    def forward(self, x: Tensor, taps: Tensor, row: Row) -> Tensor:
        """x [S + A * b, C] embedded, taps [S, n * C] -> normed hidden states that slots 1 to b - 1 are read from,
        [A, b - 1, C]."""
        drafter = self.drafter
        text, drafts = x.split([len(row.ids), row.inputs.numel()])
        drafts = drafts.unflatten(0, row.inputs.shape)
        # The feature of the row before; a document's first row has none.
        before = F.pad(drafter.features(taps[None])[:, :-1], (0, 0, 1, 0)) * (row.positions > 0)[:, None]
        context = drafter.context_kv(text[None], before, *self.rotary.at(row.positions[None]))
        attend = ChainAttention(drafter.rules[0], row, x.dtype, context)
        feature, hidden = before[:, row.anchor_rows], []
        for slot in range(row.inputs.shape[1] - 1):
            around = self.rotary.at((row.anchors + slot)[None])
            feature = drafter.step(drafts[None, :, slot], feature, *around, attend)
            hidden.append(drafter.norm(feature)[0])
        return torch.stack(hidden, 1)
