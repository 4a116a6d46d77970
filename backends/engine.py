"""Prefill, draft and verify, written once over an attention function; a backend adds at most a wrapper."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor

from backends import Choice
from backends.attention import AttentionFunction, CachedAttention
from backends.drafter import Drafter, Tools
from backends.kv_cache import Span, StaticCache
from backends.layers import Rotary, RunLayers, run_layers
from backends.target import Target

CONTEXT_ROWS = 32  # rows of plain decoding whose context is written at once: one by one it costs far more
PREFILL_CHUNK = 512  # rows a prefill pass takes at once: bounds its memory and the wait for Ctrl-C


class Engine:
    """A pair with its caches. See `backends.base.Backend` for the contract."""

    widths: tuple[int, ...] | None = None
    recompiles = 0

    def __init__(
        self,
        target: Target,
        drafter: Drafter | None,
        attention: AttentionFunction,
        *,
        name: str,
        max_len: int,
        batch_size: int = 1,
        before: Engine | None = None,
    ) -> None:
        """Caches for `batch_size` rows of `max_len` + one block; weights decide device and dtype.

        `before`: an engine of the same target, sizes and dtype that is not used any more: its caches are taken over,
        the drafter's where its weights are the same.
        """
        self.name, self.max_len, self.batch_size = name, max_len, batch_size
        self.choice = Choice(name, "as asked")
        self.target, self.drafter, self.attention = target, drafter, attention
        self.block_size = drafter.config.block_size if drafter is not None else 1
        self.taps = drafter.config.target_layer_ids if drafter is not None else ()
        embedding = target.model.embed_tokens.weight
        self.device, self.dtype, self.quantize = embedding.device, embedding.dtype, target.quantize
        self.num_rows = max_len + self.block_size  # a block may start at the last place and be cut there
        if before is not None and (before.target, before.max_len, before.batch_size) != (target, max_len, batch_size):
            before = None
        self.target_cache: StaticCache = self._cache(target, before.target_cache if before else None)
        self.target_rope = self._rope(target)
        self.took_over = before is not None
        head = None if drafter is None else drafter.head
        self.draft_ids = None if head is None else head.ids
        self.read_out: Callable[[Tensor], Tensor] = head or target.read_out
        self.drafter_cache: StaticCache | None = None
        if drafter is not None:
            known = None
            if before is not None and drafter.shares_weights(before.drafter):
                before.write_waiting_context()
                known = before.drafter_cache
            self.drafter_cache = self._cache(drafter, known)
            self.drafter_rope = self._rope(drafter)
            self.tools = Tools(
                target.embed, self.read_out, self.draft_ids, self.drafter_cache, self.drafter_rope, attention
            )
            self.took_over = known is not None
        # On a GPU a recorded pass may overwrite its taps, and there the weights that are saved are few beside the rest.
        self._defers = self.device.type == "cpu" and batch_size == 1
        self._waiting: list[tuple[int, Tensor, Tensor]] = []
        """(position, ids [1, 1], taps [1, 1, n*C]) of rows, one after the other, whose context is not written yet."""

    def _cache(self, model: Target | Drafter, before: StaticCache | None) -> StaticCache:
        config = model.config
        shape = (self.batch_size, config.num_kv_heads, self.num_rows, config.head_dim)
        if before is not None:
            return before.resized(shape)
        feature_size = model.feature_size if isinstance(model, Drafter) else 0
        return StaticCache(shape, config.num_layers, self.dtype, self.device, feature_size)

    def _rope(self, model: Target | Drafter) -> Rotary:
        return Rotary(model.config.rope, model.config.head_dim, self.num_rows, self.dtype, self.device)

    def warm_up(self, progress: Callable[[int, int], None] = lambda _done, _total: None) -> None:
        """Nothing to prepare: every shape runs at once."""
        progress(0, 0)

    @torch.inference_mode()
    def prefill(self, ids: Tensor, start: int, row: int = 0) -> Tensor:
        """ids [n] -> logits [V] after the last id. In chunks; only the last row is read out."""
        for offset in range(0, ids.shape[0], PREFILL_CHUNK):
            chunk = ids[offset : offset + PREFILL_CHUNK].unsqueeze(0)
            hidden = self._target_pass(chunk, self._span([start + offset], chunk.shape[1], row))
        return self.target.logits(hidden[:, -1:])[0, 0]

    @torch.inference_mode()
    def draft(self, anchors: Tensor, start: Sequence[int]) -> Tensor:
        """anchors [B] -> logits [B, b-1, N]. The block's K/V rows are junk afterwards."""
        return self._draft_pass(anchors, self._span(self._places_seen(start), self.block_size))

    @torch.inference_mode()
    def verify(self, ids: Tensor, start: Sequence[int]) -> Tensor:
        """ids [B, w] -> logits [B, w, V]."""
        return self._verify_pass(ids, self._span(start, ids.shape[1]))

    @contextmanager
    def rows_kept(self, first: int, last: int) -> Iterator[None]:
        """Whatever runs inside, cache rows first..last-1 are afterwards what they were."""
        self.write_waiting_context()
        with ExitStack() as stack:
            for cache in (self.target_cache, self.drafter_cache):
                if cache is not None:
                    stack.enter_context(cache.kept(first, last))
            stack.callback(self.write_waiting_context)
            yield

    def _span(self, start: Sequence[int], num_rows: int, row: int = 0) -> Span:
        length = self.num_rows if self.attention.whole_cache else None
        return Span(start, num_rows, self.device, row, length)

    def _draft_pass(self, anchors: Tensor, span: Span, run: RunLayers = run_layers) -> Tensor:
        assert self.drafter is not None
        self.write_waiting_context()
        return self.drafter.draft(anchors, span, self.tools, run)

    def _places_seen(self, start: Sequence[int]) -> Sequence[int]:
        """To a drafter without context every place is the first: nothing before it is written, or read."""
        return start if self.taps else [0] * len(start)

    def _verify_pass(self, ids: Tensor, span: Span, run: RunLayers = run_layers) -> Tensor:
        return self.target.logits(self._target_pass(ids, span, run))

    def _target_pass(self, ids: Tensor, span: Span, run: RunLayers = run_layers) -> Tensor:
        """ids [B, T] -> hidden states [B, T, C]; also writes the drafter's context K/V of these rows from the taps.

        Rows of rejected drafts are written too: the next block starts at most b rows later and overwrites them all.
        """
        group = self.target.config.num_heads // self.target.config.num_kv_heads
        attend = CachedAttention(self.attention, self.target_cache, span, self.target.rules, group)
        hidden, tapped = self.target(ids, *self.target_rope.at(span.positions), attend, self.taps, run)
        if self.drafter is not None and tapped is not None:
            self._write_context(self.drafter, tapped, ids, span)
        return hidden  # type: ignore[no-any-return]

    def _write_context(self, drafter: Drafter, tapped: Tensor, ids: Tensor, span: Span) -> None:
        """Plain decoding does without the drafter for long: its rows wait until there are many, or a draft comes."""
        if not (self._defers and span.num_rows == 1 and span.known_start is not None):
            self.write_waiting_context()
            drafter.write_context(ids, tapped, span, self.tools)
            return
        place = span.known_start[0]
        if self._waiting and self._waiting[-1][0] != place - 1:
            self.write_waiting_context()
        self._waiting.append((place, ids, tapped))
        if len(self._waiting) == CONTEXT_ROWS:
            self.write_waiting_context()

    @torch.inference_mode()
    def write_waiting_context(self) -> None:
        """Bring the drafter's context up to date."""
        if self._waiting:
            assert self.drafter is not None
            span = self._span([self._waiting[0][0]], len(self._waiting))
            _, ids, tapped = zip(*self._waiting, strict=True)
            self.drafter.write_context(torch.cat(ids, 1), torch.cat(tapped, 1), span, self.tools)
            self._waiting.clear()  # last: where an interrupt comes, rows are written twice rather than never
