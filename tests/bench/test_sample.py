"""Pooling of measurements: all tokens over all time, per-step times that add up."""

from __future__ import annotations

import pytest

from dflash_cli.bench.sample import Sample, acceptance, pooled


def sample(decoded: int = 8, decode_ms: float = 100.0, steps: int | None = 4, **values: object) -> Sample:
    known = {"draft_ms": 20.0, "verify_ms": 70.0} if steps else {}
    return Sample(
        ids=((1,) * (decoded + 1),), prompt_tokens=5, ttft_ms=10.0, decode_ms=decode_ms, decoded=decoded, steps=steps,
        **(known | values),  # type: ignore[arg-type]
    )  # fmt: skip


def test_a_fast_and_a_slow_answer_are_weighed_by_their_time() -> None:
    both = pooled([sample(8, 100.0), sample(2, 300.0)])
    assert both.tokens_per_s == pytest.approx(25.0)


def test_the_parts_of_a_step_add_up_to_the_step() -> None:
    each = pooled([sample(), sample(decode_ms=60.0, steps=2, draft_ms=5.0, verify_ms=40.0)])
    assert each.step_ms == pytest.approx(160 / 6)
    assert each.draft_ms is not None
    assert each.verify_ms is not None
    assert each.overhead_ms is not None
    assert each.draft_ms + each.verify_ms + each.overhead_ms == pytest.approx(each.step_ms)


def test_what_a_peer_does_not_tell_is_left_open() -> None:
    each = pooled([sample(steps=3, draft_ms=None, verify_ms=None)])
    assert (each.draft_ms, each.verify_ms, each.overhead_ms) == (None, None, None)
    assert each.step_ms == pytest.approx(100 / 3)
    assert pooled([sample(steps=None)]).step_ms is None
    assert pooled([sample(decoded=0)]).tokens_per_s is None


def test_acceptance_is_that_of_all_passes() -> None:
    one = sample(lengths=[3, 1], accepted_each=[2, 0], drafted_each=[3, 3])
    found = acceptance([one, sample(lengths=[4], accepted_each=[3], drafted_each=[3])])
    assert found.tau == pytest.approx(8 / 3)
    assert found.rate == pytest.approx(5 / 9)
    assert [each.survival for each in found.positions] == pytest.approx([2 / 3, 2 / 3, 1 / 3])


def test_of_a_peer_only_the_acceptance_length_is_known() -> None:
    found = acceptance([sample(lengths=[3, 1])])
    assert (found.tau, found.rate, found.positions) == (2.0, None, [])
