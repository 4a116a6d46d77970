"""The adaptive width of a loaded pair (`--block auto`): what passes cost here, and the choice that goes on from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dflash_cli.costs import CostsKey, of_machine
from dflash_cli.depth import Depth
from dflash_cli.paths import cache_dir

if TYPE_CHECKING:
    from backends.base import Backend
    from dflash_cli.models import Pair


class Adaptive:
    """Makes the `Depth` of a backend when it is first asked for; it is the same one from then on."""

    def __init__(self, pair: Pair, backend: Backend) -> None:
        self._pair, self._backend = pair, backend
        self._depth: Depth | None = None

    def __call__(self, start: int) -> Depth:
        """`start`: from where on the cache holds nothing; junk is written there where costs must be measured first."""
        if self._depth is None:
            from backends.base import Clock

            backend = self._backend
            path = cache_dir() / "costs.json"
            costs = of_machine(path, self._key(), backend, Clock(backend.device), start)
            self._depth = Depth(backend.block_size, costs, backend.widths)
        return self._depth

    def _key(self) -> CostsKey:
        import torch

        from dflash_cli import __version__
        from dflash_cli.bench.machine import machine

        backend, facts = self._backend, machine(str(self._backend.device))
        drafter = backend.drafter
        shape = "" if drafter is None else f", blocks of {backend.block_size}, {drafter.config.num_layers} layers"
        part = "" if backend.draft_ids is None else f", {len(backend.draft_ids)} ids"
        kept = "" if backend.quantize == "none" else f", {backend.quantize}"
        return CostsKey(
            target=self._pair.target,
            drafter=f"{self._pair.drafter or ''}{shape}{part}",
            backend=backend.name,
            device=f"{backend.device} {facts.get('gpu') or facts['cpu']}",
            dtype=f"{str(backend.dtype).removeprefix('torch.')}{kept}",
            threads=torch.get_num_threads(),
            batch_size=backend.batch_size,
            version=f"{__version__}, torch {torch.__version__}",
        )
