"""Which part of the vocabulary a loss compares a slot with: the head over all of it is most of a small drafter's step.

The frequent ids are all there, the others by a sample that stands for them: its logits are raised by the logarithm of
how many each stands for, so the normaliser of the softmax is right on average (sampled softmax, arXiv 1412.2007).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from dflash_cli.train.draft_vocabulary import most_frequent

FREQUENT_SHARE = 0.75  # of the ids compared with; the rest is a sample of all others


class Compared(NamedTuple):
    """What the slots of a row are compared with: `head` [n, C], what is added to its logits [n], and the labels' rows
    in it [slots]."""

    head: Tensor
    raised: Tensor | None
    labels: Tensor


class LossVocabulary:
    """`head` [V, C]: all of it, or by parts of about `size` ids, of which `frequent` are always there."""

    def __init__(self, head: Tensor, size: int | None = None, frequent: Sequence[int] = ()) -> None:
        self.head, self.size = head, size if size is not None and size < len(head) else None
        self.is_frequent = torch.zeros(len(head), dtype=torch.bool)
        self.is_frequent[list(frequent)] = True
        self.frequent, self.others = self.is_frequent.nonzero()[:, 0], (~self.is_frequent).nonzero()[:, 0]

    @classmethod
    def of_answers(
        cls, head: Tensor, size: int | None, answers: Iterable[Sequence[int]], always: Iterable[int]
    ) -> LossVocabulary:
        """`always` and what `answers` have most often make up the frequent ids."""
        if size is None:
            return cls(head)
        return cls(head, size, most_frequent(answers, int(size * FREQUENT_SHARE), len(head), always))

    def compared(self, labels: Tensor, random: torch.Generator) -> Compared:
        """labels [slots] -> what to compare them with; no label is ever left out."""
        if self.size is None:
            return Compared(self.head, None, labels)
        wanted = labels.cpu()
        rare = wanted[~self.is_frequent[wanted]].unique()
        sampled = self.others[torch.randperm(len(self.others), generator=random)[: self.size - len(self.frequent)]]
        sampled = sampled[~torch.isin(sampled, rare)]
        ids = torch.cat((self.frequent, rare, sampled))
        raised = torch.zeros(len(ids))
        if len(sampled):
            raised[-len(sampled) :] = math.log((len(self.others) - len(rare)) / len(sampled))
        place = torch.empty(len(self.head), dtype=torch.long)
        place[ids] = torch.arange(len(ids))
        device = self.head.device
        return Compared(self.head[ids.to(device)], raised.to(device), place[wanted].to(device))
