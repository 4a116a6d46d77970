"""Files that a person asked for: a plot, a page. Imports no torch."""

from __future__ import annotations

from pathlib import Path

from dflash_cli.errors import DFlashError, UsageError


def check_name(path: Path, *suffixes: str) -> Path:
    """The path, if it ends in one of `suffixes` and its folder exists. Raises UsageError."""
    if path.suffix.lower() not in suffixes:
        raise UsageError(f"found {path.name!r}; expected a name that ends in {' or '.join(suffixes)}")
    if not path.parent.is_dir():
        raise UsageError(f"the folder {path.parent} does not exist")
    if path.is_dir():
        raise UsageError(f"{path} is a folder; expected a file")
    return path


def write_file(path: Path, data: bytes) -> None:
    """Replace the file's content. Raises DFlashError where it cannot be written."""
    try:
        path.write_bytes(data)
    except OSError as err:
        raise DFlashError(f"cannot write {path}: {err.strerror or err}") from err
