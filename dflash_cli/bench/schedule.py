"""Acceptance by a schedule, for weights that are random: every pass runs in full, only its outcome is laid down."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dflash_cli.errors import UsageError

if TYPE_CHECKING:
    from backends.base import Backend

TAUS = (4.2, 6.5, 7.87)
"""Acceptance lengths (tokens a verify pass) that are simulated by default."""
CERTAIN = 1e30  # the logit of an id to be chosen: it can still be divided by a small temperature


def accepted_drafts(tau: float, step: int) -> int:
    """Drafts kept by the step-th pass: whole numbers whose mean is tau - 1, as evenly spread as can be."""
    # Rounded: 0.1 and its like are no exact numbers, and a sum of them must not end just below a whole one.
    return int(round((step + 1) * (tau - 1), 6)) - int(round(step * (tau - 1), 6))


class Scheduled:
    """A backend whose target agrees with as many drafts of each block as the schedule says, and no more.

    Drafts and logits are computed as ever; then the logits of the ids to be chosen are raised, on the device, with a
    few small operations that count as part of the verify pass. What comes out is no text.
    """

    def __init__(self, backend: Backend, tau: float) -> None:
        """Raises UsageError for a length that blocks of this size cannot have."""
        if not 1 <= tau <= backend.block_size:
            raise UsageError(f"an acceptance length of {tau:g} is not possible with blocks of {backend.block_size}")
        self.backend, self.tau, self.step = backend, tau, 0
        self.name, self.block_size, self.max_len = backend.name, backend.block_size, backend.max_len
        self.batch_size, self.device, self.dtype = backend.batch_size, backend.device, backend.dtype
        self.choice, self.widths, self.took_over = backend.choice, backend.widths, backend.took_over
        self.draft_ids, self.quantize, self.drafter = backend.draft_ids, backend.quantize, backend.drafter

    @property
    def recompiles(self) -> int:
        """See Backend."""
        return self.backend.recompiles

    def warm_up(self, progress: Callable[[int, int], None] = lambda _done, _total: None) -> None:
        """See Backend."""
        self.backend.warm_up(progress)

    def prefill(self, ids: Tensor, start: int, row: int = 0) -> Tensor:
        """See Backend; an answer begins, so the schedule does, too."""
        self.step = 0
        return self.backend.prefill(ids, start, row)

    @torch.inference_mode()
    def draft(self, anchors: Tensor, start: Sequence[int]) -> Tensor:
        """See Backend. Where probabilities are looked at, on a CPU, the drafter is made sure: what random weights think
        of drafts that are kept by a schedule means nothing."""
        logits = self.backend.draft(anchors, start)
        if self.device.type != "cpu":
            return logits
        return logits.scatter_(-1, logits.argmax(-1, keepdim=True), min(CERTAIN, torch.finfo(logits.dtype).max))

    @torch.inference_mode()
    def verify(self, ids: Tensor, start: Sequence[int]) -> Tensor:
        """ids [B, w] -> logits [B, w, V] whose argmax follows the drafts as far as the schedule says."""
        logits = self.backend.verify(ids, start)
        width = ids.shape[1]
        kept = min(accepted_drafts(self.tau, self.step), width - 1)
        self.step += 1
        chosen = torch.cat((ids[:, 1:], ids[:, :1]), 1)
        if kept < width - 1:
            chosen[:, kept] = (chosen[:, kept] + 1) % logits.shape[-1]
        return logits.scatter_(-1, chosen.unsqueeze(-1), min(CERTAIN, torch.finfo(logits.dtype).max))
