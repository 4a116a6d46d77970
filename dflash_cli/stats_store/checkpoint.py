"""Which weights made an answer: a short hash of a checkpoint, and its quantisation. Imports no torch."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from dflash_cli.errors import DFlashError

READ = 1 << 20  # bytes of each end of a file of weights; all of them would take minutes
DIGITS = 12
_QUANTISED = re.compile(r"(?:^|[-._])(I?Q\d\w*|BF16|F16|F32)(?=\.gguf$)", re.IGNORECASE)


def checkpoint_hash(source: str | None) -> str:
    """Of the checkpoint that a source means now: its settings, and names, sizes and ends of its weights.

    "" where there is no source, or its files can not be found any more. No network.
    """
    from dflash_cli.fetch import cached

    try:
        folder = None if source is None else cached(source)
        return "" if folder is None else _hash(folder)
    except (DFlashError, OSError):
        return ""


def _hash(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted([folder / "config.json", *folder.glob("*.safetensors")]):
        size = path.stat().st_size
        digest.update(f"{path.name} {size}\n".encode())
        with path.open("rb") as file:
            digest.update(file.read(READ))
            file.seek(max(READ, size - READ), os.SEEK_SET)
            digest.update(file.read(READ))
    return digest.hexdigest()[:DIGITS]


def quantisation_of(source: str) -> str:
    """Of a target's weights before they were loaded, as its GGUF file's name tells; "none" for other checkpoints."""
    from dflash_cli.embedded import TARGETS

    embedded = TARGETS.get(source)
    name = source if embedded is None else embedded.member
    found = _QUANTISED.search(name)
    if found is None:
        return "gguf" if name.lower().endswith(".gguf") else "none"
    return found[1].upper()
