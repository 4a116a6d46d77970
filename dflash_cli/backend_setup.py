"""A backend made ready for a loaded pair: built, warmed up where it compiles, and compared with eager."""

from __future__ import annotations

from threading import Thread
from typing import TYPE_CHECKING, Any

from backends import AS_ASKED, COMPILED, Choice, choose_backend, create_backend
from backends.huge_pages import use_huge_pages
from dflash_cli.fetch_progress import steps
from dflash_cli.paths import cache_dir, ensure_private

if TYPE_CHECKING:
    from backends.base import Backend
    from backends.drafter import Drafter
    from dflash_cli.model import Model

TEST_ROWS = 128  # cache rows of the eager twin that a block is compared with


def backend_in_words(choice: Choice) -> str:
    """`eager backend (it starts at once ...)`: the reason only where `auto` chose it."""
    return f"{choice.name} backend" + ("" if choice.reason == AS_ASKED else f" ({choice.reason})")


def fallback_in_words(choice: Choice) -> str:
    """`falling back to eager: the compile backend cannot run here: ...`; empty where nothing else was wanted."""
    return f"falling back to {choice.name}: {choice.reason}" if choice.fell_back else ""


def ready_backend(
    model: Model, drafter: Drafter | None, *, batch_size: int = 1, before: Backend | None = None
) -> Backend:
    """The backend that the settings ask for; `before` is one that is not used any more and may leave its caches.

    Raises BackendUnavailable where it cannot run here or computes something else than eager; `auto` then falls back.
    """
    from backends.base import BackendUnavailable

    name, device = model.config.backend, model.target.model.embed_tokens.weight.device.type
    sizes: dict[str, Any] = {"max_len": model.max_len, "batch_size": batch_size, "cache_from": before}
    # Compiled code is loaded from there: nobody else may write to it.
    compiles = choose_backend(name, device).name in COMPILED
    artefacts = ensure_private(cache_dir() / "compiled") if compiles else None
    backend = create_backend(name, model.target, drafter, artefacts=artefacts, **sizes)
    if backend.name not in COMPILED:
        return backend
    try:
        _warm_up_and_compare(backend, model, drafter)
    except BackendUnavailable as error:
        if name != "auto":
            raise
        choice = Choice("eager", str(error), fell_back=True)
    else:
        return backend
    del backend  # and its memory, before eager takes as much
    backend = create_backend("eager", model.target, drafter, **sizes)
    backend.choice = choice
    return backend


def _warm_up_and_compare(backend: Backend, model: Model, drafter: Drafter | None) -> None:
    from backends.self_test import self_test

    with steps(f"warming up the {backend.name} backend", quiet=model.config.quiet) as advance:
        backend.warm_up(advance)
    twin = create_backend("eager", model.target, drafter, max_len=min(TEST_ROWS, model.max_len))
    self_test(backend, twin)  # type: ignore[arg-type]


def settle(model: Model) -> None:
    """Spend the time in which a person types the first message on what makes a CPU's passes about a tenth faster."""
    if model.target.model.embed_tokens.weight.device.type == "cpu":
        Thread(target=use_huge_pages, name="huge pages", daemon=True).start()
