"""The figures of an answer: a fold of its events. Definitions are here and nowhere else. Imports no torch."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from dflash_cli.events import BlockVerified, Event, Finished, FinishReason, Prefilled


@dataclass(frozen=True)
class Acceptance:
    """Sums over verify passes: ids committed, passes, drafts kept, drafts verified."""

    tokens: int
    passes: int
    accepted: int
    drafted: int

    @property
    def tau(self) -> float | None:
        """Mean acceptance length in tokens a verify pass; None before the first pass."""
        return self.tokens / self.passes if self.passes else None

    @property
    def rate(self) -> float | None:
        """Accepted drafts / drafts verified; None where nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else None


@dataclass(frozen=True)
class Position:
    """Sums over verify passes for one place of a block: drafts verified there, those that had every draft before them
    kept (tested), and those kept."""

    drafted: int
    tested: int
    accepted: int

    @property
    def survival(self) -> float | None:
        """Passes that kept their drafts up to and with this place / passes that verified one here."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def conditional(self) -> float | None:
        """Drafts kept here / drafts verified here with every draft before them kept."""
        return self.accepted / self.tested if self.tested else None


def speed(later: int, ms: float) -> float | None:
    """Tokens a second: tokens after the first over the time since the first; None before a second token."""
    return later / ms * 1e3 if later > 0 and ms > 0 else None


@dataclass
class AnswerStats:
    """What is known of an answer so far; made when the request is, fed each event.

    Acceptance length of a verify pass = ids it committed (accepted drafts + bonus, less what a stop cut off).
    `tau` = its mean. `rate` = accepted drafts / drafts verified. The first id comes from the prefill and is in
    `ids` but in no acceptance length. Of each pass `accepted_each` and `drafted_each` hold the drafts kept and
    verified; `in_vain` counts passes before which there was a draft and none of it was verified. Thinking comes
    first: the first `thinking_tokens` ids and `thinking_passes` passes are its own (a pass belongs where its first id
    does). `context` is how many tokens prompt and answer may have together.
    """

    begun: float = field(default_factory=time.perf_counter)
    prompt_tokens: int = 0
    reused_tokens: int = 0
    ids: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    accepted_each: list[int] = field(default_factory=list)
    drafted_each: list[int] = field(default_factory=list)
    thinking_tokens: int = 0
    thinking_passes: int = 0
    context: int | None = None
    ttft_ms: float = 0.0
    prefill_ms: float = 0.0
    in_vain: int = 0
    draft_ms: float = 0.0
    verify_ms: float = 0.0
    decode_ms: float = 0.0
    paused_ms: float = 0.0
    """Time that was waited on purpose; `decode_ms` is without it."""
    reason: FinishReason = "interrupted"
    first_at: float = 0.0

    def add(self, event: Event, thinking: Sequence[bool] = (), paused_ms: float = 0.0) -> None:
        """Take one more event. `thinking`: for each new id, whether it is thinking; none of them is by default.

        `paused_ms`: how long was waited on purpose since the event before.
        """
        self.paused_ms += paused_ms
        if isinstance(event, Prefilled):
            self.first_at = time.perf_counter()
            self.prompt_tokens, self.reused_tokens = event.prompt_len, event.reused_len
            self.ttft_ms, self.prefill_ms = (self.first_at - self.begun) * 1e3, event.ms
            self.ids += event.new_ids
            self._count_thinking(thinking)
        elif isinstance(event, BlockVerified):
            self._add_pass(event, thinking)
        elif isinstance(event, Finished):
            self.reason, self.decode_ms = event.reason, max(0.0, event.ms - self.paused_ms)

    def _add_pass(self, event: BlockVerified, thinking: Sequence[bool]) -> None:
        self.ids += event.new_ids
        self.lengths.append(len(event.new_ids))
        self.accepted_each.append(event.accepted)
        self.drafted_each.append(event.num_drafted)
        self.in_vain += event.has_draft and not event.num_drafted
        self._count_thinking(thinking)
        if thinking and thinking[0]:
            self.thinking_passes = len(self.lengths)
        self.draft_ms += event.draft_ms
        self.verify_ms += event.verify_ms
        # Until Finished comes this is what an interrupted answer is measured by.
        self.decode_ms = (time.perf_counter() - self.first_at) * 1e3 - self.paused_ms

    def _count_thinking(self, flags: Sequence[bool]) -> None:
        """`flags` of the last ids. Blanks before the tag that opens the thinking go with it, for it comes first."""
        if True in flags:
            self.thinking_tokens = len(self.ids) - [*reversed(flags)].index(True)

    @property
    def accepted(self) -> int:
        """Drafts kept."""
        return sum(self.accepted_each)

    @property
    def drafted(self) -> int:
        """Drafts verified."""
        return sum(self.drafted_each)

    @property
    def draft_passes(self) -> int:
        """Passes that came after a draft, verified or not."""
        return sum(drafted > 0 for drafted in self.drafted_each) + self.in_vain

    @property
    def all(self) -> Acceptance:
        """Of all passes."""
        return self._sums(slice(None))

    @property
    def tau(self) -> float | None:
        """See `Acceptance.tau`."""
        return self.all.tau

    @property
    def rate(self) -> float | None:
        """See `Acceptance.rate`."""
        return self.all.rate

    @property
    def thinking(self) -> Acceptance:
        """Of the passes that belong to the thinking."""
        return self._sums(slice(0, self.thinking_passes))

    @property
    def answer(self) -> Acceptance:
        """Of the passes after the thinking."""
        return self._sums(slice(self.thinking_passes, None))

    def _sums(self, part: slice) -> Acceptance:
        lengths = self.lengths[part]
        return Acceptance(sum(lengths), len(lengths), sum(self.accepted_each[part]), sum(self.drafted_each[part]))

    @property
    def is_full(self) -> bool:
        """Whether the answer ended because prompt and answer fill the context."""
        return self.reason == "length" and self.prompt_tokens + len(self.ids) == self.context

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens after the first, over the time since the first; None before a second token."""
        return speed(len(self.ids) - 1, self.decode_ms)

    @property
    def positions(self) -> list[Position]:
        """Of each place of a block, the first draft's first."""
        passes = Counter(zip(self.accepted_each, self.drafted_each, strict=True)).items()
        return [
            Position(
                sum(count for (_, drafted), count in passes if drafted > place),
                sum(count for (accepted, drafted), count in passes if drafted > place and accepted >= place),
                sum(count for (accepted, _), count in passes if accepted > place),
            )
            for place in range(max(self.drafted_each, default=0))
        ]

    @property
    def other_ms(self) -> float:
        """Decoding time that is neither draft nor verify: the loop, and whoever reads the events."""
        return max(0.0, self.decode_ms - self.draft_ms - self.verify_ms)

    def acceptance(self) -> dict[str, object]:
        """The `acceptance` object of `run --json`."""
        return {"tau": rounded(self.tau, 3), "rate": rounded(self.rate, 4), "lengths": self.lengths}

    def timings(self) -> dict[str, float | None]:
        """The `timings` object of `run --json`: milliseconds but for `decode_s` (seconds) and `tokens_per_s`."""
        return {
            "ttft_ms": rounded(self.ttft_ms, 2),
            "prefill_ms": rounded(self.prefill_ms, 2),
            "draft_ms": rounded(self.draft_ms, 2),
            "verify_ms": rounded(self.verify_ms, 2),
            "other_ms": rounded(self.other_ms, 2),
            "decode_s": rounded(self.decode_ms / 1e3, 4),
            "tokens_per_s": rounded(self.tokens_per_s, 2),
        }

    def summary(self) -> str:
        """One line for people: tokens, speed, acceptance, reuse."""
        parts = [counted(len(self.ids), "token")]
        if self.tokens_per_s is not None:
            parts.append(f"{self.tokens_per_s:.1f} tok/s")
        if self.rate is not None and self.tau is not None:
            parts.append(f"τ {self.tau:.2f}")
            parts.append(f"{self.rate:.0%} of drafts accepted")
        elif self.lengths:
            parts.append("no draft was worth verifying" if self.draft_passes else "plain decoding")
        if self.reused_tokens:
            parts.append(f"reused {self.reused_tokens} of {self.prompt_tokens}")
        if self.reason != "stop":
            full = "the context is full" if self.is_full else "cut at the length limit"
            parts.append({"length": full, "interrupted": "interrupted"}[self.reason])
        return " · ".join(parts)


def rounded(value: float | None, digits: int) -> float | None:
    """`round` that lets None through."""
    return None if value is None else round(value, digits)


def counted(count: int, noun: str) -> str:
    """`1 token`, `2 tokens`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
