"""A loss over a part of the vocabulary: close to the whole one, never without a label, the same each time."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from dflash_cli.train.blocks import generator
from dflash_cli.train.loss import slot_losses
from dflash_cli.train.loss_vocabulary import LossVocabulary

SIZE, WIDTH = 500, 8


def random_head() -> torch.Tensor:
    return torch.randn(SIZE, WIDTH, generator=generator("head")) * 0.7


def loss(vocabulary: LossVocabulary, hidden: torch.Tensor, labels: torch.Tensor, seed: int) -> torch.Tensor:
    compared = vocabulary.compared(labels, generator(seed))
    return slot_losses(hidden, None, compared, lambda logits: logits).losses


def test_all_of_it_is_the_head_itself() -> None:
    head, labels = random_head(), torch.tensor([3, 499])
    for size in (None, SIZE, SIZE + 1):
        compared = LossVocabulary(head, size, [1]).compared(labels, generator(0))
        assert compared.head is head
        assert compared.raised is None
        assert compared.labels is labels


def test_the_commonest_ids_and_every_label_are_there() -> None:
    head = random_head()
    answers = [[7] * 9 + [400] * 5 + [3] * 4, [8] * 3 + [9]]
    vocabulary = LossVocabulary.of_answers(head, 8, answers, always=[2])
    assert vocabulary.frequent.tolist() == [2, 3, 7, 8, 9, 400]
    labels = torch.tensor([7, 499, 498, 499, 2])
    compared = vocabulary.compared(labels, generator(1))
    assert torch.equal(compared.head[compared.labels], head[labels])
    assert 8 <= len(compared.head) <= 6 + 2 + 2  # frequent, the rare labels, a sample of two


def test_the_sample_stands_for_all_others() -> None:
    """The raised logits make each sampled id count for as many as were left out."""
    vocabulary = LossVocabulary(random_head(), 40, range(30))
    labels = torch.tensor([5, 100])
    compared = vocabulary.compared(labels, generator(2))
    assert compared.raised is not None
    counted = compared.raised.exp()
    assert counted.sum().item() == pytest.approx(SIZE, rel=1e-5)
    assert (counted[:31] == 1).all()  # the frequent ones, and the rare label


def test_its_loss_and_gradient_are_right_on_average() -> None:
    head, labels = random_head(), torch.randint(0, SIZE, (64,), generator=generator("labels"))
    hidden = torch.randn(64, WIDTH, generator=generator("hidden"))
    vocabulary = LossVocabulary(head, 250, range(150))
    whole = hidden.clone().requires_grad_()
    wanted = F.cross_entropy(whole @ head.T, labels, reduction="none")
    wanted.sum().backward()
    part = hidden.clone().requires_grad_()
    found = torch.stack([loss(vocabulary, part, labels, seed) for seed in range(60)])
    (found.mean(0)).sum().backward()
    assert found.mean().item() == pytest.approx(wanted.mean().item(), rel=0.01)
    assert whole.grad is not None
    assert part.grad is not None
    assert (part.grad - whole.grad).norm() < 0.06 * whole.grad.norm()
    one = loss(vocabulary, hidden, labels, 0)
    assert torch.equal(one, loss(vocabulary, hidden, labels, 0))
    assert not torch.equal(one, loss(vocabulary, hidden, labels, 1))
