"""The folder of saved chats: which there are, opening and deleting them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from dflash_cli.errors import DFlashError, UsageError, nearest
from dflash_cli.paths import data_dir, ensure_private
from dflash_cli.session_file import Reading, read, read_bytes
from dflash_cli.session_lock import SessionLock, guarded
from dflash_cli.session_log import SessionLog
from dflash_cli.session_names import check_name, default_name, free_variant, is_name, same_name
from dflash_cli.session_summary import Summary, summarize

SUFFIX = ".jsonl"
LOCKS = ".locks"


class SessionStore:
    """Saved chats, each a file NAME.jsonl. Other files of the folder, and links in it, are not looked at."""

    def __init__(self, folder: Path | None = None) -> None:
        """Nothing is made yet. The default folder is the user's."""
        self.folder = data_dir() / "sessions" if folder is None else folder
        self._locks = self.folder / LOCKS

    def path(self, name: str) -> Path:
        """The file of the chat `name`, which is a checked one."""
        return self.folder / (name + SUFFIX)

    def names(self) -> list[str]:
        """The chats there are, the one that was changed last first. Raises DFlashError for a folder it cannot read."""
        return [name for name, _ in self._times()]

    def latest(self) -> str | None:
        """The chat that was changed last, or None where there are none."""
        return next(iter(self.names()), None)

    def summaries(self, limit: int | None = None) -> list[Summary]:
        """What there is to list, the chat that was changed last first; `limit` of them at most."""
        return [summarize(name, self.path(name), changed) for name, changed in self._times()[:limit]]

    def _times(self) -> list[tuple[str, float]]:
        found = []
        try:
            with os.scandir(self.folder) as entries:
                for entry in entries:
                    name = entry.name.removesuffix(SUFFIX)
                    if name != entry.name and is_name(name) and entry.is_file(follow_symlinks=False):
                        with suppress(FileNotFoundError):  # deleted meanwhile
                            found.append((name, entry.stat(follow_symlinks=False).st_mtime))
        except FileNotFoundError:
            return []
        except OSError as err:
            raise DFlashError(f"the saved chats in {self.folder} cannot be read: {err.strerror or err}") from err
        return sorted(found, key=lambda each: (-each[1], each[0]))

    def find(self, name: str) -> str:
        """The name of a chat that is there. Raises UsageError for another, naming the nearest."""
        name, known = check_name(name), self.names()
        if name not in known:
            hint = nearest(name, known) or "; `dflash sessions list` shows those there are"
            link = " (there is a link of that name, and links are not followed)" if self.path(name).is_symlink() else ""
            raise UsageError(f"there is no saved chat {name!r}{link}{hint}")
        return name

    def read(self, name: str) -> Reading:
        """The conversation of a chat, which may be open elsewhere. Raises UsageError, DFlashError."""
        return read(self.path(self.find(name)))

    def open_new(self, name: str | None = None) -> SessionLog:
        """A new chat; its file comes with its first turn. Raises UsageError for a name that cannot be or is taken."""
        log = SessionLog(self, default_name(datetime.now().astimezone()))
        if name is not None:
            log.rename(name)
        return log

    def resume(self, name: str) -> SessionLog:
        """Go on with a chat. Raises UsageError for one that is not there, DFlashError for one that is in use.

        A damaged one is left as it is: what can be read of it goes on under another name, as `remark` says.
        """
        name = self.find(name)
        with guarded(self._locks):
            lock = SessionLock(self._locks, name)
        try:
            reading = read(self.path(name))
            if not reading.problem:
                return SessionLog(self, name, state=reading.state, lock=lock)
            begin = read_bytes(self.path(name))[: reading.num_bytes]
        except BaseException:
            lock.release()
            raise
        lock.release()
        other = free_variant(name, self.names())
        remark = f"{reading.problem}. What comes before goes on as {other!r}, and {name!r} stays as it is"
        return SessionLog(self, other, state=reading.state, begin=begin, remark=remark)

    def delete(self, names: Sequence[str]) -> None:
        """Delete chats: all of them, or none where one is not there or in use. Raises UsageError, DFlashError."""
        found = list(dict.fromkeys(self.find(name) for name in names))
        with guarded(self._locks):
            locks: list[SessionLock] = []
            try:
                locks += (SessionLock(self._locks, name) for name in found)
                for name in found:
                    self.path(name).unlink(missing_ok=True)
            except OSError as err:
                raise DFlashError(f"cannot delete in {self.folder}: {err.strerror or err}") from err
            finally:
                for lock in locks:
                    lock.release(is_guarded=True)

    # What a SessionLog asks of its folder.

    def check_free(self, name: str, but: str | None = None) -> None:
        """Raises UsageError where a chat other than `but` has this name, or one that differs in case only."""
        taken = same_name(name, (each for each in self._all_stems() if each != but))
        if taken is not None:
            raise UsageError(f"there is a saved chat {taken!r} already; take another name, or go on with that one")

    def _all_stems(self) -> list[str]:
        """Also of links and folders, which are in the way of a new file."""
        with suppress(OSError):
            return [each.stem for each in self.folder.iterdir() if each.suffix == SUFFIX]
        return []

    def create(self, name: str, lock: SessionLock | None, write: Callable[[Path], None]) -> tuple[str, SessionLock]:
        """Make the file of a new chat by `write(path)`; its name and its lock. Raises DFlashError, UsageError.

        A chat that has a lock keeps its name. Another one gets the next free name where its own has been taken.
        """
        ensure_private(self.folder)
        with guarded(self._locks):
            self._sweep()
            if lock is not None:
                self.check_free(name)
                write(self.path(name))
                return name, lock
            stems = self._all_stems()
            name = name if same_name(name, stems) is None else free_variant(name, stems)
            lock = SessionLock(self._locks, name)
            try:
                write(self.path(name))
            except BaseException:
                lock.release(is_guarded=True)
                raise
            return name, lock

    def _sweep(self) -> None:
        """Away with what a process that died while it made a file has left."""
        for left_over in self.folder.glob(f".*{SUFFIX}.*"):
            with suppress(OSError):
                left_over.unlink()

    def move(self, name: str, new: str, lock: SessionLock | None, *, has_file: bool) -> SessionLock:
        """Give a chat the name `new`, and the lock of it. Raises UsageError where it is taken, DFlashError."""
        with guarded(self._locks):
            self.check_free(new, but=name if has_file else None)
            if lock is not None and same_name(name, [new]) is not None:
                held, surplus = lock, None
            else:
                held, surplus = SessionLock(self._locks, new), lock
            try:
                if has_file:
                    self.path(name).rename(self.path(new))
            except OSError as err:
                if held is not lock:
                    held.release(is_guarded=True)
                raise DFlashError(f"cannot rename {self.path(name)}: {err.strerror or err}") from err
            if surplus is not None:
                surplus.release(is_guarded=True)
        return held
