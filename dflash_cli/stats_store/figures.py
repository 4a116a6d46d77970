"""Sums over answers and what follows from them, by the definitions of `stats.py`. Imports no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace

from dflash_cli.stats import Acceptance, rounded, speed
from dflash_cli.stats_store.confidence import Estimate


@dataclass(frozen=True)
class Figures:
    """Sums over `turns` answers. `committed` tokens came from `passes` verify passes.

    The products are what the error of a ratio of sums is made of. `plain_ms` is the time that plain decoding takes
    for the tokens of those answers that had a drafter and have a baseline, `measured_ms` the time that these took.
    """

    turns: int = 0
    interrupted: int = 0
    prompt_tokens: int = 0
    reused_tokens: int = 0
    new_tokens: int = 0
    committed: int = 0
    passes: int = 0
    accepted: int = 0
    drafted: int = 0
    ttft_ms: float = 0.0
    prefill_ms: float = 0.0
    decode_ms: float = 0.0
    draft_ms: float = 0.0
    verify_ms: float = 0.0
    other_ms: float = 0.0
    committed_committed: int = 0
    committed_passes: int = 0
    passes_passes: int = 0
    later_later: int = 0
    later_ms: float = 0.0
    ms_ms: float = 0.0
    plain_ms: float = 0.0
    measured_ms: float = 0.0

    def plus(self, other: Figures) -> Figures:
        """Both together."""
        return Figures(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    @property
    def later(self) -> int:
        """Tokens after the first of each answer."""
        return self.new_tokens - self.turns

    @property
    def tau(self) -> float | None:
        """See `Acceptance.tau`."""
        return Acceptance(self.committed, self.passes, self.accepted, self.drafted).tau

    @property
    def rate(self) -> float | None:
        """See `Acceptance.rate`."""
        return Acceptance(self.committed, self.passes, self.accepted, self.drafted).rate

    @property
    def tokens_per_s(self) -> float | None:
        """See `stats.speed`."""
        return speed(self.later, self.decode_ms)

    @property
    def speedup(self) -> float | None:
        """Time of plain decoding / time taken; None where no baseline is measured."""
        return self.plain_ms / self.measured_ms if self.plain_ms and self.measured_ms else None

    @property
    def time_split(self) -> list[tuple[str, float, float]]:
        """Parts of the decoding time: name, milliseconds, share."""
        parts = (("draft", self.draft_ms), ("verify", self.verify_ms), ("other", self.other_ms))
        whole = sum(ms for _, ms in parts) or 1.0
        return [(name, ms, ms / whole) for name, ms in parts]

    @property
    def ttft(self) -> float | None:
        """Mean time to the first token in milliseconds."""
        return self.ttft_ms / self.turns if self.turns else None

    @property
    def tau_estimate(self) -> Estimate | None:
        """τ and its error, each answer one observation; None where there is no τ."""
        sums = (self.committed, self.passes, self.committed_committed, self.committed_passes, self.passes_passes)
        return None if self.tau is None else Estimate(self.tau, _error(self.turns, *sums), self.turns)

    @property
    def speed_estimate(self) -> Estimate | None:
        """tok/s and its error, each answer one observation; None where there is no tok/s."""
        sums = (self.later, self.decode_ms, self.later_later, self.later_ms, self.ms_ms)
        speed_now = self.tokens_per_s
        return None if speed_now is None else Estimate(speed_now, _error(self.turns, *sums), self.turns)

    def as_dict(self) -> dict[str, object]:
        """The JSON object of a group. Times in milliseconds, `ttft_ms` the mean."""
        return {
            "turns": self.turns,
            "interrupted": self.interrupted,
            "prompt_tokens": self.prompt_tokens,
            "reused_tokens": self.reused_tokens,
            "new_tokens": self.new_tokens,
            "blocks": self.passes,
            "tau": rounded(self.tau, 3),
            "acceptance_rate": rounded(self.rate, 4),
            "tokens_per_s": rounded(self.tokens_per_s, 2),
            "speedup": rounded(self.speedup, 3),
            "ttft_ms": rounded(self.ttft, 2),
            "decode_ms": rounded(self.decode_ms, 2),
            "draft_ms": rounded(self.draft_ms, 2),
            "verify_ms": rounded(self.verify_ms, 2),
            "other_ms": rounded(self.other_ms, 2),
        }


def _error(count: int, above: float, below: float, above_2: float, product: float, below_2: float) -> float | None:
    """Relative standard error of the ratio of two sums over `count` observations, by linearisation."""
    if count < 2 or not above or not below:
        return None
    ratio = above / below
    residuals = max(0.0, above_2 - 2 * ratio * product + ratio**2 * below_2)
    return math.sqrt(count / (count - 1) * residuals) / below / ratio


def total(figures: Sequence[Figures]) -> Figures:
    """All of them together."""
    sums = Figures()
    for each in figures:
        sums = sums.plus(each)
    return sums


Place = tuple[str, ...]
"""The values of the columns `row.PLACE`."""


def with_baseline(figures: Figures, plain: Mapping[Place, tuple[int, float]], place: Place) -> Figures:
    """The figures with what plain decoding, (tokens, ms) of each place, takes for the same tokens."""
    tokens, ms = plain.get(place, (0, 0.0))
    tokens_per_s = speed(tokens, ms)
    if tokens_per_s is None:
        return figures
    return replace(figures, plain_ms=figures.later / tokens_per_s * 1e3, measured_ms=figures.decode_ms)
