"""Losses and weights against hand-computed values; chunks change nothing; gradients are autograd's."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from dflash_cli.train import loss as losses_module
from dflash_cli.train.loss import d_pace_weights, decay_weights, proxy_tau, slot_losses
from dflash_cli.train.loss_vocabulary import Compared
from dflash_cli.train.recipe import Recipe, default_gamma
from tests.tiny import make_drafter

COUNTS = torch.tensor([[True, True, True], [True, False, False]])


def test_decay_is_one_for_the_first_slot_and_falls_with_gamma() -> None:
    found = decay_weights(COUNTS, 2.0)
    wanted = [[1.0, math.exp(-0.5), math.exp(-1.0)], [1.0, 0.0, 0.0]]
    torch.testing.assert_close(found, torch.tensor(wanted))


@pytest.mark.parametrize(("block", "gamma"), [(16, 7.0), (10, 5.0), (8, 4.0), (12, 5 + 2 / 3), (6, 3.0), (2, 1.0)])
def test_gamma_is_the_published_one(block: int, gamma: float) -> None:
    assert default_gamma(block) == pytest.approx(gamma)
    assert Recipe(gamma=2.5).decay(block) == 2.5


def test_d_pace_weights_by_hand() -> None:
    found = d_pace_weights(torch.tensor([[math.log(2), 0.0, 100.0]]), COUNTS[:1])
    q1, q2, q3 = 0.75, 1.0, 0.5  # (1 - 0.5) exp(-loss) + 0.5
    alive = [q1, q1 * q2, q1 * q2 * q3]
    torch.testing.assert_close(found, torch.tensor([[sum(alive), sum(alive[1:]), alive[2]]]))
    uncounted = d_pace_weights(torch.zeros(1, 3), torch.tensor([[True, False, False]]))
    torch.testing.assert_close(uncounted, torch.tensor([[1.0, 0.0, 0.0]]))


def test_proxy_tau_is_one_and_the_leading_hits() -> None:
    hits = torch.tensor([[True, False, True], [True, True, True]])
    total, by_slot = proxy_tau(hits, COUNTS)
    assert total == (1 + 1) + (1 + 1)
    assert by_slot.tolist() == [2, 0, 1]


@pytest.mark.parametrize("chunk", [16, 1000])
@pytest.mark.parametrize("taught", [False, True])
@pytest.mark.parametrize("gemma_like", [False, True])
def test_chunks_and_gradients_equal_the_plain_loss(
    monkeypatch: pytest.MonkeyPatch, chunk: int, taught: bool, gemma_like: bool
) -> None:
    monkeypatch.setattr(losses_module, "CHUNK_VALUES", chunk * 11)
    changes = {"output_multiplier": 0.3, "final_logit_softcapping": 4.0} if gemma_like else {}
    scale = make_drafter(**changes).scale_logits
    random = torch.Generator().manual_seed(0)
    hidden, head, teachers = (torch.randn(n, 7, generator=random) for n in (50, 11, 50))
    labels, outer = torch.randint(0, 11, (50,), generator=random), torch.rand(50, generator=random)
    plain = hidden.clone().requires_grad_()
    logits = scale(plain @ head.T)
    if taught:
        goal = (teachers @ head.T).softmax(-1)
        wanted = F.kl_div(logits.log_softmax(-1), goal, reduction="none").sum(-1)
    else:
        wanted = F.cross_entropy(logits, labels, reduction="none")
    (wanted * outer).sum().backward()
    leaf = hidden.clone().requires_grad_()
    found, hits = slot_losses(leaf, teachers if taught else None, Compared(head, None, labels), scale)
    (found * outer).sum().backward()
    torch.testing.assert_close(found, wanted.detach(), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(leaf.grad, plain.grad, atol=1e-5, rtol=1e-4)
    assert torch.equal(hits, logits.argmax(-1) == labels)


def test_no_slot_at_all_is_no_loss() -> None:
    """All slots of a small row may be shown with random masking."""
    hidden = torch.zeros(0, 7).requires_grad_()
    losses, hits = slot_losses(hidden, None, Compared(torch.ones(11, 7), None, torch.zeros(0).long()), lambda x: x)
    losses.sum().backward()
    assert len(losses) == len(hits) == 0
    assert hidden.grad is not None
