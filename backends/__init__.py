"""Models and backends of `dflash`: token ids, positions and tensors only. Importing this imports no torch."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backends.base import Backend
    from backends.drafter import Drafter
    from backends.target import Target

BACKENDS = {"eager": "backends.eager", "compile": "backends.compiled", "flex": "backends.flex"}
"""Name -> module with `create(target, drafter, *, max_len, batch_size, before)`, imported on first use."""

COMPILED = ("compile", "flex")
"""Those that have a warm-up, and take `artefacts` and `widths`."""

DRAFT_VOCABULARY = "draft_vocabulary.safetensors"
"""The file beside a drafter's weights with the ids it drafts; see `backends.draft_vocabulary`."""

QUANTISATIONS = ("none", "int8", "int4")
"""How the weights of a target's projections and head can be kept."""

AUTO = {
    "cpu": ("eager", "starts at once; compile is faster after a warm-up"),
    "cuda": ("eager", "`compile` and `flex` have not been tried on a GPU yet"),
}
"""Device type -> what `auto` takes there, and why."""


AS_ASKED = "as asked"


@dataclass(frozen=True)
class Choice:
    """A backend by name, and why it was chosen: a half-sentence for people."""

    name: str
    reason: str
    fell_back: bool = False
    """Whether another one was wanted, and cannot run here."""


def choose_backend(name: str, device: str) -> Choice:
    """What `name` means on a device type ("cpu", "cuda", "mps"). Raises ValueError for an unknown name."""
    if name == "auto":
        return Choice(*AUTO.get(device, ("eager", f"the only one for {device}")))
    if name not in BACKENDS:
        raise ValueError(f"unknown backend {name!r}; this version has: auto, {', '.join(BACKENDS)}")
    return Choice(name, AS_ASKED)


def create_backend(
    name: str,
    target: Target,
    drafter: Drafter | None,
    *,
    max_len: int,
    batch_size: int = 1,
    cache_from: Backend | None = None,
    artefacts: Path | None = None,
    widths: Sequence[int] | None = None,
) -> Backend:
    """Build the backend `name`. Its `choice` says which one it became and why: "auto" falls back to eager.

    `cache_from`: a backend that is not used any more; where target and sizes are the same its caches are taken over,
    and `took_over` says whether what they held still counts. `artefacts`: a folder for compiled code; `widths`: rows
    of verify passes to compile for (both mean nothing to eager). Raises ValueError for an unknown name,
    BackendUnavailable where it was asked for by name and cannot run here.
    """
    from backends.base import BackendUnavailable

    choice = choose_backend(name, target.model.embed_tokens.weight.device.type)
    sizes = {"max_len": max_len, "batch_size": batch_size, "before": cache_from}
    extras = {"artefacts": artefacts, "widths": widths} if choice.name in COMPILED else {}
    try:
        backend: Backend = importlib.import_module(BACKENDS[choice.name]).create(target, drafter, **sizes, **extras)
    except BackendUnavailable as error:
        if name != "auto":
            raise
        choice = Choice("eager", str(error), fell_back=True)
        backend = importlib.import_module(BACKENDS["eager"]).create(target, drafter, **sizes)
    backend.choice = choice
    return backend
