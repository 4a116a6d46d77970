"""Whether a folder is a whole checkpoint, told from its file names and without reading weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from backends import DRAFT_VOCABULARY
from backends.config import is_drafter

INDEX = "model.safetensors.index.json"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")


def problem_with(folder: Path) -> str | None:
    """What is wrong with a checkpoint folder and what to do about it, or None where everything needed is there."""
    config = read_json(folder / "config.json")
    if config is None:
        return "has no readable config.json; expected a checkpoint with config.json and *.safetensors"
    missing = _missing_weights(folder)
    if missing:
        return f"lacks {', '.join(missing[:3])}, which {INDEX} names; fetch the whole checkpoint"
    if all(path.name == DRAFT_VOCABULARY for path in folder.glob("*.safetensors")):
        return _no_weights(folder)
    return None


def has_tokenizer(folder: Path) -> bool:
    """Whether the folder has a tokenizer, or is a drafter, which needs none."""
    return (folder / "tokenizer.json").is_file() or is_drafter(read_json(folder / "config.json") or {})


def _no_weights(folder: Path) -> str:
    if any(next(folder.glob(pattern), None) for pattern in PICKLES):
        return (
            "has its weights only as pickle files, which can run code and are never loaded; "
            "convert them to safetensors (save_pretrained of transformers does)"
        )
    return "has no *.safetensors file; expected a checkpoint with config.json and *.safetensors"


def _missing_weights(folder: Path) -> list[str]:
    index = read_json(folder / INDEX)
    names = index.get("weight_map") if index else None
    if not isinstance(names, dict):
        return []
    return sorted(name for name in set(names.values()) if not (folder / str(name)).is_file())


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file, or None where there is none."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None
