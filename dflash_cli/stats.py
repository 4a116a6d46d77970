"""The figures of an answer: a fold of its events. Definitions are here and nowhere else. Imports no torch."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from dflash_cli.events import BlockVerified, Event, Finished, FinishReason, Prefilled


@dataclass
class AnswerStats:
    """What is known of an answer so far; made when the request is, fed each event.

    Acceptance length of a verify pass = ids it committed (accepted drafts + bonus, less what a stop cut off).
    `tau` = its mean. `rate` = accepted drafts / drafts verified. The first id comes from the prefill and is in
    `ids` but in no acceptance length.
    """

    begun: float = field(default_factory=time.perf_counter)
    prompt_tokens: int = 0
    reused_tokens: int = 0
    ids: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    accepted: int = 0
    drafted: int = 0
    ttft_ms: float = 0.0
    prefill_ms: float = 0.0
    draft_ms: float = 0.0
    verify_ms: float = 0.0
    decode_ms: float = 0.0
    reason: FinishReason = "interrupted"
    first_at: float = 0.0

    def add(self, event: Event) -> None:
        """Take one more event."""
        if isinstance(event, Prefilled):
            self.first_at = time.perf_counter()
            self.prompt_tokens, self.reused_tokens = event.prompt_len, event.reused_len
            self.ttft_ms, self.prefill_ms = (self.first_at - self.begun) * 1e3, event.ms
            self.ids += event.new_ids
        elif isinstance(event, BlockVerified):
            self.ids += event.new_ids
            self.lengths.append(len(event.new_ids))
            self.accepted += event.accepted
            self.drafted += event.num_drafted
            self.draft_ms += event.draft_ms
            self.verify_ms += event.verify_ms
            # Until Finished comes this is what an interrupted answer is measured by.
            self.decode_ms = (time.perf_counter() - self.first_at) * 1e3
        elif isinstance(event, Finished):
            self.reason, self.decode_ms = event.reason, event.ms

    @property
    def tau(self) -> float | None:
        """Mean acceptance length in tokens a verify pass; None before the first pass."""
        return sum(self.lengths) / len(self.lengths) if self.lengths else None

    @property
    def rate(self) -> float | None:
        """Accepted drafts / drafts verified; None where nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens after the first, over the time since the first; None before a second token."""
        later = len(self.ids) - 1
        return later / self.decode_ms * 1e3 if later > 0 and self.decode_ms > 0 else None

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
        parts = [f"{len(self.ids)} tokens"]
        if self.tokens_per_s is not None:
            parts.append(f"{self.tokens_per_s:.1f} tok/s")
        if self.rate is not None and self.tau is not None:
            parts.append(f"τ {self.tau:.2f}")
            parts.append(f"{self.rate:.0%} of drafts accepted")
        if self.reused_tokens:
            parts.append(f"reused {self.reused_tokens} of {self.prompt_tokens}")
        if self.reason != "stop":
            parts.append({"length": "cut at the length limit", "interrupted": "interrupted"}[self.reason])
        return " · ".join(parts)


def rounded(value: float | None, digits: int) -> float | None:
    """`round` that lets None through."""
    return None if value is None else round(value, digits)
