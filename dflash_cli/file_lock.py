"""A lock on a file, which vanishes with the process that holds it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dflash_cli.errors import DFlashError

if TYPE_CHECKING:
    from filelock import BaseFileLock


def acquired(path: Path, *, timeout: float = 0) -> BaseFileLock | None:
    """The lock, or None where somebody else has it for all of `timeout` seconds. Raises DFlashError.

    The file is made where there is none, private.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(path, mode=0o600)
    try:
        lock.acquire(timeout=timeout)
    except Timeout:
        return None
    except (OSError, NotImplementedError) as err:
        why = err.strerror or str(err) if isinstance(err, OSError) else "this file system has no locks"
        raise DFlashError(f"cannot lock {path}: {why}") from err
    return lock
