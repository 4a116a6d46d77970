"""What a drafter is trained to make small. The frozen head is read in chunks, so no [slots, V] tensor ever exists.

w(k) = exp(-(k - 1) / gamma) for slot k (arXiv 2602.06036, section 4.2); d-pace weights: arXiv 2605.18810.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from dflash_cli.train.loss_vocabulary import Compared

CHUNK_VALUES = 1 << 24  # logits computed at once: 256 rows of a vocabulary of 64 Ki
D_PACE_ALPHA = 0.5

Scale = Callable[[Tensor], Tensor]


class SlotLosses(NamedTuple):
    """Of n slots: the loss of each, with a gradient, and whether its label was the likeliest of those compared with."""

    losses: Tensor
    hits: Tensor


class ChunkedHead(torch.autograd.Function):
    """Hidden states -> loss of each slot. Gradients of the slots are made on the way, chunk by chunk, and kept."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        labels: Tensor,
        teachers: Tensor | None,
        head: Tensor,
        raised: Tensor | None,
        scale: Scale,
    ) -> tuple[Tensor, Tensor]:
        """hidden [n, C], labels [n], teachers [n, C], head [V, C], raised [V] -> losses [n] in fp32, hits [n]."""
        count, chunk = len(hidden), max(1, min(len(hidden), CHUNK_VALUES // len(head)))
        gradients, losses = torch.empty_like(hidden), torch.empty(count, device=hidden.device)
        hits = torch.empty(count, dtype=torch.bool, device=hidden.device)
        # The two large tensors are made once: on a CPU new memory costs more than what is computed in it.
        narrow = hidden.new_empty(chunk, len(head))
        wide = torch.empty(narrow.shape, device=hidden.device)
        for first in range(0, count, chunk):
            part = slice(first, min(first + chunk, count))
            raw, q = narrow[: part.stop - first], wide[: part.stop - first]
            torch.mm(hidden[part], head.T, out=raw)
            scaled = scale(raw)
            q.copy_(scaled)
            hits[part] = (q.gather(1, labels[part, None]) >= q.amax(1, keepdim=True)).squeeze(1)
            if raised is not None:
                q += raised
            if teachers is None:
                losses[part] = _cross_entropy(q, labels[part])
            else:
                p = F.linear(teachers[part], head).float()
                losses[part] = _divergence(q, p if raised is None else p + raised)
            outer = q.to(raw.dtype) if scaled is not raw else raw.copy_(q)
            torch.mm(_before_scale(scale, hidden[part], head, outer, scaled is raw), head, out=gradients[part])
        ctx.save_for_backward(gradients)
        ctx.mark_non_differentiable(hits)
        return losses, hits

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        """See torch. A slot's loss depends on its own hidden state alone, so the chain rule is one product."""
        (gradients,) = ctx.saved_tensors
        return (gradients * outer[0].unsqueeze(1)).to(gradients.dtype), None, None, None, None, None


def _before_scale(scale: Scale, hidden: Tensor, head: Tensor, outer: Tensor, is_plain: bool) -> Tensor:
    """The gradient of the logits before `scale`, from that after it."""
    if is_plain:
        return outer
    with torch.enable_grad():
        raw = F.linear(hidden, head).detach().requires_grad_()
        (gradient,) = torch.autograd.grad(scale(raw), raw, outer)
    return gradient


def _cross_entropy(q: Tensor, labels: Tensor) -> Tensor:
    """Against the token the target wrote: logits q [n, V] -> losses [n]; q becomes the logits' gradient."""
    own, highest = q.gather(1, labels[:, None]), q.amax(1, keepdim=True)
    total = q.sub_(highest).exp_().sum(1, keepdim=True)
    q.div_(total).scatter_add_(1, labels[:, None], -torch.ones_like(own))
    return (total.log() + highest - own).squeeze(1)


def _divergence(q: Tensor, p: Tensor) -> Tensor:
    """Kullback-Leibler divergence of the target's distribution (logits p) from the drafter's; else as above."""
    p_log, q_log = p.log_softmax(1), q.log_softmax(1)
    wanted = p_log.exp()
    q.copy_(q_log.exp() - wanted)
    return (wanted * (p_log - q_log)).sum(1)


def slot_losses(hidden: Tensor, teachers: Tensor | None, compared: Compared, scale: Scale) -> SlotLosses:
    """hidden [n, C] -> the loss of each slot: divergence where there are teachers [n, C] (hidden states of the
    target), else cross-entropy. `scale`: what becomes of the drafter's logits."""
    head, raised, labels = compared
    return SlotLosses(*ChunkedHead.apply(hidden, labels, teachers, head, raised, scale))  # type: ignore[no-untyped-call]


def decay_weights(counts: Tensor, gamma: float) -> Tensor:
    """counts [A, b - 1] -> the weight of each slot, 0 where it does not count."""
    steps = torch.arange(counts.shape[1], device=counts.device)
    return torch.exp(-steps / gamma) * counts


def d_pace_weights(losses: Tensor, counts: Tensor, alpha: float = D_PACE_ALPHA) -> Tensor:
    """losses, counts [A, b - 1] -> w_j = sum over m >= j of the products of q up to m, q = (1 - a) exp(-loss) + a.

    How much a slot matters is how likely the block is still alive there, and all after it.
    """
    smoothed = ((1 - alpha) * torch.exp(-losses.detach()) + alpha) * counts
    alive = smoothed.cumprod(1)
    return alive.flip(1).cumsum(1).flip(1) * counts


def proxy_tau(hits: Tensor, counts: Tensor) -> tuple[float, Tensor]:
    """hits, counts [A, b - 1] -> the sum over blocks of 1 + leading hits, and the hits by slot [b - 1]."""
    leading = (hits & counts).int().cumprod(1)
    return float(len(hits) + leading.sum()), (hits & counts).sum(0)
