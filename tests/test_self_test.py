"""What a self-test finds, and what it lets pass."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from backends.base import BackendUnavailable
from backends.self_test import self_test
from tests.one_pair import DRAFTER, IDS, build
from tests.tiny import VOCAB, make_eagle


def test_a_self_test_passes_an_equal_backend_and_keeps_its_cache() -> None:
    engine = build(batch_size=2)
    engine.prefill(IDS[:40], 0, 1)
    before = [buffer.clone() for buffer in (*engine.target_cache.k, *engine.target_cache.v)]
    assert set(self_test(engine, build())) == {"prefill", "draft", "verify", "plain step"}
    after = (*engine.target_cache.k, *engine.target_cache.v)
    assert all(torch.equal(*pair) for pair in zip(before, after, strict=True))
    assert set(self_test(build(None, max_len=5), build(None, max_len=5))) == {"prefill", "verify"}


def test_a_context_of_one_row_has_no_prompt_to_compare() -> None:
    assert set(self_test(build(max_len=1), build(max_len=1))) == {"draft", "verify", "plain step"}
    assert set(self_test(build(None, max_len=1), build(None, max_len=1))) == {"verify"}


@pytest.mark.parametrize("name", ["prefill", "draft", "verify"])
@pytest.mark.parametrize("error", [0.5, float("nan")])
def test_a_self_test_names_the_pass_and_the_figures(name: str, error: float, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = build()
    right = getattr(engine, name)

    def wrong(*arguments: Any) -> torch.Tensor:
        logits = right(*arguments).clone()
        logits.view(-1)[0] += error * logits.abs().max()
        return logits

    monkeypatch.setattr(engine, name, wrong)
    with pytest.raises(BackendUnavailable, match=f"eager on this machine: {name} by [0-9.na]+.* use --backend eager"):
        self_test(engine, build())


def test_a_plain_step_is_compared_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass of one row has code of its own, whether there is a drafter or not."""
    engine = build()
    right = engine.verify
    monkeypatch.setattr(engine, "verify", lambda ids, start: right(ids, start) + 9.0 * (ids.shape[1] == 1))
    with pytest.raises(BackendUnavailable, match=r"eager on this machine: plain step by [0-9.]+ of the largest"):
        self_test(engine, build())


def test_logits_that_the_next_pass_writes_over_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, shared = build(), torch.zeros(6, VOCAB)
    passes = []
    for name in ("draft", "verify"):
        right = getattr(engine, name)

        def reusing(*arguments: Any, right: Any = right) -> torch.Tensor:
            logits = right(*arguments)
            passes.append(logits.shape[1])
            place = shared[: logits.shape[1]]
            return place.copy_(logits[0]).unsqueeze(0)

        monkeypatch.setattr(engine, name, reusing)
    self_test(engine, build())  # raises where it compares what was written over
    assert passes == [5, 6, 1]


class Chain:
    """Draft logits of two engines whose second choice parts by rounding, and with it all that follows."""

    def __init__(self) -> None:
        self.mine = torch.randn(5, VOCAB, generator=torch.Generator().manual_seed(3))
        self.theirs = self.mine.clone()
        self.mine[1, :2] = torch.tensor([9.0, 9.00001])
        self.theirs[1, :2] = torch.tensor([9.00001, 9.0])
        self.theirs[2:] = self.theirs[2:].flip(-1)

    def test(self, drafter: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        engine, eager = build(drafter), build(drafter)
        for each, logits in ((engine, self.mine), (eager, self.theirs)):
            monkeypatch.setattr(each, "draft", lambda *_, logits=logits: logits[None])
        self_test(engine, eager)


def test_a_chain_is_compared_as_far_as_it_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    eagle, chain = make_eagle(), Chain()
    chain.test(eagle, monkeypatch)
    with pytest.raises(BackendUnavailable, match="draft by"):  # these rows do not hang together
        chain.test(DRAFTER, monkeypatch)
    chain.mine[1, 5] += 2.0  # the row where they part is compared itself
    with pytest.raises(BackendUnavailable, match="draft by"):
        chain.test(eagle, monkeypatch)
    wrong = Chain()
    wrong.mine[0, 0] = float("nan")
    with pytest.raises(BackendUnavailable, match="draft by"):
        wrong.test(eagle, monkeypatch)
