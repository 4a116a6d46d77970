"""Prefill, draft and verify, written once over an attention function; a backend adds at most a wrapper."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from backends.attention import AttentionFunction, CachedAttention
from backends.drafter import Drafter
from backends.kv_cache import Span, StaticCache
from backends.layers import Rotary
from backends.target import Target

PREFILL_CHUNK = 512  # rows a prefill pass takes at once: bounds its memory and the wait for Ctrl-C


class Engine:
    """A pair with its caches. See `backends.base.Backend` for the contract of the three calls."""

    def __init__(
        self,
        target: Target,
        drafter: Drafter | None,
        attention: AttentionFunction,
        *,
        name: str,
        max_len: int,
        batch_size: int = 1,
    ) -> None:
        """Allocates caches for `batch_size` rows of `max_len` + one block; weights decide device and dtype."""
        self.name, self.max_len, self.batch_size = name, max_len, batch_size
        self.target, self.drafter, self.attention = target, drafter, attention
        self.block_size = drafter.config.block_size if drafter is not None else 1
        self.taps = drafter.config.target_layer_ids if drafter is not None else ()
        embedding = target.model.embed_tokens.weight
        self.device, self.dtype = embedding.device, embedding.dtype
        num_rows = max_len + self.block_size  # a block may start at the last place and be cut there
        self.target_cache, self.target_rope = self._caches(target, num_rows)
        if drafter is not None:
            self.drafter_cache, self.drafter_rope = self._caches(drafter, num_rows)

    def _caches(self, model: Target | Drafter, num_rows: int) -> tuple[StaticCache, Rotary]:
        config = model.config
        shape = (self.batch_size, config.num_kv_heads, num_rows, config.head_dim)
        cache = StaticCache(shape, config.num_layers, self.dtype, self.device)
        return cache, Rotary(config.rope, config.head_dim, num_rows, self.dtype, self.device)

    @torch.inference_mode()
    def prefill(self, ids: Tensor, start: int, row: int = 0) -> Tensor:
        """ids [n] -> logits [V] after the last id. In chunks; only the last row is read out."""
        for offset in range(0, ids.shape[0], PREFILL_CHUNK):
            chunk = ids[offset : offset + PREFILL_CHUNK].unsqueeze(0)
            hidden = self._target_pass(chunk, Span([start + offset], chunk.shape[1], self.device, row))
        return self.target.logits(hidden[:, -1:])[0, 0]

    @torch.inference_mode()
    def draft(self, anchors: Tensor, start: Sequence[int]) -> Tensor:
        """anchors [B] -> logits [B, b-1, V]. The block's K/V rows are junk afterwards."""
        assert self.drafter is not None
        span = Span(start, self.block_size, self.device)
        attend = self._attend(self.drafter, self.drafter_cache, span)
        x = self.target.embed(self.drafter.block_ids(anchors))
        hidden = self.drafter.forward_block(x, *self.drafter_rope.at(span.positions), attend)
        return self.drafter.scale_logits(self.target.read_out(hidden[:, 1:]))

    @torch.inference_mode()
    def verify(self, ids: Tensor, start: Sequence[int]) -> Tensor:
        """ids [B, w] -> logits [B, w, V]."""
        return self.target.logits(self._target_pass(ids, Span(start, ids.shape[1], self.device)))

    def _target_pass(self, ids: Tensor, span: Span) -> Tensor:
        """ids [B, T] -> hidden states [B, T, C]; also writes the drafter's context K/V of these rows from the taps.

        Rows of rejected drafts are written too: the next block starts at most b rows later and overwrites them all.
        """
        attend = self._attend(self.target, self.target_cache, span)
        hidden, tapped = self.target(ids, *self.target_rope.at(span.positions), attend, self.taps)
        if self.drafter is not None and tapped is not None:
            self._write_context(self.drafter, tapped, span)
        return hidden  # type: ignore[no-any-return]

    def _write_context(self, drafter: Drafter, tapped: Tensor, span: Span) -> None:
        feature = drafter.project_context(tapped)
        cos, sin = self.drafter_rope.at(span.positions)
        for layer in range(drafter.config.num_layers):
            self.drafter_cache.write(layer, span, *drafter.context_kv(layer, feature, cos, sin))

    def _attend(self, model: Target | Drafter, cache: StaticCache, span: Span) -> CachedAttention:
        return CachedAttention(self.attention, cache, span, model.rules, self.dtype)
