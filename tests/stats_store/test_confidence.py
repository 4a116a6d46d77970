"""Against tables of Student's distribution, and Welch's test by hand."""

from __future__ import annotations

import math

import pytest

from dflash_cli.stats_store.confidence import Estimate, margin, t_quantile


@pytest.mark.parametrize(
    ("probability", "freedom", "quantile"),
    [(0.95, 1, 6.314), (0.95, 2, 2.920), (0.95, 4, 2.132), (0.95, 10, 1.812), (0.95, 1e9, 1.645),
     (0.975, 1, 12.706), (0.975, 2, 4.303), (0.975, 4, 2.776), (0.975, 30, 2.042), (0.975, 1e9, 1.960)],
)  # fmt: skip
def test_quantiles_are_those_of_the_tables(probability: float, freedom: float, quantile: float) -> None:
    assert t_quantile(probability, freedom) == pytest.approx(quantile, abs=1.5e-3)


def test_the_margin_by_hand() -> None:
    """Errors of 3 and 4 % are 5 % together; freedom 0.0025² / (0.0009² / 4 + 0.0016² / 9) = 12.8."""
    found = margin(Estimate(2.0, 0.03, 5), Estimate(2.0, 0.04, 10), 0.95)
    assert found == pytest.approx(0.05 * t_quantile(0.95, 0.0025**2 / (0.0009**2 / 4 + 0.0016**2 / 9)))
    assert found == pytest.approx(0.05 * 1.772, rel=2e-3)


def test_where_nothing_is_known_nothing_is_said() -> None:
    assert margin(Estimate(2.0, None, 1), Estimate(2.0, 0.1, 9), 0.95) is None
    assert margin(Estimate(2.0, 0.1, 1), Estimate(2.0, 0.1, 9), 0.95) is None
    assert margin(Estimate(2.0, 0.0, 5), Estimate(2.0, 0.0, 5), 0.95) == 0.0
    one_sided = margin(Estimate(2.0, 0.0, 5), Estimate(2.0, 0.1, 5), 0.95)
    assert one_sided is not None
    assert math.isclose(one_sided, 0.1 * t_quantile(0.95, 4))
