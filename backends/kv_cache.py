"""Where a pass lies in the cache, and the static K and V buffers it reads and writes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from backends.base import on_device


class Span:
    """`num_rows` new cache rows for each batch row, the first at `start` (host integers, one a batch row).

    `positions` [B, T] are the absolute positions on the device; `length` is the longest live cache length after the
    pass: nothing at or past it needs to be read. `row` is the first batch row of the cache it speaks of.
    """

    def __init__(self, start: Sequence[int], num_rows: int, device: torch.device, row: int = 0) -> None:
        self.start, self.num_rows, self.row = list(start), num_rows, row
        self.length = max(self.start) + num_rows
        steps = torch.arange(num_rows, device=device)
        self.positions = on_device(self.start, device).unsqueeze(1) + steps

    @property
    def aligned(self) -> bool:
        """Whether every batch row starts at the same place, so that a slice describes the pass."""
        return min(self.start) == max(self.start)


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros whose memory, on a CPU, is only taken when it is first written: torch.zeros touches every page."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    return torch.from_numpy(np.zeros(math.prod(shape) * dtype.itemsize, dtype=np.uint8)).view(dtype).view(shape)


class StaticCache:
    """K and V of all layers, each [B, K, S, D]; rows at or past a sequence's committed length are junk by definition.

    Buffers are zeroed, not left uninitialised: junk is masked, but 0 x NaN would still be NaN.
    """

    def __init__(self, shape: tuple[int, int, int, int], num_layers: int, dtype: torch.dtype, device: torch.device):
        self.k = [_zeros(shape, dtype, device) for _ in range(num_layers)]
        self.v = [_zeros(shape, dtype, device) for _ in range(num_layers)]
        self.batch_rows = torch.arange(shape[0], device=device).unsqueeze(1)

    def write(self, layer: int, span: Span, k: Tensor, v: Tensor) -> None:
        """Store k, v [B, K, T, D] at the span's rows."""
        for buffer, rows in ((self.k[layer], k), (self.v[layer], v)):
            live = buffer[span.row : span.row + rows.shape[0]]
            if span.aligned:
                live[:, :, span.start[0] : span.length] = rows
            else:
                # index_put_, not scatter_: scatter_ copies the whole bf16 buffer on the CPU.
                live.transpose(1, 2).index_put_(
                    (self.batch_rows[: rows.shape[0]], span.positions), rows.transpose(1, 2)
                )

    def read(self, layer: int, span: Span) -> tuple[Tensor, Tensor]:
        """K and V [B, K, span.length, D]: the live part."""
        rows = slice(span.row, span.row + len(span.start))
        return self.k[layer][rows, :, : span.length], self.v[layer][rows, :, : span.length]
