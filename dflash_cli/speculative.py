"""The decoder: one loop for plain and speculative decoding, greedy and sampled, one prompt or many."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from backends.base import Clock, drafts_and_chances, likeliest, likeliest_drafts, on_device
from dflash_cli.errors import DFlashError, UsageError
from dflash_cli.events import BlockDrafted, BlockVerified, Event, Finished, FinishReason, Prefilled
from dflash_cli.request import Answer, Request, Resident
from dflash_cli.sampling import count_accepted

if TYPE_CHECKING:
    from backends.base import Backend
    from dflash_cli.depth import Depth


def _possible_blocks(trained: int) -> str:
    if trained == 1:
        return "there is no drafter, only blocks of 1; --draft NAME, or /draft NAME in a chat, loads one"
    return f"the drafter was trained on blocks of {trained}; expected 1 to {trained}"


class Decoder:
    """Turns prompts into events over a backend, and keeps what the cache holds from one prompt to the next."""

    def __init__(
        self,
        backend: Backend,
        width: int | None = None,
        depth: Callable[[int], Depth] | None = None,
        resident: list[Resident] | None = None,
    ) -> None:
        """`width`: ids a verify pass takes, anchor included; 1 decodes plainly.

        None: as many as `depth` (see `adaptive.Adaptive`) finds best for each block, without it those the drafter was
        trained for. `resident`: what the cache of each row holds already.
        """
        if width is not None and not 1 <= width <= backend.block_size:
            raise UsageError(f"block size {width} is not possible: {_possible_blocks(backend.block_size)}")
        self.backend = backend
        self.width = width or backend.block_size
        """The widest that a pass gets."""
        self.clock = Clock(backend.device)
        # To read the drafts before they are verified would cost another synchronisation on any other device.
        self.tells_early = backend.device.type == "cpu"
        self.resident = [Resident() for _ in range(backend.batch_size)] if resident is None else resident
        self._make_depth = depth
        self.depth: Depth | None = None
        if depth is not None and width is None and backend.block_size > 1:
            start = min(max(each.length for each in self.resident), backend.max_len - 1)
            self.depth = depth(start)
            for each in self.resident:
                each.length = min(each.length, start)

    def with_width(self, width: int | None) -> Decoder:
        """The same backend and cache at another width; what the cache holds stays known to both."""
        return Decoder(self.backend, width, self._make_depth, self.resident)

    @property
    def block_in_words(self) -> str:
        """How it decodes."""
        if self.width == 1:
            return "plain decoding"
        return f"blocks of {self.width}" if self.depth is None else f"blocks of up to {self.width}"

    def generate(self, request: Request) -> Iterator[Event]:
        """The events of one answer: Prefilled, then BlockDrafted and BlockVerified a block, then Finished.

        Raises DFlashError for an empty prompt or one that does not fit. May be closed or interrupted anywhere.
        """
        for _, event in self.generate_many([request]):
            yield event

    def generate_many(self, requests: Iterable[Request]) -> Iterator[tuple[int, Event]]:
        """(index of the request, event) of many answers; a finished row takes the next request at once."""
        waiting = enumerate(requests)
        free = list(range(self.backend.batch_size))
        running: dict[int, Answer] = {}
        while True:
            while free and (entry := next(waiting, None)) is not None:
                answer = self._admit(free[0], *entry)
                events = list(self._prefill(answer))
                if not isinstance(events[-1], Finished):
                    running[free.pop(0)] = answer
                yield from ((answer.index, event) for event in events)
            if not running:
                return
            for row, event in self._step(running):
                yield running[row].index, event
                if isinstance(event, Finished):
                    del running[row]
                    free.append(row)

    def _admit(self, row: int, index: int, request: Request) -> Answer:
        room = self.backend.max_len - len(request.prompt_ids)
        if not request.prompt_ids:
            raise DFlashError("the prompt is empty: there is nothing to answer")
        if room < 1:
            raise DFlashError(
                f"the prompt has {len(request.prompt_ids)} tokens and the context holds {self.backend.max_len}, "
                "the answer included; shorten the prompt or pass a larger --context"
            )
        wanted = room if request.max_new_tokens is None else request.max_new_tokens
        if wanted < 1:
            raise UsageError(f"max_new_tokens is {wanted}; expected at least 1")
        return Answer(index, row, request, min(room, wanted))

    def _prefill(self, answer: Answer) -> Iterator[Event]:
        begun = time.perf_counter()
        resident, prompt_ids = self.resident[answer.row], answer.ids.copy()
        reused = resident.length = resident.shared_prefix(prompt_ids)
        ids = on_device(prompt_ids[reused:], self.backend.device)
        logits = self.backend.prefill(ids, reused, answer.row)
        first = answer.choose(logits.unsqueeze(0), prompt_ids[-1:]).tolist()
        self.resident[answer.row] = Resident(answer.ids, len(prompt_ids))
        if self.depth is not None and self.backend.batch_size == 1:
            self.depth.new_turn()
        answer.started = time.perf_counter()
        kept, reason = answer.commit(first)
        yield Prefilled(len(prompt_ids), reused, kept, (answer.started - begun) * 1e3)
        if reason is not None:
            yield self._finish(answer, reason)

    def _step(self, running: dict[int, Answer]) -> Iterator[tuple[int, Event]]:
        """One block of every row: draft, choose, verify, accept, the one host copy, then commit and tell."""
        backend, width = self.backend, self.width if self.depth is None else self.depth.width()
        self._check_undisturbed(running)
        rows = range(backend.batch_size)
        # An idle row computes junk past what it holds, which the next prefill there may still reuse.
        start = [running[row].start if row in running else self.resident[row].length for row in rows]
        anchors = on_device([running[row].ids[-1] if row in running else 0 for row in rows], backend.device)
        marks, drafted = [self.clock.mark()], width > 1
        block, chances = self._block(anchors, start, width, running)
        width = block.shape[1]
        marks.append(self.clock.mark())
        if self.tells_early and width > 1:
            for row, drafts in zip(rows, block[:, 1:].tolist(), strict=True):
                if row in running:
                    yield row, BlockDrafted(start[row], tuple(drafts))
            self._check_undisturbed(running)
        marks.append(self.clock.mark())
        choices = self._choose(backend.verify(block, start), block, running)
        told = torch.cat((block, choices, count_accepted(block, choices).unsqueeze(1)), 1)
        marks.append(self.clock.mark())
        host = told.tolist()
        ms = self.clock.ms(marks[0], marks[1]) if drafted else 0.0, self.clock.ms(marks[2], marks[3])
        done = [(row, *self._commit(answer, start[row], host[row], ms)) for row, answer in running.items()]
        if self.depth is not None:
            self.depth.observe_rows(width, [(event.accepted, event.num_drafted) for _, event, _ in done], *ms, chances)
        for row, event, reason in done:
            if width > 1 and not self.tells_early:
                yield row, BlockDrafted(start[row], tuple(host[row][1:width]))
            yield row, event
            if reason is not None:
                yield row, self._finish(running[row], reason)

    def _block(
        self, anchors: Tensor, start: Sequence[int], width: int, running: dict[int, Answer]
    ) -> tuple[Tensor, list[list[float]]]:
        """anchors [B] -> [B, w] with the drafts that are to be verified after them. An adaptive width is fitted to what
        the drafter thinks of each, where that can be read without delay; its chances, by row at work, come with them.
        """
        block = anchors.unsqueeze(1)
        if width == 1:
            return block, []
        if self.depth is None or not self.tells_early:
            return torch.cat((block, likeliest_drafts(self.backend, anchors, start, width - 1)), 1), []
        drafts, of_rows = drafts_and_chances(self.backend, anchors, start)
        told = of_rows.tolist()
        chances = [told[row] for row in running]
        return torch.cat((block, drafts[:, : self.depth.fitted(chances) - 1]), 1), chances

    def _commit(
        self, answer: Answer, start: int, told: Sequence[int], ms: tuple[float, float]
    ) -> tuple[BlockVerified, FinishReason | None]:
        """Take what a row's verify pass gave; `told`: its block [w], the target's own ids [w], how many were kept."""
        width = len(told) // 2
        own, accepted = told[width:-1], told[-1]
        kept, reason = answer.commit(own[: accepted + 1])
        self.resident[answer.row].length = answer.start
        # A stop inside the accepted drafts ends the count there: the drafts after it were never in question.
        num_drafted = len(kept) if len(kept) <= accepted else width - 1
        return BlockVerified(start, min(accepted, len(kept)), kept, num_drafted, *ms), reason

    def _check_undisturbed(self, running: dict[int, Answer]) -> None:
        if any(self.resident[row].ids is not answer.ids for row, answer in running.items()):
            raise DFlashError("this decoder has begun another answer: an earlier one can no longer be continued")

    def _choose(self, logits: Tensor, block: Tensor, running: dict[int, Answer]) -> Tensor:
        """The target's own ids [B, w]; rows are only told apart where a row's choice is more than an argmax."""
        choices = likeliest(logits)
        for row, answer in running.items():
            params = answer.request.params
            if params.penalises or not params.greedy:
                choices[row] = answer.choose(logits[row], block[row])
        return choices

    def _finish(self, answer: Answer, reason: FinishReason) -> Finished:
        return Finished(reason, (time.perf_counter() - answer.started) * 1e3)
