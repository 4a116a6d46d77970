"""One answer: what was asked, and how far it is; and what the cache holds of the one before."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from backends.base import on_device
from dflash_cli.events import FinishReason
from dflash_cli.sampling import SamplingParams, choose, penalise, seen_before_slots, uniform


class StopFinder(Protocol):
    """Looks for stop strings in the ids pushed to it (`dflash_cli.stream.TextStream`)."""

    stopped_after: int | None

    def push(self, ids: Sequence[int]) -> str:
        """Take more ids; `stopped_after` then says after how many ids in all a stop string was complete."""


@dataclass(frozen=True)
class Request:
    """One answer to make. `max_new_tokens` None = as many as the context holds. `finder` makes a fresh StopFinder."""

    prompt_ids: Sequence[int]
    params: SamplingParams = field(default_factory=SamplingParams)
    max_new_tokens: int | None = None
    stop_ids: frozenset[int] = frozenset()
    finder: Callable[[], StopFinder] | None = None


@dataclass
class Resident:
    """What a batch row's cache holds: the first `length` of `ids` are there, for target and drafter alike."""

    ids: list[int] = field(default_factory=list)
    length: int = 0

    def shared_prefix(self, prompt_ids: Sequence[int]) -> int:
        """How many leading ids need no prefill; the prompt's last one always does, for its logits."""
        limit = min(self.length, len(prompt_ids) - 1)
        return next((i for i in range(limit) if self.ids[i] != prompt_ids[i]), limit)


class Answer:
    """An answer in the making: a request at work in one batch row."""

    def __init__(self, index: int, row: int, request: Request, limit: int) -> None:
        self.index, self.row, self.request, self.limit = index, row, request, limit
        self.ids = list(request.prompt_ids)
        self.prompt_len = len(self.ids)
        self.seed = secrets.randbits(63) if request.params.seed is None else request.params.seed
        self.finder = request.finder() if request.finder else None
        self.started = 0.0
        self.seen: Tensor | None = None
        self.answered: Tensor | None = None

    @property
    def start(self) -> int:
        """The committed length: where the anchor, the last id, will stand in the cache."""
        return len(self.ids) - 1

    def choose(self, logits: Tensor, block: Sequence[int] | Tensor) -> Tensor:
        """logits [w, V] for the places after block [w] -> the target's own ids [w]."""
        params, first = self.request.params, len(self.ids)
        if params.penalises:
            logits = self._penalise(logits, torch.as_tensor(block, device=logits.device))
        uniforms = [] if params.greedy else [uniform(self.seed, first + k) for k in range(len(logits))]
        return choose(logits, params, uniforms)

    def _penalise(self, logits: Tensor, block: Tensor) -> Tensor:
        if self.seen is None or self.answered is None:
            self.seen = torch.zeros(logits.shape[-1], dtype=torch.bool, device=logits.device)
            self.answered = self.seen.clone()
            self.seen[on_device(self.ids[: self.prompt_len], logits.device)] = True
        answered = on_device(self.ids[self.prompt_len :], logits.device, torch.long)
        self.seen[answered] = True
        self.answered[answered] = True
        seen = seen_before_slots(self.seen, block)
        # Before the first id the block is the prompt's last id, which is not part of the answer.
        own = seen_before_slots(self.answered, block) if len(answered) else self.answered.unsqueeze(0)
        return penalise(logits.float(), self.request.params, seen, own)

    def commit(self, new_ids: Sequence[int]) -> tuple[tuple[int, ...], FinishReason | None]:
        """Take the ids up to the first stop or the limit; nothing past it is kept. A stop beats the limit."""
        room = self.limit - (len(self.ids) - self.prompt_len)
        kept = list(new_ids[:room])
        at = next((i for i, each in enumerate(kept) if each in self.request.stop_ids), None)
        reason: FinishReason | None = "stop" if at is not None else None
        kept = kept if at is None else kept[: at + 1]
        if self.finder is not None:
            before = len(self.ids) - self.prompt_len
            self.finder.push(kept if at is None else kept[:-1])
            if self.finder.stopped_after is not None:
                kept, reason = kept[: self.finder.stopped_after - before], "stop"
        self.ids += kept
        if reason is None and len(self.ids) - self.prompt_len >= self.limit:
            reason = "length"
        return tuple(kept), reason
