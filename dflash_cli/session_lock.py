"""Locks of saved chats: a chat that is open belongs to one process. They vanish with a process that dies."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from dflash_cli.errors import DFlashError
from dflash_cli.file_lock import acquired
from dflash_cli.paths import ensure_private
from dflash_cli.session_names import fold_name

GUARD = ".guard"
PATIENCE_S = 10.0  # whoever holds the guard does so for an instant


class SessionLock:
    """A lock that is held. The file it is on is beside the chats, not the chat's own, and goes when it is released."""

    def __init__(self, folder: Path, name: str) -> None:
        """Raises DFlashError where another process holds it. To be made within `guarded`."""
        self._folder = folder
        # A digest: names that differ in case only share a lock, and the longest ones leave no room for an ending.
        self._path = folder / f"{hashlib.sha256(fold_name(name).encode()).hexdigest()[:32]}.lock"
        held = acquired(self._path)
        if held is None:
            raise DFlashError(
                f"the chat {name!r} is open in another dflash, and two chats cannot be saved in one file. Leave that "
                "one first, resume another one (`dflash sessions list`), or start a new one"
            )
        self._held = held

    def release(self, *, is_guarded: bool = False) -> None:
        """Let others have it. `is_guarded` for those who are within `guarded`. Never fails."""
        with suppress(DFlashError, OSError), nullcontext() if is_guarded else guarded(self._folder):
            self._held.release()
            # Within the guard nobody has just opened the file in order to lock it.
            self._path.unlink(missing_ok=True)
        self._held.release()  # also where there was no guard; then an empty file is left


@contextmanager
def guarded(folder: Path) -> Iterator[None]:
    """Alone among all dflash processes, for as long as names are looked up and given. Raises DFlashError."""
    guard = acquired(ensure_private(folder) / GUARD, timeout=PATIENCE_S)
    if guard is None:
        raise DFlashError(f"another process has held {folder / GUARD} for {PATIENCE_S:.0f} seconds; end it first")
    try:
        yield
    finally:
        with suppress(OSError):
            guard.release()
