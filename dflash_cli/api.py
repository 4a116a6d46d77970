"""The Python API: `from dflash_cli import load`."""

from __future__ import annotations

from typing import Any

from dflash_cli.config import Config
from dflash_cli.loading import load as load_config
from dflash_cli.model import Model

__all__ = ["Model", "load"]


def load(model: str | None = None, **settings: Any) -> Model:
    """Load a pair: `model` is an alias, folder, hub id or GGUF file; `settings` are the fields of `Config`.

    Nothing is read from the configuration file or the environment. Raises DFlashError, or ValueError from a
    checkpoint that cannot be used.
    """
    return load_config(Config(model=model, **settings))
