"""The four events of an answer. Whatever shows, counts or stores an answer reads only these. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FinishReason = Literal["stop", "length", "interrupted"]


@dataclass(frozen=True, slots=True)
class Prefilled:
    """The prompt is in the cache and the target chose the first id of the answer.

    `reused_len` of the `prompt_len` ids were already in the cache. `new_ids` holds the first id, which becomes
    the first anchor; it costs no verify pass, so it is not part of any acceptance length.
    """

    prompt_len: int
    reused_len: int
    new_ids: tuple[int, ...]
    ms: float


@dataclass(frozen=True, slots=True)
class BlockDrafted:
    """The drafter's guesses for the places after the anchor. `start` is the anchor's position."""

    start: int
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BlockVerified:
    """One verify pass: the first `accepted` drafts were kept; `new_ids` are committed.

    `new_ids` is accepted drafts + bonus, cut at a stop or at the length limit: then it is shorter and every id in
    it counts, none after it does. `num_drafted` drafts were verified: none in plain decoding (`draft_ms` is 0 then), or
    where none of a draft seemed worth it.
    """

    start: int
    accepted: int
    new_ids: tuple[int, ...]
    num_drafted: int
    draft_ms: float
    verify_ms: float

    @property
    def has_draft(self) -> bool:
        """Whether anything was drafted, verified or not."""
        return self.num_drafted > 0 or self.draft_ms > 0


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of an answer; `ms` is the time from the first id to here."""

    reason: FinishReason
    ms: float


Event = Prefilled | BlockDrafted | BlockVerified | Finished
