"""From what a `config.json` says to the drafter it describes."""

from __future__ import annotations

from backends.config import DFlashConfig, DrafterConfig, EagleConfig
from backends.dflash import DFlashDrafter
from backends.drafter import Drafter
from backends.eagle import EagleDrafter


def new_drafter(config: DrafterConfig) -> Drafter:
    """A drafter of this shape, its weights still to be given."""
    if isinstance(config, EagleConfig):
        return EagleDrafter(config)
    assert isinstance(config, DFlashConfig)
    return DFlashDrafter(config)
