"""A training run on disk: one safetensors file with a JSON header, replaced whole or not at all. Never pickle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from dflash_cli.errors import DFlashError
from dflash_cli.paths import write_private

VERSION = 1


def save_checkpoint(path: Path, tensors: dict[str, dict[str, Tensor]], state: dict[str, Any]) -> None:
    """Write groups of named tensors and a JSON state. Raises DFlashError; the file before it then stays."""
    flat = {
        f"{group}:{name}": each.detach().cpu().contiguous()
        for group, part in tensors.items()
        for name, each in part.items()
    }
    header = {"state": json.dumps({"version": VERSION, **state})}
    write_private(path, save(flat, metadata=header))


def load_checkpoint(path: Path) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
    """The groups and the state that were saved. Raises DFlashError for a damaged file or another version's."""
    try:
        with safe_open(path, framework="pt") as file:
            state = json.loads((file.metadata() or {})["state"])
            # Copied: the file is mapped, and will be replaced.
            flat = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise DFlashError(
            f"the checkpoint {path} cannot be read ({error}); remove it to begin again, or restore a copy"
        ) from None
    if not isinstance(state, dict) or state.get("version") != VERSION:
        raise DFlashError(f"the checkpoint {path} was written by another version of dflash; remove it to begin again")
    groups: dict[str, dict[str, Tensor]] = {}
    for full, tensor in flat.items():
        group, _, name = full.partition(":")
        groups.setdefault(group, {})[name] = tensor
    return groups, state
