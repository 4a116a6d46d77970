"""Where a pass lies in the cache, and the static K and V buffers it reads and writes."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from backends.base import on_device


class Span:
    """`num_rows` new cache rows for each batch row, the first at `start` (host integers, one a batch row).

    `positions` [B, T] are the absolute positions on the device. `live` is the longest live cache length after the
    pass: nothing at or past it is visible. `length` is how many cache rows are read: the live ones, or more where
    shapes must not follow the text. `row` is the first batch row of the cache it speaks of.
    """

    start: list[int] | None
    live: int | None

    def __init__(
        self, start: Sequence[int], num_rows: int, device: torch.device, row: int = 0, length: int | None = None
    ) -> None:
        self.start, self.row = list(start), row
        self.known_start: Sequence[int] | None = self.start
        self.live = max(self.start) + num_rows
        self.length = self.live if length is None else length
        self._place(on_device(self.start, device), num_rows)

    def _place(self, start: Tensor, num_rows: int) -> None:
        self.num_rows, self.batch_size = num_rows, start.shape[0]
        self.positions = start.unsqueeze(1) + torch.arange(num_rows, device=start.device)
        self.batch_rows = None if self.aligned else torch.arange(self.batch_size, device=start.device).unsqueeze(1)

    @property
    def aligned(self) -> bool:
        """Whether every batch row is known to start at the same place, so that a slice describes the pass."""
        return self.start is not None and min(self.start) == max(self.start)

    def part(self, place: int) -> Span:
        """Its row `place` alone, as a pass of its own that comes after those of the rows before."""
        part = copy.copy(self)
        part.num_rows, part.positions = 1, self.positions[:, place : place + 1]
        if self.start is not None:
            part.start = [each + place for each in self.start]
            part.live = max(part.start) + 1
            part.length = part.live if self.length == self.live else self.length
        return part

    def write(self, buffer: Tensor, rows: Tensor) -> None:
        """Store rows [B, K, T, D] at their places in a buffer [B, K, S, D].

        In half precision an overflow becomes 0: rejected and padded rows are masked, but 0 x inf would be NaN.
        """
        if rows.dtype == torch.float16:
            rows = rows.nan_to_num(0.0, 0.0, 0.0)
        if self.batch_rows is None:
            assert self.start is not None
            buffer[:, :, self.start[0] : self.start[0] + self.num_rows] = rows
        else:
            # An indexed write, not scatter_: scatter_ copies the whole bf16 buffer on the CPU.
            buffer[self.batch_rows, :, self.positions] = rows.transpose(1, 2)


class FixedSpan(Span):
    """A span of all batch rows whose `start` [B] only the device knows: what is computed depends on no host number
    but `length`, so that it can be compiled, or recorded once and replayed anywhere."""

    def __init__(self, start: Tensor, num_rows: int, length: int, known_start: Sequence[int] | None = None) -> None:
        """`known_start`: the same on the host, where it is at hand; nothing of the pass depends on it."""
        self.start, self.live, self.row, self.length = None, None, 0, length
        self.known_start = known_start
        self._place(start, num_rows)


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros whose memory, on a CPU, is only taken when it is first written: torch.zeros touches every page."""
    if device.type != "cpu" or not math.prod(shape):
        return torch.zeros(shape, dtype=dtype, device=device)
    return torch.from_numpy(np.zeros(math.prod(shape) * dtype.itemsize, dtype=np.uint8)).view(dtype).view(shape)


class StaticCache:
    """K and V of all layers, each [B, K, S, D]; rows at or past a sequence's committed length are junk by definition.

    Buffers are zeroed, not left uninitialised: junk is masked, but 0 x NaN would still be NaN. `feature_size`: channels
    of a row's feature, which a drafter may keep besides.
    """

    def __init__(
        self,
        shape: tuple[int, int, int, int],
        num_layers: int,
        dtype: torch.dtype,
        device: torch.device,
        feature_size: int = 0,
    ) -> None:
        self.shape, self.dtype, self.device, self.feature_size = shape, dtype, device, feature_size
        self.k = [_zeros(shape, dtype, device) for _ in range(num_layers)]
        self.v = [_zeros(shape, dtype, device) for _ in range(num_layers)]
        self.features = _zeros((shape[0], 1, shape[2], feature_size), dtype, device)

    @property
    def buffers(self) -> list[Tensor]:
        """All that is held, each [B, ?, S, ?]."""
        return [*self.k, *self.v, self.features]

    def view(self, layer: int, span: Span) -> tuple[Tensor, Tensor]:
        """K and V [B, K, span.length, D] of the span's batch rows: what a pass reads and writes."""
        rows = slice(span.row, span.row + span.batch_size)
        return self.k[layer][rows, :, : span.length], self.v[layer][rows, :, : span.length]

    def write(self, layer: int, span: Span, k: Tensor, v: Tensor) -> None:
        """Store k, v [B, K, T, D] at the span's rows."""
        for buffer, rows in zip(self.view(layer, span), (k, v), strict=True):
            span.write(buffer, rows)

    def write_features(self, span: Span, features: Tensor) -> None:
        """Store features [B, T, C] at the span's rows."""
        rows = slice(span.row, span.row + span.batch_size)
        span.write(self.features[rows], features.unsqueeze(1))

    def feature_before(self, span: Span) -> Tensor:
        """[B, 1, C] of the row before the span's first; zeros where there is none."""
        before = span.positions[:, :1] - 1
        rows = torch.arange(span.row, span.row + span.batch_size, device=self.device).unsqueeze(1)
        return self.features[rows, 0, before.clamp(min=0)] * (before >= 0).unsqueeze(2)

    def resized(self, shape: tuple[int, int, int, int]) -> StaticCache:
        """This cache where it has enough rows, else a longer one that holds what this one does."""
        if self.shape[2] >= shape[2]:
            return self
        other = StaticCache(shape, len(self.k), self.dtype, self.device, self.feature_size)
        for mine, theirs in zip(self.buffers, other.buffers, strict=True):
            theirs[:, :, : self.shape[2]] = mine
        return other

    @contextmanager
    def kept(self, first: int, last: int) -> Iterator[None]:
        """Put rows first..last-1 back as they were when the block is left, however it is left."""
        before = [buffer[:, :, first:last].clone() for buffer in self.buffers]
        try:
            yield
        finally:
            for buffer, rows in zip(self.buffers, before, strict=True):
                buffer[:, :, first:last] = rows
