"""A drafter of the EAGLE-3 kind (arXiv 2503.01840): one layer that guesses one token after the other.

The row of a token holds its embedding beside the feature of the row before it. Of text that feature is made from the
target's taps; of drafts it is what the layer itself gave for the draft before. (Where published code puts a feature
into the row of its own token, positions are one less throughout, which rotary embedding cannot tell.)
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from backends.attention import Rule
from backends.base import likeliest
from backends.config import EagleConfig
from backends.drafter import Drafter, Tools
from backends.kv_cache import Span
from backends.layers import Attend, Attention, RMSNorm, RunLayers, SwiGLU, run_layers
from backends.linears import Projections


class EagleLayer(nn.Module):
    """Its only layer: attention reads embedding and feature side by side, so its input is twice as wide; the rest is
    a Llama layer. Parameter names are those of published checkpoints."""

    def __init__(self, config: EagleConfig) -> None:
        super().__init__()
        size, eps = config.hidden_size, config.rms_norm_eps
        self.size = size
        self.input_layernorm, self.hidden_norm = RMSNorm(size, eps), RMSNorm(size, eps)
        self.self_attn = attention = Attention(config)
        for name in ("q_proj", "k_proj", "v_proj"):
            setattr(attention, name, nn.Linear(2 * size, getattr(attention, name).out_features, bias=False))
        attention.qkv = Projections(attention.q_proj, attention.k_proj, attention.v_proj)
        self.kv = Projections(attention.k_proj, attention.v_proj)
        self.post_attention_layernorm, self.mlp = RMSNorm(size, eps), SwiGLU(config)

    def entrance(self, x: Tensor) -> Tensor:
        """x [B, T, 2 * C] of embedding and feature -> the same with each normed."""
        embedding, feature = x.split(self.size, -1)
        return torch.cat((self.input_layernorm(embedding), self.hidden_norm(feature)), -1)

    def forward(self, layer: int, x: Tensor, cos: Tensor, sin: Tensor, attend: Attend) -> Tensor:
        """x [B, T, 2 * C]: embedding and feature -> the next feature [B, T, C]."""
        feature = x[..., self.size :] + self.self_attn(layer, self.entrance(x), cos, sin, attend)
        y: Tensor = feature + self.mlp(self.post_attention_layernorm(feature))
        return y


class EagleDrafter(Drafter):
    """`fc`, the layer and its norm; embedding and head are the target's own and frozen, so they are not here."""

    is_chain = True

    def __init__(self, config: EagleConfig) -> None:
        super().__init__()
        self.config: EagleConfig = config
        size = self.feature_size = config.hidden_size
        self.fc = nn.Linear(len(config.target_layer_ids) * size, size, bias=False)
        self.midlayer = EagleLayer(config)
        self.norm = RMSNorm(size, config.rms_norm_eps)
        self.fuse_taps = Projections(self.fc)

    @property
    def rules(self) -> list[Rule]:
        """A row sees itself and all before it."""
        return [Rule(causal=True)]

    def features(self, taps: Tensor) -> Tensor:
        """Tapped states [B, T, n * C] -> the feature of each row [B, T, C]."""
        return self.fuse_taps(taps)[0]

    def context_kv(self, embedding: Tensor, before: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """K and V [B, K, T, D] of rows of text: their embeddings [B, T, C] and the features of the rows before."""
        k, v = self.midlayer.kv(self.midlayer.entrance(torch.cat((embedding, before), -1)))
        return self.midlayer.self_attn.rotated_kv(k, v, cos, sin)

    def step(
        self,
        embedding: Tensor,
        before: Tensor,
        cos: Tensor,
        sin: Tensor,
        attend: Attend,
        run: RunLayers = run_layers,
    ) -> Tensor:
        """Embeddings [B, T, C] of one draft each, and the features before -> their features; `norm` makes them ready
        to be read out."""
        *_, feature = run([self.midlayer], torch.cat((embedding, before), -1), cos, sin, attend)
        return feature

    def write_context(self, ids: Tensor, taps: Tensor, span: Span, tools: Tools) -> None:
        """See Drafter: K and V, and the features that later rows begin with."""
        features = self.features(taps)
        before = torch.cat((tools.cache.feature_before(span), features[:, :-1]), 1)
        tools.cache.write(0, span, *self.context_kv(tools.embed(ids), before, *tools.rope.at(span.positions)))
        tools.cache.write_features(span, features)

    def draft(self, anchors: Tensor, span: Span, tools: Tools, run: RunLayers = run_layers) -> Tensor:
        """See Drafter: a chain, each draft the likeliest after the one before."""
        ids, feature, logits = anchors, tools.cache.feature_before(span), []
        for place in range(span.num_rows - 1):
            row = span.part(place)
            around = tools.rope.at(row.positions)
            feature = self.step(tools.embed(ids.unsqueeze(1)), feature, *around, tools.attend(self, row), run)
            logits.append(tools.read_out(self.norm(feature)))
            chosen = likeliest(logits[-1][:, 0])
            ids = chosen if tools.draft_ids is None else tools.draft_ids[chosen]
        return torch.cat(logits, 1)
