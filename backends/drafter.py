"""What the engine asks of a drafter, of whatever kind, and what it lends it."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from torch import Tensor, nn

from backends.attention import AttentionFunction, CachedAttention, Rule
from backends.config import DrafterConfig
from backends.draft_vocabulary import DraftHead
from backends.kv_cache import Span, StaticCache
from backends.layers import Rotary, RunLayers, run_layers


@dataclass(frozen=True)
class Tools:
    """What an engine lends its drafter: the target's embedding and head, and a cache and positions of its own.

    `draft_ids` [N]: the token id of each logit that `read_out` gives; None: all ids in their order.
    """

    embed: Callable[[Tensor], Tensor]
    read_out: Callable[[Tensor], Tensor]
    draft_ids: Tensor | None
    cache: StaticCache
    rope: Rotary
    attention: AttentionFunction

    def attend(self, drafter: Drafter, span: Span) -> CachedAttention:
        """The drafter's `attend` in a pass over the cache."""
        group = drafter.config.num_heads // drafter.config.num_kv_heads
        return CachedAttention(self.attention, self.cache, span, drafter.rules, group)


class Drafter(nn.Module, ABC):
    """What guesses the next tokens, of whatever kind: the engine knows no more of it than this."""

    config: DrafterConfig
    head: DraftHead | None = None
    """Reads out what is drafted; None: the target's own head, so all of the vocabulary."""
    feature_size = 0
    """Channels it keeps of each row of the text besides K and V."""
    is_chain = False
    """Whether each draft depends on which one came before it."""

    @property
    @abstractmethod
    def rules(self) -> list[Rule]:
        """The visibility rule of each layer."""

    @abstractmethod
    def write_context(self, ids: Tensor, taps: Tensor, span: Span, tools: Tools) -> None:
        """Cache what it is to know of rows of text: ids [B, T] and the target's tapped states [B, T, n * C]."""

    @abstractmethod
    def draft(self, anchors: Tensor, span: Span, tools: Tools, run: RunLayers = run_layers) -> Tensor:
        """anchors [B] at the first row of a span of b rows -> logits [B, b - 1, N]; the rows are junk afterwards."""

    def scale_logits(self, logits: Tensor) -> Tensor:
        """What becomes of the head's logits."""
        return logits

    def with_head(self, head: DraftHead | None) -> Self:
        """The same weights, not copied, drafting what `head` knows."""
        other = copy.copy(self)
        other.head = head
        return other

    def shares_weights(self, other: Drafter | None) -> bool:
        """Whether `other` is this one, perhaps with another head: what both write to a cache is the same."""
        return other is not None and other._modules is self._modules
