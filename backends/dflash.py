"""The DFlash drafter (arXiv 2602.06036, section 4): one copy, for inference and training.

A block is [anchor, mask, ..., mask]. All its slots are queries at once; what it knows of the text comes from the
target's tapped hidden states, fused into one context feature whose K/V every layer holds beside the block's own.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from backends.attention import Rule
from backends.config import DFlashConfig
from backends.drafter import Drafter, Tools
from backends.kv_cache import Span
from backends.layers import Attend, DecoderLayer, RMSNorm, RunLayers, run_layers
from backends.linears import Projections


class DFlashDrafter(Drafter):
    """Draft layers, `fc`, `hidden_norm` and `norm`, named as in the released checkpoints; embedding and head are the
    target's own and frozen, so they are not here. Without context there is nothing to fuse, so only layers and norm."""

    def __init__(self, config: DFlashConfig) -> None:
        super().__init__()
        self.config: DFlashConfig = config
        size = config.hidden_size
        if config.target_context:
            self.fc = nn.Linear(len(config.target_layer_ids) * size, size, bias=False)
            self.hidden_norm = RMSNorm(size, config.rms_norm_eps)
            self.fuse_taps = Projections(self.fc)
        layers = [DecoderLayer(config) for _ in range(config.num_layers)]
        self.layers = nn.ModuleList(layers)
        self.norm = RMSNorm(size, config.rms_norm_eps)
        self.attentions = [layer.self_attn for layer in layers]
        self.context_projections = [Projections(each.k_proj, each.v_proj) for each in self.attentions]

    @property
    def rules(self) -> list[Rule]:
        """The visibility rule of each layer."""
        config = self.config
        return [Rule(config.causal(layer), config.window(layer)) for layer in range(config.num_layers)]

    def block_ids(self, anchors: Tensor) -> Tensor:
        """anchors [B] -> [B, b]: the anchor and b - 1 mask ids."""
        ids = torch.full((anchors.shape[0], self.config.block_size), self.config.mask_token_id, device=anchors.device)
        ids[:, 0] = anchors
        return ids

    def project_context(self, taps: Tensor) -> Tensor:
        """Tapped states [B, T, n * C] -> context feature [B, T, C]: fc, then norm (fact: in this order)."""
        feature: Tensor = self.hidden_norm(self.fuse_taps(taps)[0])
        return feature

    def context_kv(self, layer: int, feature: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """K and V [B, K, T, D] a layer holds for context rows: no input norm, no query, never updated."""
        k, v = self.context_projections[layer](feature)
        return self.attentions[layer].rotated_kv(k, v, cos, sin)

    def forward_block(self, x: Tensor, cos: Tensor, sin: Tensor, attend: Attend, run: RunLayers = run_layers) -> Tensor:
        """Embedded block rows [B, b, C] -> normed hidden states [B, b, C]; slot k speaks of the place anchor + k."""
        *_, x = run(self.layers, x * self.config.input_embedding_scale, cos, sin, attend)
        hidden: Tensor = self.norm(x)
        return hidden

    def write_context(self, ids: Tensor, taps: Tensor, span: Span, tools: Tools) -> None:  # noqa: ARG002
        """See Drafter: K and V of the context feature, for every layer."""
        feature, around = self.project_context(taps), tools.rope.at(span.positions)
        for layer in range(self.config.num_layers):
            tools.cache.write(layer, span, *self.context_kv(layer, feature, *around))

    def draft(self, anchors: Tensor, span: Span, tools: Tools, run: RunLayers = run_layers) -> Tensor:
        """See Drafter: the block at once."""
        x = tools.embed(self.block_ids(anchors))
        hidden = self.forward_block(x, *tools.rope.at(span.positions), tools.attend(self, span), run)
        return self.scale_logits(tools.read_out(hidden[:, 1:]))

    def scale_logits(self, logits: Tensor) -> Tensor:
        """The multiplier and soft cap of drafters that carry them (Gemma-like); the others' logits as they are."""
        config = self.config
        logits = logits * config.output_multiplier if config.output_multiplier != 1.0 else logits
        cap = config.final_logit_softcapping
        return torch.tanh(logits / cap) * cap if cap > 0 else logits
