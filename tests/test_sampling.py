"""Sampling equals Hugging Face's processors, draws the distribution it says, and acceptance keeps it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers.generation import logits_process as hf

from backends.base import Backend
from dflash_cli.events import BlockVerified, Prefilled
from dflash_cli.request import Request
from dflash_cli.sampling import (
    SamplingParams,
    candidates,
    count_accepted,
    draw,
    penalise,
    seen_before_slots,
    uniform,
)
from dflash_cli.speculative import Decoder
from tests.fake_backend import DraftedBy
from tests.tiny import make_drafter, make_engine, make_target

V = 64


def full_distribution(logits: torch.Tensor, params: SamplingParams) -> torch.Tensor:
    probabilities, ids = candidates(logits, params)
    return torch.zeros_like(logits).scatter_(1, ids, probabilities)


@pytest.mark.parametrize("top_k", [0, 5, 400])
@pytest.mark.parametrize("top_p", [1.0, 0.6])
@pytest.mark.parametrize("min_p", [0.0, 0.1])
def test_filters_equal_huggingface(top_k: int, top_p: float, min_p: float) -> None:
    logits = torch.randn(7, V, generator=torch.Generator().manual_seed(0)) * 3
    chain: list[Any] = [hf.TemperatureLogitsWarper(0.7)]
    chain += [hf.TopKLogitsWarper(top_k)] if top_k else []
    chain += [hf.TopPLogitsWarper(top_p)] if top_p < 1 else []
    chain += [hf.MinPLogitsWarper(min_p)] if min_p else []
    expected = logits
    for each in chain:
        expected = each(None, expected)
    got = full_distribution(logits, SamplingParams(temperature=0.7, top_k=top_k, top_p=top_p, min_p=min_p))
    torch.testing.assert_close(got, expected.softmax(-1), atol=1e-6, rtol=1e-5)


def test_repetition_penalty_equals_huggingface() -> None:
    logits = torch.randn(1, V, generator=torch.Generator().manual_seed(1))
    text = torch.tensor([[3, 9, 3, 60]])
    expected = hf.RepetitionPenaltyLogitsProcessor(1.7)(text, logits)
    seen = torch.zeros(1, V, dtype=torch.bool).scatter_(1, text, True)
    got = penalise(logits, SamplingParams(repetition_penalty=1.7), seen, torch.zeros_like(seen))
    torch.testing.assert_close(got, expected)


def test_presence_penalty_counts_an_id_once_and_only_in_the_answer() -> None:
    answered = torch.zeros(1, V, dtype=torch.bool)
    answered[0, [4, 8]] = True
    params = SamplingParams(presence_penalty=0.5)
    got = penalise(torch.zeros(1, V), params, torch.ones_like(answered), answered)
    assert got[0].tolist() == [-0.5 if i in (4, 8) else 0.0 for i in range(V)]


def test_a_slot_has_seen_the_block_up_to_itself() -> None:
    seen = torch.zeros(V, dtype=torch.bool)
    seen[1] = True
    rows = seen_before_slots(seen, torch.tensor([5, 7, 5, 9]))
    assert [row.nonzero().flatten().tolist() for row in rows] == [[1, 5], [1, 5, 7], [1, 5, 7], [1, 5, 7, 9]]
    assert seen.sum() == 1


def test_draws_never_hit_an_excluded_id_and_cover_the_edges() -> None:
    probabilities = torch.tensor([[0.5, 0.5, 0.0]] * 3)
    ids = torch.tensor([[10, 11, 12]] * 3)
    assert draw(probabilities, ids, [0.0, 0.5, 1 - 2**-32]).tolist() == [10, 11, 11]
    leading = torch.tensor([[0.0, 1.0]])
    assert draw(leading, torch.tensor([[3, 4]]), [0.0]).tolist() == [4]


def test_uniforms_depend_on_seed_and_position_only() -> None:
    assert uniform(1, 2) == uniform(1, 2)
    assert len({uniform(s, p) for s in range(20) for p in range(20)}) == 400
    draws = torch.tensor([uniform(0, p) for p in range(20000)])
    assert abs(draws.mean() - 0.5) < 0.01
    assert 0 <= draws.min() <= draws.max() < 1


def test_accepted_is_the_leading_run() -> None:
    block = torch.tensor([[9, 1, 2, 3], [9, 1, 2, 3], [9, 1, 2, 3], [9, 1, 2, 3]])
    choices = torch.tensor([[1, 2, 3, 4], [1, 2, 0, 4], [0, 2, 3, 4], [1, 0, 3, 4]])
    assert count_accepted(block, choices).tolist() == [3, 2, 0, 1]


@pytest.mark.parametrize(
    ("name", "value"),
    [("temperature", -1.0), ("top_k", -1), ("top_p", 0.0), ("top_p", 1.5), ("min_p", 2.0), ("repetition_penalty", 0.0)],
)
def test_values_out_of_range_are_named(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name} is .*expected"):
        SamplingParams(**{name: value})


def second_and_third_ids(backend: Backend, params: SamplingParams, count: int) -> torch.Tensor:
    """Counts [V, V] of the pair of ids after the first one, over many seeds."""
    requests = [Request([3], replace(params, seed=seed), max_new_tokens=3) for seed in range(count)]
    texts: list[list[int]] = [[] for _ in requests]
    for index, event in Decoder(backend).generate_many(requests):
        texts[index] += event.new_ids if isinstance(event, Prefilled | BlockVerified) else ()
    counts = torch.zeros(8, 8)
    for _, second, third in texts:
        counts[second, third] += 1
    return counts


@pytest.mark.parametrize("top_p", [1.0, 0.8])
def test_speculation_keeps_the_targets_distribution(top_p: float) -> None:
    """Chi-square of the 2nd and 3rd id of 3,000 answers over a vocabulary of 8 against exact probabilities."""
    target = make_target(vocab_size=8, seed=21)
    for parameter in target.lm_head.parameters():
        parameter.data *= 0.3
    params = SamplingParams(temperature=1.0, top_p=top_p)
    expected = exact_pairs(target, params)
    drafter = make_drafter(vocab_size=8, dflash_config={"mask_token_id": 7, "target_layer_ids": [1, 3]}, block_size=4)
    bad = DraftedBy(make_engine(target, max_len=40, batch_size=100), lambda text, n: [2] * n, 4)
    for backend in (make_engine(target, drafter, max_len=32, batch_size=100), bad):
        counts = second_and_third_ids(backend, params, 3000)
        likely = expected * 3000 >= 5
        assert counts[expected == 0].sum() == 0
        chi2 = ((counts - expected * 3000) ** 2 / (expected * 3000))[likely].sum().item()
        degrees = int(likely.sum()) - 1
        assert degrees > 10
        assert chi2 < degrees + 4 * (2 * degrees) ** 0.5  # four standard deviations


def exact_pairs(target: Any, params: SamplingParams) -> torch.Tensor:
    """P(second id, third id) after the prompt [3], summed over the first id."""
    total = torch.zeros(8, 8)
    first = full_distribution(make_engine(target).prefill(torch.tensor([3]), 0).unsqueeze(0), params)[0]
    for a in range(8):
        second = full_distribution(make_engine(target).prefill(torch.tensor([3, a]), 0).unsqueeze(0), params)[0]
        for b in range(8):
            logits = make_engine(target).prefill(torch.tensor([3, a, b]), 0).unsqueeze(0)
            total[b] += first[a] * second[b] * full_distribution(logits, params)[0]
    return total
