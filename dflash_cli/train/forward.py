"""The training pass of a drafter: the layers of `backends.drafter`, fed a whole row of blocks at once."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.func import functional_call

from backends.drafter import Drafter
from backends.layers import Rotary
from backends.target import Target
from dflash_cli.train.blocks import Row
from dflash_cli.train.masks import block_places, dense_mask


def masked_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """q [1, H, T, D], k and v [1, K, S, D], mask [1, 1, T, S] -> [1, H, T, D], with a gradient."""
    group = q.shape[1] // k.shape[1]
    if group > 1:  # fused kernels take no mask with grouped heads
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    return F.scaled_dot_product_attention(q, k, v, mask)


class RowPass(nn.Module):
    """Block rows and taps in, hidden states of the slots out."""

    def __init__(self, drafter: Drafter, rotary: Rotary) -> None:
        super().__init__()
        self.drafter, self.rotary = drafter, rotary

    def forward(self, x: Tensor, taps: Tensor, row: Row) -> Tensor:
        """x [A * b, C] embedded inputs, taps [S, n * C] -> normed hidden states of slots 1 to b - 1, [A, b - 1, C]."""
        drafter = self.drafter
        feature = drafter.project_context(taps[None])
        around = self.rotary.at(row.positions[None])
        masks = {rule: dense_mask(rule, row, x.dtype) for rule in set(drafter.rules)}
        rules = drafter.rules

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            context_k, context_v = drafter.context_kv(layer, feature, *around)
            return masked_attention(q, torch.cat((context_k, k), 2), torch.cat((context_v, v), 2), masks[rules[layer]])

        hidden = drafter.forward_block(x[None], *self.rotary.at(block_places(row).position[None]), attend)
        slots: Tensor = hidden[0].unflatten(0, row.inputs.shape)[:, 1:]
        return slots


class TrainingForward:
    """Runs `RowPass` in the target's precision over weights that are kept and learned in fp32.

    The weights are rounded inside the graph, so the pass computes what the shipped drafter will, and gradients add up
    in fp32.
    """

    def __init__(self, drafter: Drafter, target: Target, max_len: int) -> None:
        embedding = target.model.embed_tokens.weight
        self.target, self.dtype = target, embedding.dtype
        config = drafter.config
        rotary = Rotary(config.rope, config.head_dim, max_len + config.block_size, self.dtype, embedding.device)
        self.row_pass = RowPass(drafter, rotary)

    def __call__(self, row: Row, taps: Tensor) -> Tensor:
        """taps [S, n * C] of the row's context -> hidden states [A, b - 1, C]."""
        with torch.no_grad():
            x = self.target.embed(row.inputs.flatten())
        rounded = {name: parameter.to(self.dtype) for name, parameter in self.row_pass.named_parameters()}
        hidden: Tensor = functional_call(self.row_pass, rounded, (x, taps, row))
        return hidden


def head_weight(target: Target) -> Tensor:
    """The target's head [V, C] as a plain matrix, also where it was packed for inference."""
    weight = target.lm_head.weight
    if weight.numel():
        return weight.detach()
    if target.config.tie_word_embeddings:
        return target.model.embed_tokens.weight.detach()
    assert target.head.weight is not None
    return target.head.weight.to_dense().view(target.config.vocab_size, -1)
