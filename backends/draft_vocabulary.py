"""Drafting over a part of the vocabulary: an index of token ids beside a drafter, and the target's head cut to it.

Most of what a draft reads is the target's head. What is verified, and so the text, does not depend on the index.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from backends import DRAFT_VOCABULARY
from backends.config import CheckpointError
from backends.linears import Projections, fuse_for_inference
from backends.target import Target

IDS = "ids"
VOCAB_SIZE = "vocab_size"  # in the file's metadata, as text: the vocabulary that the ids are of


class DraftHead:
    """Reads hidden states out to the logits of some ids only: `ids` [N], in the order of the logits."""

    def __init__(self, target: Target, ids: Tensor) -> None:
        """`ids` [N]: of the target's vocabulary. The rows are copied, and stay the target's own."""
        weight = target.head_weight()
        self.ids = ids.to(weight.device, torch.long)
        rows = _Rows(weight[self.ids])
        fuse_for_inference(rows)
        self._rows = rows.projections

    def __call__(self, hidden: Tensor) -> Tensor:
        """Normed hidden states [..., C] -> logits [..., N]."""
        return self._rows(hidden)[0]


class _Rows(nn.Module):
    """Not part of the drafter's modules, so that its weights are still those of its checkpoint."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.linear = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
        self.linear.weight = nn.Parameter(weight, requires_grad=False)
        self.projections = Projections(self.linear)


def read_draft_ids(folder: Path, vocab_size: int) -> Tensor | None:
    """The index [N] in a drafter's folder, int32 and rising; None where there is none. Raises CheckpointError."""
    path = folder / DRAFT_VOCABULARY
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            names, made_for = list(file.keys()), (file.metadata() or {}).get(VOCAB_SIZE)
            ids = file.get_tensor(IDS) if names == [IDS] else None
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} cannot be read ({error}); it is damaged or partial: {_REMEDY}") from None
    if problem := _problem(names, made_for, ids, vocab_size):
        raise CheckpointError(f"{path} {problem}: {_REMEDY}")
    return ids


_REMEDY = "fetch it again, make a new one, or pass --draft-vocabulary full to do without it"


def _problem(names: list[str], made_for: str | None, ids: Tensor | None, vocab_size: int) -> str | None:
    """What is wrong with an index: found and expected."""
    if ids is None:
        return f"holds {', '.join(names[:3]) or 'no tensor'}; expected one tensor, {IDS}"
    if made_for not in (None, str(vocab_size)):
        return f"is for a vocabulary of {made_for[:20]} ids; the target has {vocab_size}"
    if ids.dtype != torch.int32 or ids.ndim != 1 or not len(ids):
        kind = f"{str(ids.dtype).removeprefix('torch.')} {list(ids.shape)}"
        return f"holds {IDS} as {kind}; expected int32 [N], at least one"
    if len(ids) > 1 and not bool((ids[1:] > ids[:-1]).all()):
        return f"holds {IDS} that do not rise; expected each once, the lowest first"
    low, high = int(ids[0]), int(ids[-1])
    if low < 0 or high >= vocab_size:
        return f"holds the id {low if low < 0 else high}; expected ids from 0 to {vocab_size - 1}"
    return None


def draft_ids_file(ids: Sequence[int], vocab_size: int) -> bytes:
    """What the file holds for these ids, in any order. Raises ValueError for an index that could not be read back."""
    tensor = torch.tensor(sorted(ids), dtype=torch.int32)
    if problem := _problem([IDS], None, tensor, vocab_size):
        raise ValueError(f"this draft vocabulary {problem}")
    return save({IDS: tensor}, metadata={"format": "pt", VOCAB_SIZE: str(vocab_size)})
