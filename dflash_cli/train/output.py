"""The trained drafter as others load it: `config.json`, `model.safetensors`, a record of its training and a card."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from backends import DRAFT_VOCABULARY
from backends.draft_vocabulary import draft_ids_file
from dflash_cli.paths import write_together
from dflash_cli.train.card import Trained, card
from dflash_cli.train.draft_vocabulary import write_index
from dflash_cli.train.sittings import FILE, read_sittings, record

WEIGHTS = "model.safetensors"


def write_drafter(
    folder: Path,
    raw: dict[str, Any],
    weights: dict[str, Tensor],
    trained: Trained,
    draft_ids: Sequence[int] | None = None,
) -> None:
    """Write the folder that `--draft FOLDER` takes, bfloat16; `draft_ids`: what it drafts, None for the whole
    vocabulary. Raises DFlashError where it cannot be written, and then what was there stays."""
    tensors = {name: each.detach().to("cpu", torch.bfloat16).contiguous() for name, each in weights.items()}
    files = {
        WEIGHTS: save(tensors, metadata={"format": "pt"}),
        "config.json": (json.dumps(raw, indent=2) + "\n").encode(),
    }
    if draft_ids is None:
        write_index(folder, None, raw["vocab_size"])
    else:
        files[DRAFT_VOCABULARY] = draft_ids_file(draft_ids, raw["vocab_size"])
    # The record comes last: where it names these weights, all of them are there.
    write_together(folder, files | _told(raw, trained))


def write_card(folder: Path, raw: dict[str, Any], trained: Trained) -> None:
    """Write the model card, and the record for the next sitting. Raises DFlashError where they cannot be written."""
    write_together(folder, _told(raw, trained))


def _told(raw: dict[str, Any], trained: Trained) -> dict[str, bytes]:
    return {"README.md": card(raw, trained).encode("utf-8", "replace"), FILE: record(trained.sittings)}


def holds(folder: Path, step: int) -> bool:
    """Whether the weights in a run's `folder` are those of `step`; an older version recorded none, and counts as so."""
    sittings = read_sittings(folder)
    return (folder / WEIGHTS).is_file() and (not sittings or sittings[-1].steps == step)
