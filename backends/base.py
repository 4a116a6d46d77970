"""The backend interface: token ids and positions in, logits out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor


class BackendUnavailable(ValueError):  # noqa: N818
    """This backend cannot run here; the message says what to install or pass."""


class Backend(Protocol):
    """B batch rows, b block size, V vocabulary. `start` holds the committed length of each row, on the host.

    Cache rows at or past `start` are junk by definition, masked now and overwritten next: so there is no crop and no
    reset, rewinding to a shared prefix is `prefill` with a smaller start, and an interrupt needs no clean-up.
    Logits may be owned by the backend: valid until the next call.
    """

    name: str
    block_size: int
    """Anchor + drafts; 1 = no drafter, so that the baseline is the same loop."""
    max_len: int
    """Cache rows a sequence can hold."""
    batch_size: int
    device: torch.device
    dtype: torch.dtype

    def prefill(self, ids: Tensor, start: int, row: int = 0) -> Tensor:
        """ids [n] placed from `start` in batch row `row` -> logits [V] after the last id."""

    def draft(self, anchors: Tensor, start: Sequence[int]) -> Tensor:
        """anchors [B] at `start` -> logits [B, b-1, V] for the places after them."""

    def verify(self, ids: Tensor, start: Sequence[int]) -> Tensor:
        """ids [B, w] anchor + drafts from `start`, w <= b -> logits [B, w, V]; row k speaks of the place after id k."""


def on_device(
    values: Sequence[int] | Sequence[float], device: torch.device, dtype: torch.dtype | None = None
) -> Tensor:
    """Host numbers as a tensor on a device. On CUDA torch.tensor(..., device=) would wait for all work queued there;
    elsewhere a copy that does not block may read memory that is already freed."""
    return torch.tensor(values, dtype=dtype).to(device, non_blocking=device.type == "cuda")


class Clock:
    """Marks in time on a device, read after the block's one synchronisation."""

    def __init__(self, device: torch.device) -> None:
        self.on_cuda = device.type == "cuda"

    def mark(self) -> float | torch.cuda.Event:
        """Now: a host time, or an event in the CUDA stream."""
        if not self.on_cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def ms(self, first: float | torch.cuda.Event, last: float | torch.cuda.Event) -> float:
        """Milliseconds between two marks; both must lie before the last synchronisation."""
        if isinstance(first, float) or isinstance(last, float):
            return (float(last) - float(first)) * 1e3  # type: ignore[arg-type]
        return float(first.elapsed_time(last))
