"""What the steps of a run depend on: saved with it, and compared where it goes on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from dflash_cli.errors import DFlashError
from dflash_cli.train.precision import check_precision, precision
from dflash_cli.train.recipe import Recipe

if TYPE_CHECKING:
    from backends.target import Target


@dataclass(frozen=True)
class RunFacts:
    """`data`: its fingerprint. `config`: the drafter's. `checkpoint`: the target's `checkpoint_hash`."""

    recipe: Recipe
    data: str
    config: dict[str, Any]
    target: Target
    checkpoint: str

    def as_dict(self) -> dict[str, Any]:
        """As it is saved, with the number of threads."""
        return {
            "recipe": self.recipe.as_dict(),
            "data": self.data,
            "config": self.config,
            "target": precision(self.target),
            "checkpoint": self.checkpoint,
            "threads": torch.get_num_threads(),
        }

    def check(self, saved: dict[str, Any], out: Path) -> None:
        """Raises DFlashError where the run that was saved in `out` is another. It may have another length."""
        if differing := self.recipe.differences(saved["recipe"]):
            name = differing[0]
            raise DFlashError(
                f"{out} holds a run with {name} {saved['recipe'].get(name)!r}, now it is "
                f"{self.recipe.as_dict()[name]!r}; use another --out, or begin there with --warm-start {out}"
            )
        if saved["data"] != self.data or saved["config"] != self.config:
            raise DFlashError(f"the data or the target of the run in {out} has changed; use another --out")
        check_precision(saved.get("target", {}), self.target, out)
        self._check_weights(saved.get("checkpoint"), out)

    def _check_weights(self, before: str | None, out: Path) -> None:
        """An older version saved none, and a checkpoint that is gone from the disk has none."""
        if before and self.checkpoint and before != self.checkpoint:
            raise DFlashError(
                f"the target's checkpoint has changed since the run in {out} was saved ({before} then, "
                f"{self.checkpoint} now), and the answers there are the old one's; put that back, or use another --out"
            )
