"""The user's folders (XDG base directories) and private, atomic writes into them."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from dflash_cli.errors import DFlashError

APP = "dflash"


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


def ensure_private(folder: Path) -> Path:
    """Create `folder` and its missing parents (mode 0700). Raises DFlashError if it cannot be written."""
    try:
        # mkdir(parents=True) would give the parents the default mode.
        for parent in [*reversed(folder.parents), folder]:
            if not parent.is_dir():
                parent.mkdir(mode=0o700, exist_ok=True)
    except OSError as err:
        raise _unwritable(folder, err.strerror or str(err)) from err
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _unwritable(folder, "permission denied")
    return folder


def _unwritable(folder: Path, why: str) -> DFlashError:
    return DFlashError(
        f"cannot write to the folder {folder}: {why}. Make it writable, or point XDG_CONFIG_HOME, XDG_CACHE_HOME, "
        "XDG_DATA_HOME or XDG_STATE_HOME elsewhere"
    )


def write_private(path: Path, data: bytes) -> None:
    """Replace `path` by `data` (mode 0600), whole or not at all. Raises DFlashError if it cannot be written."""
    ensure_private(path.parent)
    temporary: Path | None = None
    try:
        # mkstemp creates the file with mode 0600.
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        temporary = Path(name)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as err:
        raise DFlashError(f"cannot write {path}: {err.strerror or err}") from err
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
