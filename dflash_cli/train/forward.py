"""The training pass of a drafter: the layers of `backends.drafter`, fed a whole row of blocks at once."""

from __future__ import annotations

from collections.abc import Callable, Collection

import torch
from torch import Tensor, nn
from torch.func import functional_call

from backends.attention import Rule
from backends.dflash import DFlashDrafter
from backends.drafter import Drafter
from backends.eagle import EagleDrafter
from backends.layers import Rotary
from backends.target import Target
from dflash_cli.train.blocks import Row
from dflash_cli.train.chain import ChainPass
from dflash_cli.train.masks import block_places
from dflash_cli.train.row_attention import RowAttention, attention_of

MakeAttention = Callable[[Collection[Rule], Row, torch.dtype], RowAttention]


class RowPass(nn.Module):
    """Block rows and taps in, hidden states of the slots out."""

    def __init__(self, drafter: DFlashDrafter, rotary: Rotary, attention: MakeAttention) -> None:
        super().__init__()
        self.drafter, self.rotary, self.attention = drafter, rotary, attention

    def ids(self, row: Row) -> Tensor:
        """The token ids whose embeddings it reads."""
        return row.inputs.flatten()

    def forward(self, x: Tensor, taps: Tensor, row: Row) -> Tensor:
        """x [A * b, C] embedded inputs, taps [S, n * C] -> normed hidden states of slots 1 to b - 1, [A, b - 1, C]."""
        drafter, sees_text = self.drafter, self.drafter.config.target_context
        row = row if sees_text else row.without_context()
        feature = drafter.project_context(taps[None]) if sees_text else None
        around, rules = self.rotary.at(row.positions[None]), drafter.rules
        attention = self.attention(rules, row, x.dtype)

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            nothing = k[:, :, :0], v[:, :, :0]
            context = nothing if feature is None else drafter.context_kv(layer, feature, *around)
            return attention(rules[layer], q, context, (k, v))

        hidden = drafter.forward_block(x[None], *self.rotary.at(block_places(row).position[None]), attend)
        slots: Tensor = hidden[0].unflatten(0, row.inputs.shape)[:, 1:]
        return slots


class TrainingForward:
    """Runs `RowPass` or `ChainPass` in the target's precision over weights that are kept and learned in fp32.

    The weights are rounded inside the graph, so the pass computes what the shipped drafter will, and gradients add up
    in fp32.
    """

    def __init__(
        self,
        drafter: Drafter,
        target: Target,
        max_len: int,
        attention: MakeAttention | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`max_len`: tokens of the longest document; `attention`: by default what suits the device, and `tell` is told
        where that is not the fastest one."""
        embedding = target.model.embed_tokens.weight
        self.target, self.dtype = target, embedding.dtype
        config = drafter.config
        rotary = Rotary(config.rope, config.head_dim, max_len + config.block_size, self.dtype, embedding.device)
        self.row_pass: RowPass | ChainPass
        if isinstance(drafter, EagleDrafter):
            self.row_pass = ChainPass(drafter, rotary)
        else:
            assert isinstance(drafter, DFlashDrafter)
            self.row_pass = RowPass(drafter, rotary, attention or attention_of(drafter, embedding, tell))

    def __call__(self, row: Row, taps: Tensor) -> Tensor:
        """taps [S, n * C] of the row's context -> hidden states [A, b - 1, C]."""
        with torch.no_grad():
            x = self.target.embed(self.row_pass.ids(row))
        rounded = {name: parameter.to(self.dtype) for name, parameter in self.row_pass.named_parameters()}
        hidden: Tensor = functional_call(self.row_pass, rounded, (x, taps, row))
        return hidden
