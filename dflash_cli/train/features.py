"""What the frozen target knows of a text: its tapped hidden states, read in batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from backends.attention import CAUSAL, Sdpa
from backends.layers import Rotary
from backends.target import Target
from dflash_cli.train.documents import Document

BATCH_TOKENS = 2048  # tokens of a pass: enough to fill the matrix units, few enough to stay in a small memory
WASTE = 0.15  # share of a pass that may be padding


class Features(NamedTuple):
    """Of a document of n tokens: `taps` [n, taps * C], and `final` [n, C] behind the last norm where it is wanted."""

    taps: Tensor
    final: Tensor | None


class FeatureReader:
    """Runs a target over documents. `wants_final`: also keep what its head reads."""

    def __init__(self, target: Target, taps: tuple[int, ...], max_len: int, *, wants_final: bool = False) -> None:
        self.target, self.taps, self.wants_final = target, taps, wants_final
        embedding = target.model.embed_tokens.weight
        self.device = embedding.device
        config = target.config
        self.rotary = Rotary(config.rope, config.head_dim, max_len, embedding.dtype, self.device)
        self.attention = Sdpa()

    def read(self, documents: Sequence[Document]) -> list[Features]:
        """The features of each document, in order."""
        found: dict[int, Features] = {}
        for group in groups([len(document.ids) for document in documents]):
            found |= zip(group, self._pass([documents[index] for index in group]), strict=True)
        return [found[index] for index in range(len(documents))]

    @torch.no_grad()
    def _pass(self, documents: Sequence[Document]) -> list[Features]:
        if not self.taps and not self.wants_final:  # nothing of the target is looked at
            weight = self.target.model.embed_tokens.weight
            return [Features(weight.new_empty(len(document.ids), 0), None) for document in documents]
        ids = [torch.tensor(document.ids, dtype=torch.long) for document in documents]
        # Padding stands at the end, where a causal pass never looks from before.
        batch = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True).to(self.device)
        places = torch.arange(batch.shape[1], device=self.device).expand_as(batch)
        hidden, tapped = self.target(batch, *self.rotary.at(places), self._attend, self.taps)
        tapped = hidden[..., :0] if tapped is None else tapped
        final = self.target.model.norm(hidden) if self.wants_final else None
        return [
            Features(tapped[row, : len(each)].clone(), None if final is None else final[row, : len(each)].clone())
            for row, each in enumerate(ids)
        ]

    def _attend(self, _layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self.attention(q, k, v, CAUSAL)


def groups(lengths: Sequence[int], most: int = BATCH_TOKENS, waste: float = WASTE) -> list[list[int]]:
    """Indices of similar lengths together: at most `most` tokens a group, padding included, little of it padding."""
    made: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        longest = lengths[made[-1][0]] if made else 0
        fits = made and longest * (len(made[-1]) + 1) <= most
        if fits and lengths[index] >= longest * (1 - 2 * waste):
            made[-1].append(index)
        else:
            made.append([index])
    return made


def joined(features: Sequence[Features]) -> Features:
    """Those of several documents, one after the other, as a row packs them."""
    finals = [each.final for each in features if each.final is not None]
    return Features(torch.cat([each.taps for each in features]), torch.cat(finals) if finals else None)
