"""The backend interface: token ids and positions in, logits out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

if TYPE_CHECKING:
    from backends import Choice
    from backends.drafter import Drafter


class BackendUnavailable(ValueError):  # noqa: N818
    """This backend cannot run here; the message says what to install or pass."""


class Backend(Protocol):
    """B batch rows, b block size, V vocabulary, N ids that may be drafted. `start` holds the committed length of each
    row, on the host, each less than `max_len`.

    Cache rows at or past `start` are junk by definition, masked now and overwritten next: so there is no crop and no
    reset, rewinding to a shared prefix is `prefill` with a smaller start, and an interrupt needs no clean-up.
    Logits may be owned by the backend: valid until the next call.
    """

    name: str
    block_size: int
    """Anchor + drafts; 1 = no drafter, so that the baseline is the same loop."""
    max_len: int
    """Cache rows a sequence can hold."""
    drafter: Drafter | None
    """What drafts, if anything does."""
    batch_size: int
    device: torch.device
    dtype: torch.dtype
    quantize: str
    """How the target's weights are kept, one of `backends.QUANTISATIONS`."""
    choice: Choice
    """The name it was made by, and why."""
    widths: tuple[int, ...] | None
    """Widths of verify passes there is code for, a narrower pass costs as much as the next; None: any, as it is."""
    took_over: bool
    """Whether it was made with the caches of another backend, and what they held still counts."""
    draft_ids: Tensor | None
    """[N] the token id of each column of a draft's logits; None: all ids in their order."""
    recompiles: int
    """Graphs that had to be compiled after `warm_up`; 0 as long as all is well."""

    def warm_up(self, progress: Callable[[int, int], None] = ...) -> None:
        """Prepare every shape; `progress(done, total)` may raise to stop it. Keeps what the caches hold."""

    def prefill(self, ids: Tensor, start: int, row: int = 0) -> Tensor:
        """ids [n] placed from `start` in batch row `row` -> logits [V] after the last id."""

    def draft(self, anchors: Tensor, start: Sequence[int]) -> Tensor:
        """anchors [B] at `start` -> logits [B, b-1, N] for the places after them."""

    def verify(self, ids: Tensor, start: Sequence[int]) -> Tensor:
        """ids [B, w] anchor + drafts from `start`, w <= b -> logits [B, w, V]; row k speaks of the place after id k."""


def likeliest(logits: Tensor) -> Tensor:
    """logits [..., N] -> the index of the highest, the first of several [...].

    On a CPU `max` finds it four times faster than `argmax`, which compares one number at a time.
    """
    return logits.max(-1).indices


def likeliest_drafts(backend: Backend, anchors: Tensor, start: Sequence[int], count: int) -> Tensor:
    """anchors [B] at `start` -> the likeliest ids [B, count] for the places after them; count < b."""
    return _ids(backend, likeliest(backend.draft(anchors, start)[:, :count]))


def drafts_and_chances(backend: Backend, anchors: Tensor, start: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The same for a whole block, [B, b-1], and the drafter's own probability of each id, [B, b-1], fp32."""
    logits = backend.draft(anchors, start)
    highest, columns = logits.max(-1)
    return _ids(backend, columns), (highest.float() - logits.float().logsumexp(-1)).exp().nan_to_num(0.0)


def _ids(backend: Backend, columns: Tensor) -> Tensor:
    """Columns of a draft's logits as token ids."""
    return columns if backend.draft_ids is None else backend.draft_ids[columns]


def on_device(
    values: Sequence[int] | Sequence[float], device: torch.device, dtype: torch.dtype | None = None
) -> Tensor:
    """Host numbers as a tensor on a device. On CUDA torch.tensor(..., device=) would wait for all work queued there;
    elsewhere a copy that does not block may read memory that is already freed."""
    return torch.tensor(values, dtype=dtype).to(device, non_blocking=device.type == "cuda")


class Clock:
    """Marks in time on a device, read after the block's one synchronisation.

    CUDA and MPS (Apple's GPU) were not at hand when this was written: those two have not been run yet.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def mark(self) -> float | torch.cuda.Event:
        """Now: a host time, or on CUDA an event in the device's stream. On MPS it waits for the device."""
        if self.device.type == "cuda":
            event = torch.cuda.Event(enable_timing=True)
            event.record(torch.cuda.current_stream(self.device))
            return event
        if self.device.type == "mps":
            torch.mps.synchronize()  # passes only queue work there: without this a mark would tell when it was queued
        return time.perf_counter()

    def ms(self, first: float | torch.cuda.Event, last: float | torch.cuda.Event) -> float:
        """Milliseconds between two marks; both must lie before the last synchronisation."""
        if isinstance(first, float) or isinstance(last, float):
            return (float(last) - float(first)) * 1e3  # type: ignore[arg-type]
        return float(first.elapsed_time(last))
