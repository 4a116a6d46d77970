"""Reading a GGUF file: header, metadata and tensor rows, with every length checked against the file.

The format is that of https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. The package `gguf` names the types and
dequantises; its own reader takes the lengths in a damaged header at their word (a wrong array length can make it loop
for hours), so the header is walked here.
"""

from __future__ import annotations

import math
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_DIMS = 4
STRING, ARRAY = 8, 9
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
SMALLEST_ENTRY = 13  # bytes of the shortest key-value pair: an empty name, its type, one byte


class GGUFError(ValueError):
    """A GGUF file that cannot be used: the message says what was found, what was expected and what to do."""


@dataclass(frozen=True)
class TensorInfo:
    """Where a tensor lies. `shape` is the row-major one (`[out, in]`), `offset` and `num_bytes` are in the file."""

    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int
    num_bytes: int


@dataclass(frozen=True)
class GGUFFile:
    """The header of a GGUF file: `metadata` by key and `tensors` by name, in the file's order."""

    path: Path
    metadata: dict[str, object]
    tensors: dict[str, TensorInfo]

    @classmethod
    def open(cls, path: Path) -> GGUFFile:
        """Read and check the header. Raises GGUFError for anything that is not a whole, little-endian GGUF file."""
        try:
            with path.open("rb") as file:
                return _read_header(path, _Cursor(file, path))
        except OSError as err:
            raise GGUFError(f"{path} cannot be read: {err.strerror or err}") from err

    @property
    def bfloat16_bytes(self) -> int:
        """Bytes of all tensors once dequantised to bfloat16."""
        return sum(2 * math.prod(info.shape) for info in self.tensors.values())

    def read_rows(self, file: BinaryIO, info: TensorInfo, first: int, last: int) -> npt.NDArray[np.float32]:
        """Rows `first` to `last` (not included) of a tensor, dequantised: float32 `[last - first, ...]`."""
        from gguf.quants import dequantize

        num_rows = info.shape[0]
        row_bytes = info.num_bytes // num_rows
        file.seek(info.offset + first * row_bytes)
        raw = np.frombuffer(file.read((last - first) * row_bytes), dtype=np.uint8)
        if raw.nbytes != (last - first) * row_bytes:
            raise GGUFError(f"{self.path} ended while {info.name} was read: it was changed or cut; fetch it again")
        rows = dequantize(raw.reshape(last - first, row_bytes), _kind(info.kind))
        values = np.asarray(rows, dtype=np.float32).reshape(last - first, *info.shape[1:])
        if not np.isfinite(values).all():
            raise GGUFError(f"{self.path}: tensor {info.name} holds values that are not numbers; the file is damaged")
        return values


def gguf_metadata(path: Path) -> dict[str, object]:
    """Every metadata key of a GGUF file (numbers, strings, booleans, lists of them). Raises GGUFError."""
    return GGUFFile.open(path).metadata


