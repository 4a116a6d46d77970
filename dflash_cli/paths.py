"""The user's folders (XDG base directories) and private, atomic writes into them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from dflash_cli.errors import DFlashError

APP = "dflash"
VARIABLES = "XDG_CONFIG_HOME, XDG_CACHE_HOME, XDG_DATA_HOME or XDG_STATE_HOME"
RANDOM = 8  # characters that tempfile puts behind a name


def config_dir() -> Path:
    """Where the configuration file is looked for."""
    return _xdg("XDG_CONFIG_HOME", ".config")


def cache_dir() -> Path:
    """Where converted models are kept; safe to delete."""
    return _xdg("XDG_CACHE_HOME", ".cache")


def data_dir() -> Path:
    """Where the user's own data is kept."""
    return _xdg("XDG_DATA_HOME", ".local/share")


def state_dir() -> Path:
    """Where histories and sessions are kept."""
    return _xdg("XDG_STATE_HOME", ".local/state")


def _xdg(variable: str, default: str) -> Path:
    """A relative value is ignored, as the XDG Base Directory Specification asks."""
    value = Path(os.environ.get(variable, ""))
    return (value if value.is_absolute() else Path.home() / default) / APP


def ensure_private(folder: Path, instead: str = f"point {VARIABLES} elsewhere") -> Path:
    """Create `folder` and its missing parents (mode 0700). Raises DFlashError if it cannot be written.

    `instead`: what the error says one may do to have another folder.
    """
    try:
        # mkdir(parents=True) would give the parents the default mode.
        for parent in [*reversed(folder.parents), folder]:
            if not parent.is_dir():
                parent.mkdir(mode=0o700, exist_ok=True)
    except OSError as err:
        raise _unwritable(folder, err.strerror or str(err), instead) from err
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _unwritable(folder, "permission denied", instead)
    return folder


def _unwritable(folder: Path, why: str, instead: str) -> DFlashError:
    return DFlashError(f"cannot write to the folder {folder}: {why}. Make it writable, or {instead}")


def write_private(path: Path, data: bytes) -> None:
    """Replace `path` by `data` (mode 0600), whole or not at all. Raises DFlashError if it cannot be written."""
    write_together(path.parent, {path.name: data})


def write_together(folder: Path, files: Mapping[str, bytes]) -> None:
    """`write_private` for files that belong together: none is replaced before all of them lie on the disk.

    They are replaced in their order, at once.
    """
    ensure_private(folder)
    written: dict[Path, Path] = {}
    path = folder
    try:
        for name, data in files.items():
            path = folder / name
            # mkstemp creates the file with mode 0600.
            handle, temporary = tempfile.mkstemp(dir=folder, prefix=f".{name}.")
            written[Path(temporary)] = path
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        for unfinished, path in written.items():
            unfinished.replace(path)
    except OSError as err:
        raise DFlashError(f"cannot write {path}: {err.strerror or err}") from err
    finally:
        for unfinished in written:
            unfinished.unlink(missing_ok=True)


def remove_unfinished(folder: Path, name: str = "*") -> None:
    """Remove what a process that was killed while it wrote `name` (a pattern) has left; nobody may be writing it now.

    Raises DFlashError where that cannot be done.
    """
    for path in folder.glob(f".{name}.{'?' * RANDOM}"):
        try:
            path.unlink(missing_ok=True)
        except OSError as err:
            raise DFlashError(f"cannot remove {path}: {err.strerror or err}") from err
