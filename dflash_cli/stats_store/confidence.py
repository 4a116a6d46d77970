"""Is a difference of two ratios more than chance? Welch's t-test on their logarithms. Imports no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist


@dataclass(frozen=True)
class Estimate:
    """A ratio of sums over `count` answers. `error`: its relative standard error, None where it has none."""

    value: float
    error: float | None
    count: int


def margin(one: Estimate, other: Estimate, confidence: float) -> float | None:
    """How far the logarithm of other / one may be off, to either side; None where nothing can be said.

    `confidence`: that the truth is not further off on one given side.
    """
    if one.error is None or other.error is None or min(one.count, other.count) < 2:
        return None
    variances = [(each.error or 0.0) ** 2 for each in (one, other)]
    if not any(variances):
        return 0.0
    parts = zip(variances, (one.count, other.count), strict=True)
    freedom = sum(variances) ** 2 / sum(variance**2 / (count - 1) for variance, count in parts)
    return t_quantile(confidence, freedom) * math.sqrt(sum(variances))


def t_quantile(probability: float, freedom: float) -> float:
    """Of Student's distribution, for a probability over 1/2 (Abramowitz and Stegun 26.7.5; exact below 3)."""
    if freedom < 2:
        return math.tan(math.pi * (probability - 0.5))
    if freedom < 3:
        return (2 * probability - 1) / math.sqrt(2 * probability * (1 - probability))
    z = NormalDist().inv_cdf(probability)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return sum(term / freedom**power for power, term in enumerate(terms))