class _Cursor:
    """Reads values from the header and refuses to run past the end of the file."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self.file = file
        self.path = path
        self.size = os.fstat(file.fileno()).st_size
        self.position = 0

    def take(self, count: int) -> bytes:
        self.expect(count)
        data = self.file.read(count)
        self.position += count
        return data

    def expect(self, count: int) -> None:
        """There must be `count` more bytes."""
        if count > self.size - self.position:
            raise GGUFError(
                f"{self.path} is damaged or cut short: its header needs {count} bytes at byte {self.position}, "
                f"the file has {self.size}; fetch it again"
            )

    def scalar(self, code: str) -> Any:
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]

    def string(self) -> str:
        # Some vocabularies hold pieces of characters; the tokenizers that are supported here never do.
        return self.take(self.scalar("Q")).decode("utf-8", errors="replace")

    def value(self, kind: int) -> object:
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            return self.array()
        if kind in SCALARS:
            return self.scalar(SCALARS[kind])
        raise GGUFError(f"{self.path} is damaged: metadata of type {kind} at byte {self.position}; fetch it again")

    def array(self) -> list[Any]:
        kind, length = self.scalar("I"), self.scalar("Q")
        if kind == STRING:
            self.expect(8 * length)
            return [self.string() for _ in range(length)]
        if kind not in SCALARS:
            raise GGUFError(
                f"{self.path} has an array of type {kind} at byte {self.position}, which no model file uses"
            )
        width = struct.calcsize("<" + SCALARS[kind])
        self.expect(width * length)
        return list(struct.unpack(f"<{length}{SCALARS[kind]}", self.take(width * length)))


def _read_header(path: Path, cursor: _Cursor) -> GGUFFile:
    _check_magic(path, cursor)
    num_tensors, num_keys = cursor.scalar("Q"), cursor.scalar("Q")
    cursor.expect((num_tensors + num_keys) * SMALLEST_ENTRY)
    metadata: dict[str, object] = {}
    for _ in range(num_keys):
        key = cursor.string()
        metadata[key] = cursor.value(cursor.scalar("I"))
    infos = [_tensor_info(cursor) for _ in range(num_tensors)]
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1:
        raise GGUFError(f"{path} is damaged: general.alignment is {alignment!r}; fetch it again")
    start = math.ceil(cursor.position / alignment) * alignment
    tensors = {info.name: _placed(path, info, start, cursor.size) for info in infos}
    if len(tensors) != num_tensors:
        raise GGUFError(f"{path} is damaged: two tensors share a name; fetch it again")
    return GGUFFile(path, metadata, tensors)


def _check_magic(path: Path, cursor: _Cursor) -> None:
    if cursor.size < len(MAGIC) + 20 or cursor.take(len(MAGIC)) != MAGIC:
        raise GGUFError(f"{path} is not a GGUF file: it does not begin with a GGUF header")
    version = cursor.scalar("I")
    if version not in VERSIONS:
        what = "is big-endian" if version & 0xFFFF == 0 else f"has version {version}"
        raise GGUFError(f"{path} {what}; supported are little-endian GGUF files of version 2 and 3: convert it anew")


def _tensor_info(cursor: _Cursor) -> TensorInfo:
    """A tensor as the header has it; `offset` is still relative to the start of the tensor data."""
    name, num_dims = cursor.string(), cursor.scalar("I")
    if not 1 <= num_dims <= MAX_DIMS:
        raise GGUFError(f"{cursor.path} is damaged: tensor {name!r} has {num_dims} dimensions; fetch it again")
    shape = tuple(reversed([int(cursor.scalar("Q")) for _ in range(num_dims)]))
    kind, offset = cursor.scalar("I"), cursor.scalar("Q")
    return TensorInfo(name, shape, kind, offset, 0)


def _placed(path: Path, info: TensorInfo, start: int, file_size: int) -> TensorInfo:
    from gguf.constants import GGML_QUANT_SIZES

    block, block_bytes = GGML_QUANT_SIZES[_kind(info.kind, f"{path}: tensor {info.name}")]
    if 0 in info.shape or info.shape[-1] % block or (block > 1 and len(info.shape) == 1):
        raise GGUFError(f"{path} is damaged: tensor {info.name!r} has the shape {list(info.shape)}; fetch it again")
    num_bytes = math.prod(info.shape) // block * block_bytes
    end = start + info.offset + num_bytes
    if end > file_size:
        raise GGUFError(
            f"{path} is cut short: tensor {info.name} ends at byte {end}, the file has {file_size}; fetch it again"
        )
    return TensorInfo(info.name, info.shape, info.kind, start + info.offset, num_bytes)


def _kind(kind: int, where: str = "tensor") -> Any:
    from gguf.constants import GGMLQuantizationType

    try:
        return GGMLQuantizationType(kind)
    except ValueError as err:
        raise GGUFError(f"{where} has the unknown quantisation type {kind}; update the package gguf") from err
