"""Who may see whom, written once, and the attention functions that apply it."""

from __future__ import annotations

from collections.abc import Sequence
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

    def table(self, positions: Tensor, length: int) -> Tensor:
        """Positions [B, T] of a pass that ends with its last one -> bool [B, T, length] over the cache rows."""
        end = positions[:, -1:].unsqueeze(2) + 1
        seen = self.visible(positions.unsqueeze(2), torch.arange(length, device=positions.device), end)
        return seen.expand(-1, positions.shape[1], -1)


class AttentionFunction(Protocol):
    """What one backend does differently from another: how a rule becomes a mask, and how it is applied."""

    whole_cache: bool
    """Whether it is given all cache rows and skips those that are not live by itself."""

    def mask(self, rule: Rule, span: Span, dtype: torch.dtype, group: int = 1) -> object:
        """The mask of a pass, built once and used by all layers of the same rule. `group`: query heads a KV head."""

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, mask: object) -> Tensor:
        """q [B, H, T, D], k and v [B, K, S, D] -> [B, H, T, D]."""


CAUSAL = "causal"  # the pass starts an empty cache: torch's own causal kernel, no mask tensor
AFTER = "after"  # many rows after what the cache holds: all of that, then the causal kernel for their own
AFTER_ROWS = 64  # from so many on two passes without a mask are faster than one with it


class Sdpa:
    """torch's scaled_dot_product_attention over the live part of the cache, with a dense additive mask."""

    whole_cache = False

    def mask(self, rule: Rule, span: Span, dtype: torch.dtype, group: int = 1) -> Tensor | str | None:
        """None where all is visible, CAUSAL or AFTER for a prefill, else [B, 1, group * T, S], 0 and -inf."""
        reach = span.length if rule.window is None else min(rule.window, span.length)
        if span.aligned and reach == span.length == span.live:
            if span.num_rows == 1 or not rule.causal:
                return None
            if span.start == [0] * span.batch_size:
                return CAUSAL
            if span.num_rows >= AFTER_ROWS and span.positions.device.type == "cpu":
                return AFTER
        hidden = ~rule.table(span.positions, span.length).unsqueeze(1)
        mask = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(hidden, -torch.inf)
        return mask.repeat(1, 1, group, 1) if group > 1 else mask

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, mask: object) -> Tensor:
        group = q.shape[1] // k.shape[1]
        if mask == AFTER:
            return _after(q, k, v, group)
        if mask == CAUSAL or (mask is None and q.shape[2] == 1 and q.device.type == "cpu"):
            return F.scaled_dot_product_attention(q, k, v, is_causal=mask == CAUSAL, enable_gqa=group > 1)
        rows = _as_rows(q, group)
        return _as_heads(F.scaled_dot_product_attention(rows, k, v, mask if isinstance(mask, Tensor) else None), group)


def _as_rows(q: Tensor, group: int) -> Tensor:
    """The query heads of a group as rows of their KV head: fused kernels take no mask with grouped heads."""
    return q.unflatten(1, (-1, group)).flatten(2, 3) if group > 1 else q


def _as_heads(y: Tensor, group: int) -> Tensor:
    """[B, K, group * T, ...] -> [B, H, T, ...]."""
    return y.unflatten(2, (group, -1)).flatten(1, 2) if group > 1 else y


def _after(q: Tensor, k: Tensor, v: Tensor, group: int) -> Tensor:
    """The last T of S rows: what each sees of the rows before all of them and of their own, weighed by their sums."""
    flash, own = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu, q.shape[2]
    before, before_sum = flash(_as_rows(q, group), k[:, :, :-own], v[:, :, :-own])
    among, among_sum = flash(q, k[:, :, -own:], v[:, :, -own:], is_causal=True)
    share = torch.sigmoid(_as_heads(before_sum, group) - among_sum).unsqueeze(-1)
    return torch.lerp(among, _as_heads(before, group), share.to(among.dtype))


class LayerAttention:
    """The `attend` of one layer in a cached pass: store the new K/V, then look at all that its rule lets a row see."""

    def __init__(self, function: AttentionFunction, k: Tensor, v: Tensor, span: Span, mask: object) -> None:
        self.function, self.k, self.v, self.span, self.mask = function, k, v, span, mask

    def __call__(self, _layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        self.span.write(self.k, k)
        self.span.write(self.v, v)
        return self.function(q, self.k, self.v, self.mask)


class CachedAttention:
    """The `attend` of a cached pass, for all its layers."""

    def __init__(
        self, function: AttentionFunction, cache: StaticCache, span: Span, rules: Sequence[Rule], group: int
    ) -> None:
        masks = {rule: function.mask(rule, span, cache.dtype, group) for rule in set(rules)}
        self.layers = [
            LayerAttention(function, *cache.view(layer, span), span, masks[rule]) for layer, rule in enumerate(rules)
        ]

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self.layers[layer](layer, q, k, v)
