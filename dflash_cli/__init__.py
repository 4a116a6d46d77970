"""`dflash`: chat with large language models in a terminal, faster through DFlash speculative decoding, and see why."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dflash_cli.api import Model as Model
    from dflash_cli.api import load as load

__version__: str


def __getattr__(name: str) -> object:
    """The version and the Python API, looked up on first use so that importing the package costs nothing."""
    if name == "__version__":
        return _version()
    if name in ("Model", "load"):
        import importlib

        return getattr(importlib.import_module("dflash_cli.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("dflash-cli")
    except PackageNotFoundError:  # run from a source tree that was never installed
        return "0+unknown"
