"""The trained drafter as others load it: `config.json`, `model.safetensors`, a record of its training and a card."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from dflash_cli.paths import ensure_private, write_private
from dflash_cli.train.card import Trained, card
from dflash_cli.train.draft_vocabulary import write_index
from dflash_cli.train.sittings import FILE, record


def write_drafter(
    folder: Path,
    raw: dict[str, Any],
    weights: dict[str, Tensor],
    trained: Trained,
    draft_ids: Sequence[int] | None = None,
) -> None:
    """Write the folder that `--draft FOLDER` takes, bfloat16; `draft_ids`: what it drafts, None for the whole
    vocabulary. Raises DFlashError where it cannot be written."""
    ensure_private(folder)
    tensors = {name: each.detach().to("cpu", torch.bfloat16).contiguous() for name, each in weights.items()}
    write_private(folder / "model.safetensors", save(tensors, metadata={"format": "pt"}))
    write_private(folder / "config.json", (json.dumps(raw, indent=2) + "\n").encode())
    write_index(folder, draft_ids, raw["vocab_size"])
    write_card(folder, raw, trained)


def write_card(folder: Path, raw: dict[str, Any], trained: Trained) -> None:
    """Write the model card, and the record for the next sitting. Raises DFlashError where they cannot be written."""
    write_private(folder / FILE, record(trained.sittings))
    write_private(folder / "README.md", card(raw, trained).encode("utf-8", "replace"))
