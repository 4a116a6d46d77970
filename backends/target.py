"""The target: a lean Qwen3 / Llama decoder with taps. Parameter names are Hugging Face's."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor, nn

from backends.attention import Rule
from backends.config import TargetConfig
from backends.layers import Attend, DecoderLayer, RMSNorm, RunLayers, run_layers
from backends.linears import Projections


class Backbone(nn.Module):
    """Embedding, layers and final norm: what a checkpoint stores under `model.`."""

    def __init__(self, config: TargetConfig) -> None:
        super().__init__()
        # Given its weight, Embedding draws no random numbers, which on the meta device costs a second of imports.
        weight = torch.empty(config.vocab_size, config.hidden_size)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size, _weight=weight)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)


class Target(nn.Module):
    """The model whose text is produced. `forward` gives hidden states and taps, `logits` reads hidden states out."""

    def __init__(self, config: TargetConfig) -> None:
        super().__init__()
        self.config = config
        self.model = Backbone(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        if config.tie_word_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight
        self.head = Projections(self.lm_head)
        self.quantize = "none"
        """How projections and head are kept, one of `backends.QUANTISATIONS`."""

    @property
    def rules(self) -> list[Rule]:
        """The visibility rule of each layer."""
        return [Rule(causal=True)] * self.config.num_layers

    def embed(self, ids: Tensor) -> Tensor:
        """ids [B, T] -> [B, T, C]; also the drafter's input embedding (raw, as stored)."""
        return nn.functional.embedding(ids, self.model.embed_tokens.weight)

    def forward(
        self,
        ids: Tensor,
        cos: Tensor,
        sin: Tensor,
        attend: Attend,
        taps: Collection[int] = (),
        run: RunLayers = run_layers,
    ) -> tuple[Tensor, Tensor | None]:
        """ids [B, T] -> hidden states before the final norm [B, T, C], tapped states [B, T, len(taps) * C] or None.

        Tap i is the residual stream after 0-based layer i (`hidden_states[i + 1]` of Hugging Face), in the order given.
        """
        tapped: dict[int, Tensor] = {}
        for layer, x in enumerate(run(self.model.layers, self.embed(ids), cos, sin, attend)):
            if layer in taps:
                tapped[layer] = x
        return x, torch.cat([tapped[i] for i in taps], -1) if taps else None

    def logits(self, x: Tensor) -> Tensor:
        """Hidden states [B, T, C] -> logits [B, T, V] through the final norm and the head."""
        return self.head(self.model.norm(x))[0]

    def head_weight(self) -> Tensor:
        """The head [V, C] as a plain matrix, also where it was packed for inference."""
        weight = self.lm_head.weight
        if weight.numel():
            return weight.detach()
        if self.config.tie_word_embeddings:
            return self.model.embed_tokens.weight.detach()
        if self.head.quantised is not None:
            return self.head.quantised.dense()
        assert self.head.weight is not None
        return self.head.weight.to_dense().view(self.config.vocab_size, -1)

    def read_out(self, hidden: Tensor) -> Tensor:
        """The drafter's normed hidden states [B, T, C] -> logits [B, T, V] through the same frozen head."""
        return self.head(hidden)[0]
