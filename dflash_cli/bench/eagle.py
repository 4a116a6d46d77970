"""A drafter of the EAGLE-3 shape (arXiv 2503.01840): one layer that guesses one token after the other."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from backends.attention import AttentionFunction, CachedAttention, Rule, Sdpa
from backends.config import TargetConfig
from backends.kv_cache import FixedSpan, StaticCache
from backends.layers import Attend, Attention, RMSNorm, Rotary, RunLayers, SwiGLU, run_layers
from backends.linears import Projections
from backends.target import Target

DRAFT_VOCAB = 32000  # what published checkpoints of this kind choose from, where the target has more


class EagleLayer(nn.Module):
    """Its only layer: attention reads the token's embedding beside the feature before it, so its input is twice as
    wide; the rest is a layer as the target has it."""

    def __init__(self, config: TargetConfig) -> None:
        super().__init__()
        self.size, eps = config.hidden_size, config.rms_norm_eps
        self.embedding_norm, self.feature_norm = RMSNorm(self.size, eps), RMSNorm(self.size, eps)
        self.self_attn = attention = Attention(config)
        for name in ("q_proj", "k_proj", "v_proj"):
            setattr(attention, name, nn.Linear(2 * self.size, getattr(attention, name).out_features, bias=False))
        attention.qkv = Projections(attention.q_proj, attention.k_proj, attention.v_proj)
        self.mlp_norm, self.mlp = RMSNorm(self.size, eps), SwiGLU(config)

    def forward(self, layer: int, x: Tensor, cos: Tensor, sin: Tensor, attend: Attend) -> Tensor:
        """x [B, T, 2 * C]: embedding and feature -> the next feature [B, T, C]."""
        embedding, feature = x.split(self.size, -1)
        seen = torch.cat((self.embedding_norm(embedding), self.feature_norm(feature)), -1)
        feature = feature + self.self_attn(layer, seen, cos, sin, attend)
        y: Tensor = feature + self.mlp(self.mlp_norm(feature))
        return y


class EagleDrafter(nn.Module):
    """The layer, its norm and its head over the most frequent ids, with `to_target` from its ids to the target's."""

    def __init__(self, config: TargetConfig) -> None:
        super().__init__()
        self.config = config
        self.layer = EagleLayer(config)
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.num_ids = min(DRAFT_VOCAB, config.vocab_size)
        self.lm_head = nn.Linear(config.hidden_size, self.num_ids, bias=False)
        self.head = Projections(self.lm_head)


class EagleDrafting:
    """The drafter with its cache: a chain of guesses, the cheapest way to use it."""

    def __init__(
        self, target: Target, drafter: EagleDrafter, max_len: int, attention: AttentionFunction | None = None,
        run: RunLayers = run_layers,
    ) -> None:  # fmt: skip
        """`run`: how its layer is run, see `backends.layers.RunLayers`."""
        config, weight = drafter.config, target.model.embed_tokens.weight
        self.target, self.drafter, self.run = target, drafter, run
        self.attention = attention or Sdpa()
        shape = (1, config.num_kv_heads, max_len, config.head_dim)
        self.cache = StaticCache(shape, 1, weight.dtype, weight.device)
        self.rope = Rotary(config.rope, config.head_dim, max_len, weight.dtype, weight.device)
        self.to_target = torch.arange(drafter.num_ids, device=weight.device)
        self.feature = torch.zeros(1, 1, config.hidden_size, dtype=weight.dtype, device=weight.device)

    @torch.inference_mode()
    def draft(self, anchors: Tensor, start: Tensor, count: int, length: int) -> Tensor:
        """anchors [1] at `start` [1] -> `count` guesses [1, count], reading `length` cache rows each time."""
        ids, feature, guesses = anchors, self.feature, []
        for place in range(count):
            span = FixedSpan(start + place, 1, length)
            attend = CachedAttention(
                self.attention, self.cache, span, [Rule(causal=True)],
                self.drafter.config.num_heads // self.drafter.config.num_kv_heads,
            )  # fmt: skip
            x = torch.cat((self.target.embed(ids.unsqueeze(1)), feature), -1)
            *_, feature = self.run([self.drafter.layer], x, *self.rope.at(span.positions), attend)
            logits = self.drafter.head(self.drafter.norm(feature))[0]
            ids = self.to_target[logits[:, -1].argmax(-1)]
            guesses.append(ids)
        return torch.stack(guesses, 1)
