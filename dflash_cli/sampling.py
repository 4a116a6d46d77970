"""How the next id is chosen from logits: parameters, and pure functions on tensors. Imports no torch by itself."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


MIN_TEMPERATURE = 1e-5  # below it logits / temperature overflows, and one id has all the probability anyway


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Greedy at temperature 0. Order of processing, as in Hugging Face: repetition and presence penalty, temperature,
    top-k, top-p, min-p.

    `repetition_penalty` r divides positive and multiplies negative logits of ids in prompt or answer (CTRL, arXiv
    1909.05858); `presence_penalty` is subtracted from logits of ids in the answer. `top_k` 0 keeps all.
    The draw at a position depends on `seed` and the position alone: same seed, same text, whatever the block size.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    seed: int | None = None

    def __post_init__(self) -> None:
        checks = (
            ("temperature", self.temperature >= 0, "at least 0"),
            ("top_k", self.top_k >= 0, "at least 0 (0 keeps all)"),
            ("top_p", 0 < self.top_p <= 1, "above 0 and at most 1"),
            ("min_p", 0 <= self.min_p <= 1, "between 0 and 1"),
            ("repetition_penalty", self.repetition_penalty > 0, "above 0 (1 is off)"),
            ("presence_penalty", math.isfinite(self.presence_penalty), "a finite number (0 is off)"),
        )
        for name, good, expected in checks:
            if not good:
                raise ValueError(f"{name} is {getattr(self, name)}; expected {expected}")

    @property
    def greedy(self) -> bool:
        """Whether the choice is an argmax."""
        return self.temperature < MIN_TEMPERATURE

    @property
    def penalises(self) -> bool:
        """Whether the choice depends on the ids before it."""
        return self.repetition_penalty != 1.0 or self.presence_penalty != 0.0


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) that depends on nothing but its arguments (32 bits of BLAKE2b)."""
    digest = hashlib.blake2b(f"{seed}:{position}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") / 2**32


def seen_before_slots(seen: Tensor, block: Tensor) -> Tensor:
    """Ids seen before the place each row speaks of: seen [V] bool, block [w] ids -> [w, V] bool.

    Row k has seen the block's ids 0..k: the anchor and the drafts before that place.
    """
    import torch

    width = block.shape[0]
    rows = seen.repeat(width, 1)
    upto = torch.arange(width, device=block.device)
    # Row k marks block[j] for every j <= k; later slots are replaced by the anchor, which every row has seen.
    ids = torch.where(upto[None, :] <= upto[:, None], block[None, :], block[0])
    return rows.scatter_(1, ids, True)


def penalise(logits: Tensor, params: SamplingParams, seen: Tensor, answered: Tensor) -> Tensor:
    """logits [w, V] -> penalised; seen [w, V]: ids in prompt or answer, answered [w, V]: ids in the answer."""
    import torch

    r = params.repetition_penalty
    if r != 1.0:
        logits = torch.where(seen, torch.where(logits > 0, logits / r, logits * r), logits)
    return logits - params.presence_penalty * answered.to(logits.dtype)


def candidates(logits: Tensor, params: SamplingParams) -> tuple[Tensor, Tensor]:
    """logits [w, V] -> probabilities [w, m] and their ids [w, m], filtered as `params` says.

    In falling order where top-k or top-p need it, else in the vocabulary's: a full sort costs more than a verify pass.
    """
    import torch

    keep = min(params.top_k or logits.shape[-1], logits.shape[-1])
    if keep < logits.shape[-1]:
        values, ids = logits.topk(keep)
    elif params.top_p < 1:
        values, ids = logits.sort(descending=True, stable=True)
    else:
        values, ids = logits, torch.arange(keep, device=logits.device).expand_as(logits)
    probabilities = torch.softmax(values.float() / params.temperature, -1)
    if params.top_p < 1:
        before = probabilities.cumsum(-1) - probabilities
        probabilities = probabilities * (before < params.top_p)
        probabilities = probabilities / probabilities.sum(-1, keepdim=True)
    if params.min_p > 0:
        probabilities = probabilities * (probabilities >= params.min_p * probabilities.amax(-1, keepdim=True))
        probabilities = probabilities / probabilities.sum(-1, keepdim=True)
    return probabilities, ids


def draw(probabilities: Tensor, ids: Tensor, uniforms: Sequence[float]) -> Tensor:
    """One id a row by inverse transform sampling: probabilities and ids [w, m], uniforms [w] in [0, 1) -> [w]."""
    import torch

    from backends.base import on_device

    wide = torch.float32 if probabilities.device.type == "mps" else torch.float64
    cdf = probabilities.to(wide).cumsum(-1)
    at = on_device(uniforms, cdf.device, wide).unsqueeze(1) * cdf[:, -1:]
    # right=True: the first place where the cdf exceeds u, so an id of probability 0 is never drawn.
    index = torch.searchsorted(cdf, at, right=True).clamp_(max=cdf.shape[-1] - 1)
    return ids.gather(1, index).squeeze(1)


def choose(logits: Tensor, params: SamplingParams, uniforms: Sequence[float]) -> Tensor:
    """The target's own id for each row: logits [w, V] (already penalised) -> [w]."""
    from backends.base import likeliest

    if params.greedy:
        return likeliest(logits)
    return draw(*candidates(logits, params), uniforms)


def count_accepted(block: Tensor, choices: Tensor) -> Tensor:
    """Length of the leading run where draft and target agree: block [B, w] (anchor first), choices [B, w] -> [B].

    The proposal is one-hot at every temperature, so keeping a draft exactly when the target drew it, and the target's
    own draw at the first disagreement, leaves the target's distribution untouched.
    """
    return (block[:, 1:] == choices[:, :-1]).int().cumprod(1).sum(1)
