"""Simulated acceptance: the lengths asked for, through passes that all run."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from backends.base import drafts_and_chances
from dflash_cli.bench.schedule import Scheduled, accepted_drafts
from dflash_cli.errors import UsageError
from dflash_cli.events import BlockVerified
from dflash_cli.request import Request
from dflash_cli.sampling import SamplingParams
from dflash_cli.speculative import Decoder
from tests.tiny import make_drafter, make_engine, make_target


@given(st.floats(1, 16), st.integers(1, 300))
def test_the_mean_of_a_schedule_is_the_length_asked_for(tau: float, steps: int) -> None:
    kept = [accepted_drafts(tau, step) for step in range(steps)]
    assert set(kept) <= {int(tau - 1), int(tau - 1) + 1}
    assert sum(kept) == pytest.approx(steps * (tau - 1), abs=1)


@pytest.mark.parametrize("tau", [1.0, 2.5, 4.2, 6.0])
def test_the_decoder_sees_the_schedule(tau: float) -> None:
    engine = make_engine(make_target(), make_drafter())
    calls: list[str] = []
    for name in ("draft", "verify"):
        real = getattr(engine, name)
        setattr(engine, name, lambda *args, name=name, real=real: calls.append(name) or real(*args))
    decoder = Decoder(Scheduled(engine, tau))  # type: ignore[arg-type]
    events = list(decoder.generate(Request([1, 2, 3], max_new_tokens=121)))
    lengths = [len(each.new_ids) for each in events if isinstance(each, BlockVerified)]
    assert sum(lengths[:-1]) / len(lengths[:-1]) == pytest.approx(tau, abs=1 / len(lengths[:-1]))
    assert calls == ["draft", "verify"] * len(lengths)


@pytest.mark.parametrize("temperature", [0.7, 2e-5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sampled_answers_follow_the_schedule_too(temperature: float, dtype: torch.dtype) -> None:
    """A logit that a small temperature makes infinite would leave no probability at all."""
    engine = make_engine(make_target().to(dtype), make_drafter().to(dtype))
    decoder = Decoder(Scheduled(engine, 4.0))  # type: ignore[arg-type]
    events = list(decoder.generate(Request([1, 2, 3], SamplingParams(temperature, seed=1), max_new_tokens=61)))
    assert {each.accepted for each in events if isinstance(each, BlockVerified)} == {3}


def test_the_drafter_is_sure_so_that_a_width_may_be_fitted_to_what_is_kept() -> None:
    backend = Scheduled(make_engine(make_target(), make_drafter()), 4.0)
    backend.prefill(torch.tensor([1, 2, 3]), 0)
    drafts, chances = drafts_and_chances(backend, torch.tensor([4]), [3])  # type: ignore[arg-type]
    assert drafts.shape == chances.shape == (1, 5)
    assert (chances == 1).all()


def test_a_narrow_pass_keeps_no_more_than_it_has() -> None:
    decoder = Decoder(Scheduled(make_engine(make_target(), make_drafter()), 6.0), 3)  # type: ignore[arg-type]
    events = list(decoder.generate(Request([1, 2, 3], max_new_tokens=31)))
    assert {each.accepted for each in events if isinstance(each, BlockVerified)} == {2}


def test_a_length_that_blocks_cannot_have_is_refused() -> None:
    with pytest.raises(UsageError, match="7 is not possible with blocks of 6"):
        Scheduled(make_engine(make_target(), make_drafter()), 7.0)


def test_an_answer_begins_the_schedule_anew() -> None:
    backend = Scheduled(make_engine(make_target(), make_drafter()), 2.5)
    backend.step = 3
    backend.prefill(torch.tensor([1, 2]), 0)
    assert backend.step == 0
