"""One training step: documents to rows, rows to gradients under one normaliser, gradients to moved weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from backends.config import DFlashConfig
from backends.drafter import Drafter
from dflash_cli.train.blocks import Row, draw_anchors, generator, make_row, pack, reveal
from dflash_cli.train.documents import Document
from dflash_cli.train.features import Features, joined
from dflash_cli.train.forward import TrainingForward
from dflash_cli.train.loss import d_pace_weights, decay_weights, proxy_tau, slot_losses
from dflash_cli.train.loss_vocabulary import LossVocabulary
from dflash_cli.train.optim import Optimizers
from dflash_cli.train.ranks import Ranks
from dflash_cli.train.recipe import Recipe

if TYPE_CHECKING:
    from dflash_cli.model import Model


@dataclass
class StepFigures:
    """Sums over the rows of a step."""

    loss: float = 0.0
    tau: float = 0.0
    blocks: int = 0
    hits: Tensor | float = 0.0
    counts: Tensor | float = 0.0

    def add_up(self, ranks: Ranks) -> None:
        """Make them the sums over all processes."""
        if ranks.alone:
            return
        hits, counts = (torch.as_tensor(each).flatten().tolist() for each in (self.hits, self.counts))
        self.loss, self.tau, blocks, *both = ranks.total([self.loss, self.tau, self.blocks, *hits, *counts])
        self.blocks = round(blocks)
        self.hits, self.counts = torch.tensor(both).chunk(2)

    def as_dict(self) -> dict[str, Any]:
        """For the metrics: loss, tau as the training blocks suggest it, and right first choices by slot."""
        shares = torch.as_tensor(self.hits) / torch.as_tensor(self.counts).clamp(min=1)
        return {
            "loss": round(self.loss, 5),
            "proxy_tau": round(self.tau / max(1, self.blocks), 4),
            "hits": [round(each, 4) for each in shares.tolist()],
        }


class Learner:
    """One training step: documents in, moved weights out."""

    def __init__(
        self,
        recipe: Recipe,
        drafter: Drafter,
        model: Model,
        max_len: int,
        num_steps: int,
        ranks: Ranks | None = None,
        vocabulary: LossVocabulary | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`vocabulary`: what the loss compares a slot with, by default everything. `tell`: see `TrainingForward`."""
        self.recipe, self.drafter, self.target = recipe, drafter, model.target
        self.ranks = ranks or Ranks()
        self.block = drafter.config.block_size
        self.gamma = recipe.decay(self.block)
        self.forward = TrainingForward(drafter, model.target, max_len, tell=tell)
        self.head = model.target.head_weight()
        self.vocabulary = vocabulary or LossVocabulary(self.head)
        self.named = dict(drafter.named_parameters())
        self.optimizers = Optimizers(self.named, recipe, num_steps)

    def rows(self, documents: list[tuple[int, int, Document]]) -> list[tuple[list[int], Row]]:
        """(epoch, index, document) of a step -> rows, each with the places of its documents in the list.

        Anchors depend on seed, epoch and document alone.
        """
        recipe, config = self.recipe, self.drafter.config
        mask_id = config.mask_token_id if isinstance(config, DFlashConfig) else None
        anchors = [
            draw_anchors(document, recipe.anchors, generator("anchors", recipe.seed, epoch, index))
            for epoch, index, document in documents
        ]
        sizes = [len(each[2].ids) + len(places) * self.block for each, places in zip(documents, anchors, strict=True)]
        made = []
        for group in pack(sizes, recipe.row_tokens):
            row = make_row([documents[i][2] for i in group], [anchors[i] for i in group], self.block, mask_id)
            if recipe.masking == "random":
                row = reveal(row, [generator("reveal", recipe.seed, *documents[i][:2]) for i in group])
            made.append((group, row.to(self.head.device)))
        return made

    def learn(
        self, rows: list[tuple[list[int], Row]], features: list[Features], step: int
    ) -> tuple[StepFigures, float]:
        """Gradients of all rows under one normaliser, then one move of the weights; the figures and gradient norm.

        Of several processes each has rows of its own; all get the same figures and make the same move.
        """
        (normaliser,) = self.ranks.total([sum(float(self._static_weights(row).sum()) for _, row in rows)])
        figures = StepFigures()
        for group, row in rows:
            random = generator("vocabulary", self.recipe.seed, step, row.documents[0].key)
            loss = self._row_loss(row, joined([features[index] for index in group]), figures, random)
            loss = loss / max(normaliser, 1e-9)
            figures.loss += float(loss.detach())
            if not math.isfinite(figures.loss):
                break
            loss.backward()
        figures.add_up(self.ranks)
        if not math.isfinite(figures.loss):
            return figures, math.nan
        self.ranks.sum_gradients(self.named.values())
        return figures, self.optimizers.step(step)

    def _static_weights(self, row: Row) -> Tensor:
        """What the loss is divided by: the weights where they are known, else how many slots count."""
        return row.counts.float() if self.recipe.loss == "d-pace" else decay_weights(row.counts, self.gamma)

    def _row_loss(self, row: Row, features: Features, figures: StepFigures, random: torch.Generator) -> Tensor:
        hidden, counts = self.forward(row, features.taps), row.counts
        teachers = None if features.final is None else features.final[row.teachers[counts]]
        compared = self.vocabulary.compared(row.labels[counts], random)
        losses, hits = slot_losses(hidden[counts], teachers, compared, self.drafter.scale_logits)
        spread_losses = torch.zeros(counts.shape, device=counts.device).masked_scatter(counts, losses.detach())
        spread_hits = torch.zeros_like(counts).masked_scatter(counts, hits)
        tau, hits_by_slot = proxy_tau(spread_hits, counts)
        figures.tau += tau
        figures.blocks += len(counts)
        figures.hits = figures.hits + hits_by_slot
        figures.counts = figures.counts + counts.sum(0)
        paced = self.recipe.loss == "d-pace"
        weights = d_pace_weights(spread_losses, counts) if paced else decay_weights(counts, self.gamma)
        return (losses * weights[counts]).sum()
