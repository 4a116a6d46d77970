"""Plain decoding and DFlash as rows of a benchmark."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dflash_cli.bench.peak import PeakMemory
from dflash_cli.bench.sample import Sample
from dflash_cli.bench.subject import DFLASH, PLAIN, Place, Work
from dflash_cli.compare import warm_up
from dflash_cli.events import Finished, Prefilled
from dflash_cli.request import Request
from dflash_cli.stats import AnswerStats

if TYPE_CHECKING:
    from dflash_cli.speculative import Decoder


class Ours:
    """A decoder at work; see `subject.Subject`."""

    def __init__(self, decoder: Decoder, place: Place, work: Work, simulated_tau: float | None = None) -> None:
        self.decoder, self.work, self.simulated_tau = decoder, work, simulated_tau
        self.place = self.baseline = place
        self.name = PLAIN if decoder.width == 1 else DFLASH
        self.block_size: int | None = decoder.width
        self.adaptive = decoder.depth is not None
        self._peak = PeakMemory(decoder.backend.device)

    @property
    def draft_ids(self) -> int | None:
        """How many ids are drafted; None: all there are, or none."""
        ids = self.decoder.backend.draft_ids
        return None if ids is None else len(ids)

    @property
    def recompiles(self) -> int:
        """Graphs its backend had to compile after the warm-up."""
        return self.decoder.backend.recompiles

    def warm_up(self, rows: Sequence[Sequence[int]]) -> None:
        """See Subject."""
        if len(rows) == 1:
            warm_up(self.decoder, self._request(rows[0]))
        else:
            requests = [replace(self._request(ids), max_new_tokens=2 * self.decoder.width) for ids in rows]
            for _ in self.decoder.generate_many(requests):
                pass

    def _request(self, ids: Sequence[int]) -> Request:
        return Request(ids, self.work.params, self.work.max_new_tokens, self.work.stop_ids)

    def answer(self, rows: Sequence[Sequence[int]]) -> Sample:
        """See Subject."""
        for resident in self.decoder.resident:
            resident.length = 0  # every answer pays its prefill, as a peer's does
        self._peak.reset()
        stats = [AnswerStats() for _ in rows]
        all_prefilled = ended = 0.0
        for index, event in self.decoder.generate_many([self._request(ids) for ids in rows]):
            stats[index].add(event)
            if isinstance(event, Prefilled):
                all_prefilled = time.perf_counter()
            elif isinstance(event, Finished):
                ended = time.perf_counter()
        return self._sample(stats, (ended - all_prefilled) * 1e3)

    def _sample(self, stats: list[AnswerStats], decode_ms: float) -> Sample:
        longest = max(stats, key=lambda each: len(each.lengths))  # of the others some steps are not seen
        return Sample(
            ids=tuple(tuple(each.ids) for each in stats),
            prompt_tokens=max(each.prompt_tokens for each in stats),
            ttft_ms=sum(each.prefill_ms for each in stats) / len(stats),
            decode_ms=decode_ms,
            decoded=sum(len(each.ids) - 1 for each in stats),
            peak_bytes=self._peak.bytes(),
            steps=len(longest.lengths),
            drafted_steps=longest.draft_passes,
            draft_ms=longest.draft_ms,
            verify_ms=longest.verify_ms,
            lengths=[length for each in stats for length in each.lengths],
            accepted_each=[count for each in stats for count in each.accepted_each],
            drafted_each=[count for each in stats for count in each.drafted_each],
        )
