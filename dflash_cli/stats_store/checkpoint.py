"""Which weights made an answer: a short hash of a checkpoint, and its quantisation. Imports no torch."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from dflash_cli.errors import DFlashError

READ = 4096  # bytes of the beginning, middle and end of each tensor; all of them would take minutes
LARGEST_HEADER = 100_000_000  # bytes; more is no safetensors file
DIGITS = 12
_QUANTISED = re.compile(r"(?:^|[-._])(I?Q\d\w*|BF16|F16|F32)(?=\.gguf$)", re.IGNORECASE)


def checkpoint_hash(source: str | None) -> str:
    """Of the checkpoint that a source means now: its settings, and of its weights all names, shapes and samples.

    Each tensor is sampled: training changes tensors everywhere, but it may leave some of them alone. The same weights
    have the same hash wherever and whenever they were written. "" where there is no source, or its files can not be
    found any more. No network.
    """
    from dflash_cli.fetch import cached

    try:
        folder = None if source is None else cached(source)
        return "" if folder is None else _hash(folder)
    except (DFlashError, OSError, ValueError, LookupError, TypeError, AttributeError):  # damaged since it was loaded
        return ""


def _hash(folder: Path) -> str:
    digest = hashlib.sha256((folder / "config.json").read_bytes())
    for path in sorted(folder.glob("*.safetensors")):
        digest.update(f"{path.name} {path.stat().st_size}\n".encode())
        with path.open("rb") as file:
            for piece in _pieces(file):
                digest.update(piece)
    return digest.hexdigest()[:DIGITS]


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    """The header of a safetensors file, then the samples of each tensor. Raises ValueError where it is none."""
    size = int.from_bytes(file.read(8), "little")
    if size > LARGEST_HEADER:
        raise ValueError("this is no safetensors file")
    header = file.read(size)
    yield header
    entries = json.loads(header)
    for name in sorted(entries.keys() - {"__metadata__"}):
        begin, end = (8 + size + int(offset) for offset in entries[name]["data_offsets"])
        for place in sorted({begin, max(begin, (begin + end - READ) // 2), max(begin, end - READ)}):
            file.seek(place)
            yield file.read(min(READ, end - place))


def quantisation_of(source: str, quantize: str = "none") -> str:
    """Of a target's weights: before they were loaded, as its GGUF file's name tells ("none" for other checkpoints), and
    as `quantize` has it: `Q4_1`, `int8`, `Q4_1+int8`."""
    stored = _stored(source)
    return stored if quantize == "none" else quantize if stored == "none" else f"{stored}+{quantize}"


def _stored(source: str) -> str:
    from dflash_cli.embedded import TARGETS

    embedded = TARGETS.get(source)
    name = source if embedded is None else embedded.member
    found = _QUANTISED.search(name)
    if found is None:
        return "gguf" if name.lower().endswith(".gguf") else "none"
    return found[1].upper()
