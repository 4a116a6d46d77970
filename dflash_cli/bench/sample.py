"""What one answer, or one batch of answers, took. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dflash_cli.stats import AnswerStats, Position, speed


@dataclass(frozen=True)
class Sample:
    """One measurement. `decoded`: tokens after the first of each row, made in `decode_ms`, over all rows together.

    `steps`: verify passes (of a peer that does not tell: None). `draft_ms` and `verify_ms` are sums over them, and
    `drafted_steps` are those that drafted. The last three lists have, for each pass of each row, the tokens
    committed, drafts kept and drafts verified.
    """

    ids: tuple[tuple[int, ...], ...]
    prompt_tokens: int
    ttft_ms: float
    decode_ms: float
    decoded: int
    peak_bytes: int | None = None
    steps: int | None = None
    drafted_steps: int = 0
    draft_ms: float | None = None
    verify_ms: float | None = None
    lengths: list[int] = field(default_factory=list)
    accepted_each: list[int] = field(default_factory=list)
    drafted_each: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Pooled:
    """The answers of a row in one round together: all tokens over all time. Times in milliseconds, per step."""

    tokens_per_s: float | None
    ttft_ms: float
    step_ms: float | None
    draft_ms: float | None
    verify_ms: float | None

    @property
    def overhead_ms(self) -> float | None:
        """What is neither draft nor verify."""
        if self.step_ms is None or self.draft_ms is None or self.verify_ms is None:
            return None
        return max(0.0, self.step_ms - self.draft_ms - self.verify_ms)


def pooled(samples: Sequence[Sample]) -> Pooled:
    """Pool at least one sample."""
    decode_ms = sum(each.decode_ms for each in samples)
    steps = sum(each.steps or 0 for each in samples) or None
    tells = all(each.draft_ms is not None for each in samples)
    per_step = {
        name: sum(getattr(each, name) or 0.0 for each in samples) / steps if steps and tells else None
        for name in ("draft_ms", "verify_ms")
    }
    return Pooled(
        tokens_per_s=speed(sum(each.decoded for each in samples), decode_ms),
        ttft_ms=sum(each.ttft_ms for each in samples) / len(samples),
        step_ms=decode_ms / steps if steps else None,
        **per_step,
    )


@dataclass(frozen=True)
class Acceptance:
    """How drafts fared over some samples: `stats` has the definitions. None where passes are not told."""

    tau: float | None
    rate: float | None
    positions: list[Position]


def acceptance(samples: Sequence[Sample]) -> Acceptance:
    """Over all verify passes of the samples."""
    stats = AnswerStats(
        lengths=[length for each in samples for length in each.lengths],
        accepted_each=[count for each in samples for count in each.accepted_each],
        drafted_each=[count for each in samples for count in each.drafted_each],
    )
    if len(stats.lengths) != len(stats.drafted_each):  # a peer that tells only how many tokens a pass gave
        return Acceptance(stats.tau, None, [])
    return Acceptance(stats.tau, stats.rate, stats.positions)
