"""What was typed at the prompt before: a private file that several chats may share, of a limited size."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from dflash_cli.errors import DFlashError
from dflash_cli.paths import ensure_private, state_dir, write_private

if TYPE_CHECKING:
    from prompt_toolkit.history import History

MOST_ENTRIES, MOST_BYTES = 10_000, 10_000_000
LOCK_S = 1.0  # another chat holds the lock for milliseconds


def open_history(tell: Callable[[str], None], *, keep: bool = True) -> History:
    """The history, which leaves out what begins with a space; `tell` takes remarks for people.

    It is of this run only where `keep` is false or the file cannot be written.
    """
    if not keep:
        return _in_memory()
    path = state_dir() / "history"
    try:
        ensure_private(path.parent)
        _make_private(path)
        with _lock(path):
            _shorten(path)
    except (DFlashError, OSError) as err:
        tell(f"the history is kept for this session only: {err}")
        return _in_memory()
    return _in_file(path, tell)


def _in_memory() -> History:
    from prompt_toolkit.history import InMemoryHistory

    class RunHistory(InMemoryHistory):
        def append_string(self, string: str) -> None:
            if not string.startswith(" "):
                super().append_string(string)

    return RunHistory()


def _in_file(path: Path, tell: Callable[[str], None]) -> History:
    from prompt_toolkit.history import FileHistory

    class KeptHistory(FileHistory):
        def load_history_strings(self) -> Iterable[str]:
            try:
                return list(super().load_history_strings())
            except OSError as err:
                tell(f"the history {path} cannot be read: {err.strerror or err}")
                return []

        def append_string(self, string: str) -> None:
            if not string.startswith(" "):
                super().append_string(string)

        def store_string(self, string: str) -> None:
            try:
                with _lock(path):
                    _append(path, _entry(string))
            except OSError as err:  # a full disk must not end the conversation
                tell(f"the history {path} cannot be written: {err.strerror or err}")

    return KeptHistory(path)


def _lock(path: Path) -> AbstractContextManager[object]:
    """Held by whoever changes the file. Raises OSError (a Timeout) where another process does not let go of it."""
    from filelock import FileLock

    return FileLock(path.with_name(path.name + ".lock"), timeout=LOCK_S, mode=0o600)


def _make_private(path: Path) -> None:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    if path.stat().st_mode & 0o077:
        path.chmod(0o600)


def _entry(text: str) -> bytes:
    """The text as prompt-toolkit's FileHistory writes it; a byte that was not UTF-8 becomes a question mark."""
    lines = "".join(f"+{line}\n" for line in text.split("\n"))
    return f"\n# {time.strftime('%Y-%m-%d %H:%M:%S')}\n{lines}".encode("utf-8", "replace")


def _append(path: Path, data: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        while data:
            data = data[os.write(file, data) :]
    finally:
        os.close(file)


def _shorten(path: Path) -> None:
    """Leave the newest entries only, where there are too many."""
    if path.stat().st_size <= MOST_ENTRIES:  # an entry has more than one byte
        return
    data = path.read_bytes()
    entries = data.split(b"\n#")[1:]
    if len(entries) <= MOST_ENTRIES and len(data) <= MOST_BYTES:
        return
    kept: list[bytes] = []
    left = MOST_BYTES
    for entry in reversed(entries[-MOST_ENTRIES:]):
        left -= len(entry) + 2
        if left < 0:
            break
        kept.append(entry)
    write_private(path, b"".join(b"\n#" + entry for entry in reversed(kept)))
