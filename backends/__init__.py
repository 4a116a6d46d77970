"""Models and backends of `dflash`: token ids, positions and tensors only. Importing this imports no torch."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backends.base import Backend
    from backends.drafter import Drafter
    from backends.target import Target

BACKENDS = {"eager": "backends.eager"}
"""Name -> module with `create(target, drafter, *, max_len, batch_size) -> Backend`, imported on first use."""


def create_backend(name: str, target: Target, drafter: Drafter | None, *, max_len: int, batch_size: int = 1) -> Backend:
    """Build the backend `name` ("auto" picks one). Raises ValueError for an unknown name, BackendUnavailable."""
    name = "eager" if name == "auto" else name
    if name not in BACKENDS:
        raise ValueError(f"unknown backend {name!r}; this version has: auto, {', '.join(BACKENDS)}")
    backend: Backend = importlib.import_module(BACKENDS[name]).create(
        target, drafter, max_len=max_len, batch_size=batch_size
    )
    return backend
