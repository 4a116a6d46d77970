"""The Python API: `from dflash_cli import load`."""

from __future__ import annotations

import os
from typing import Any

from dflash_cli.config import SETTINGS, Config
from dflash_cli.errors import UsageError, nearest
from dflash_cli.loading import load as load_config
from dflash_cli.model import Model

__all__ = ["Model", "load"]


def load(model: str | os.PathLike[str] | None = None, **settings: Any) -> Model:
    """Load a pair: `model` is an alias, folder, hub id or GGUF file; `settings` are the fields of `Config`.

    Nothing is read from the configuration file or the environment. Raises DFlashError, or ValueError from a
    checkpoint that cannot be used.
    """
    return load_config(Config(**{name: _checked(name, value) for name, value in {"model": model, **settings}.items()}))


def _checked(name: str, value: Any) -> Any:
    """A setting as `Config` holds it. Raises UsageError: what was found, what was expected."""
    if name not in SETTINGS:
        raise UsageError(f"unknown setting {name!r}{nearest(name, list(SETTINGS))}")
    if value is None:
        return None
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    try:
        return SETTINGS[name].check(list(value) if isinstance(value, tuple) else value)
    except ValueError as err:
        raise UsageError(f"{name}: {err}") from None
