"""Loading a model for a command so that Ctrl-C ends it soon and cleanly. Imports no torch by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dflash_cli.config import Config
from dflash_cli.interrupts import interruptible, uninterrupted

if TYPE_CHECKING:
    from dflash_cli.model import Model


def load_model(
    config: Config, *, batch_size: int = 1, reuse: Model | None = None, tell: Callable[[str], None]
) -> Model:
    """`loading.load` for a command. Raises KeyboardInterrupt on Ctrl-C, besides what `load` raises.

    Extension modules swallow an interrupt while they are imported, or break: they are imported first, with Ctrl-C
    noted and raised when they are there, after two seconds or so; downloads and loading are then interrupted at once.
    """
    uninterrupted(_import)
    from dflash_cli import loading

    return interruptible(lambda: loading.load(config, batch_size=batch_size, reuse=reuse, tell=tell))


def _import() -> None:
    from transformers import PreTrainedTokenizerFast  # noqa: F401

    import dflash_cli.loading  # noqa: F401
