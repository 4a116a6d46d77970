"""Who may see whom, written once, and the attention functions that apply it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from backends.kv_cache import Span, StaticCache


@dataclass(frozen=True)
class Rule:
    """Visibility inside a pass. `causal`: a row is blind to later rows; `window`: to rows that many positions away."""

    causal: bool
    window: int | None = None

    def visible(self, q: Tensor, kv: Tensor, end: Tensor) -> Tensor:
        """Positions of queries and cache rows, and the first junk row, broadcast together -> bool.

        Target: kv <= q. Drafter: kv < start + b, and on sliding layers |q - kv| < window (reference loader's rule).
        """
        seen = kv <= q if self.causal else kv < end
        if self.window is None:
            return seen
        seen = seen & (q - kv < self.window)
        return seen if self.causal else seen & (kv - q < self.window)


class AttentionFunction(Protocol):
    """What one backend does differently from another: how a rule becomes a mask, and how it is applied."""

    def mask(self, rule: Rule, span: Span, dtype: torch.dtype) -> object:
        """The mask of a pass, built once and used by all layers of the same rule."""

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, mask: object) -> Tensor:
        """q [B, H, T, D], k and v [B, K, S, D] -> [B, H, T, D]."""


CAUSAL = "causal"  # the pass starts an empty cache: torch's own causal kernel, no mask tensor


class Sdpa:
    """torch's scaled_dot_product_attention over the live part of the cache, with a dense additive mask."""

    def mask(self, rule: Rule, span: Span, dtype: torch.dtype) -> Tensor | str | None:
        """None where everything live is visible, CAUSAL for a fresh prefill, else [B, 1, T, S] of 0 and -inf."""
        reach = span.length if rule.window is None else min(rule.window, span.length)
        if span.aligned and reach == span.length:
            if span.num_rows == 1 or not rule.causal:
                return None
            if span.start[0] == 0:
                return CAUSAL
        device = span.positions.device
        end = span.positions[:, -1:].unsqueeze(2) + 1
        visible = rule.visible(span.positions.unsqueeze(2), torch.arange(span.length, device=device), end)
        return torch.zeros(visible.shape, dtype=dtype, device=device).masked_fill_(~visible, -torch.inf).unsqueeze(1)

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, mask: object) -> Tensor:
        dense = mask if isinstance(mask, Tensor) else None
        grouped = q.shape[1] != k.shape[1]
        return F.scaled_dot_product_attention(q, k, v, dense, is_causal=mask == CAUSAL, enable_gqa=grouped)


class CachedAttention:
    """The `attend` of a cached pass: store the new K/V, then look at everything the layer's rule lets a row see."""

    def __init__(
        self, function: AttentionFunction, cache: StaticCache, span: Span, rules: list[Rule], dtype: torch.dtype
    ) -> None:
        self.function, self.cache, self.span = function, cache, span
        masks = {rule: function.mask(rule, span, dtype) for rule in set(rules)}
        self.masks = [masks[rule] for rule in rules]

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        self.cache.write(layer, self.span, k, v)
        return self.function(q, *self.cache.read(layer, self.span), self.masks[layer])
