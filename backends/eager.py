"""The plain PyTorch backend: SDPA, no wrapper. Every fast backend is tested against it."""

from __future__ import annotations

from backends.attention import Sdpa
from backends.drafter import Drafter
from backends.engine import Engine
from backends.target import Target


def create(
    target: Target, drafter: Drafter | None, *, max_len: int, batch_size: int, before: Engine | None = None
) -> Engine:
    """An eager engine over a loaded pair; runs on any device torch knows."""
    return Engine(target, drafter, Sdpa(), name="eager", max_len=max_len, batch_size=batch_size, before=before)
