"""Passes recorded as CUDA graphs: one launch a pass instead of hundreds. Written without a GPU; not yet run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Pass = Callable[[str, int, Tensor, Tensor], Tensor]
"""(kind, cache rows read, ids [B, T], start [B]) -> logits; computed on the device from these alone."""

REHEARSALS = 3  # runs before a recording: compile, tune, and let libraries allocate what they need


class Recordings:
    """Passes by kind and shape, each recorded when it first comes. Logits are the recording's own: valid until the
    next pass, whatever its kind, because all recordings share one pool of memory."""

    def __init__(self, run: Pass) -> None:
        self.run = run
        self.recorded: dict[tuple[str, int, int], _Recording] = {}
        self.pool: Any = None

    def __len__(self) -> int:
        return len(self.recorded)

    def __call__(self, kind: str, length: int, ids: Tensor, start: Tensor) -> Tensor:
        key = (kind, ids.shape[1], length)
        if key not in self.recorded:
            self.recorded[key] = self._record(kind, length, ids, start)
        return self.recorded[key].replay(ids, start)

    def _record(self, kind: str, length: int, ids: Tensor, start: Tensor) -> _Recording:
        with torch.cuda.device(ids.device):
            self.pool = self.pool or torch.cuda.graph_pool_handle()
            return _Recording(lambda ids, start: self.run(kind, length, ids, start), ids, start, self.pool)


class _Recording:
    """One CUDA graph with the tensors it reads and the logits it leaves. Runs again write the same cache rows again."""

    def __init__(self, run: Callable[[Tensor, Tensor], Tensor], ids: Tensor, start: Tensor, pool: Any) -> None:
        self.ids, self.start, self.graph = ids.clone(), start.clone(), torch.cuda.CUDAGraph()
        here, side = torch.cuda.current_stream(), torch.cuda.Stream()
        side.wait_stream(here)
        with torch.cuda.stream(side):
            for _ in range(REHEARSALS):
                run(self.ids, self.start)
        here.wait_stream(side)
        with torch.cuda.graph(self.graph, pool=pool):
            self.logits = run(self.ids, self.start)

    def replay(self, ids: Tensor, start: Tensor) -> Tensor:
        """Logits for other ids and places."""
        self.ids.copy_(ids)
        self.start.copy_(start)
        self.graph.replay()
        return self.logits
