"""The file of the statistics: opened, made, mended and shared between processes. Imports no torch.

SQLite with a write-ahead log: readers and writers do not wait for each other, writers take turns. A damaged file is
set aside and a new one begun; a file of a newer schema is left alone. Whatever goes wrong is a DFlashError.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from dflash_cli.errors import DFlashError
from dflash_cli.paths import ensure_private, state_dir
from dflash_cli.stats_store.row import Baseline, Entry, Row
from dflash_cli.stats_store.schema import (
    APPLICATION_ID,
    MIGRATIONS,
    REBUILD,
    SCHEMA,
    SUM_TABLES,
    TABLES,
    run_script,
)  # fmt: skip

Result = TypeVar("Result")
BUSY_S = 10.0  # how long to wait for other writers, each of which takes far less than a millisecond
PRIMARY = 0xFF  # of an extended error code of SQLite, the part that tells the kind
READ_ONLY = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)
DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _insert(table: str, kind: type[Any]) -> str:
    names = [each.name for each in fields(kind)]
    return f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"  # noqa: S608


INSERT_TURN, INSERT_BASELINE = _insert("turns", Row), _insert("baselines", Baseline)
INSERT_BLOCKS = "INSERT INTO blocks (turn, blocks) VALUES (?, ?)"


class Damaged(Exception):  # noqa: N818
    """The file is no statistics, or no longer; the text says why."""


class StatsStore:
    """The statistics of a user. Every method raises DFlashError where the file cannot be read or written."""

    def __init__(self, path: Path | None = None) -> None:
        """Nothing is opened or made yet. The default is the user's file."""
        self.path = state_dir() / "stats.db" if path is None else path
        self.remark = ""
        """What a person should know of how the file was opened; "" where all is well."""
        self._connection: sqlite3.Connection | None = None
        self._inode = 0

    def add(self, entries: Sequence[Entry], baselines: Sequence[Baseline] = ()) -> None:
        """Keep answers and measured baselines, all or none of them."""

        def write(connection: sqlite3.Connection) -> None:
            for entry in entries:
                turn = connection.execute(INSERT_TURN, entry.values).lastrowid
                if entry.blocks:
                    connection.execute(INSERT_BLOCKS, (turn, entry.blocks))
            connection.executemany(INSERT_BASELINE, map(astuple, baselines))

        self._try(lambda connection: _transaction(connection, write), writing=True)

    def query(self, sql: str, parameters: Sequence[object] = ()) -> list[sqlite3.Row]:
        """The rows of a SELECT; none where there is no file yet."""
        rows = self._try(lambda connection: connection.execute(sql, parameters).fetchall())
        return [] if rows is None else rows

    def version(self) -> int:
        """Another number whenever another process has written; for whoever follows it."""
        rows = self.query("PRAGMA data_version")
        return int(rows[0][0]) if rows else -1

    def prune(self, before: str) -> int:
        """Forget the turns of all days before one (ISO 8601), and its sums; how many turns that were."""

        def write(connection: sqlite3.Connection) -> int:
            connection.execute(
                "DELETE FROM blocks WHERE turn IN (SELECT id FROM turns WHERE day < ?)", (before,)
            )  # fmt: skip
            count = connection.execute("DELETE FROM turns WHERE day < ?", (before,)).rowcount
            for table in SUM_TABLES:
                connection.execute(f"DELETE FROM {table} WHERE day < ?", (before,))  # noqa: S608
            return count

        count = self._try(lambda connection: _transaction(connection, write))
        if count:
            self._try(lambda connection: connection.execute("VACUUM"))
        return count or 0

    def close(self) -> None:
        """Let go of the file; it is opened again when it is needed."""
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    def _try(self, action: Callable[[sqlite3.Connection], Result], *, writing: bool = False) -> Result | None:
        """What `action` gives; None where there is no file and nothing is to be written. Once more after damage."""
        for is_last in (False, True):
            try:
                connection = self._open(writing)
                return None if connection is None else action(connection)
            except (sqlite3.Error, Damaged) as err:
                why = _damage(err)
                self.close()
                if why is None or is_last:
                    raise self._error(err) from err
                self._set_aside(why)
            except OSError as err:
                raise self._error(err) from err
        return None

    def _open(self, writing: bool) -> sqlite3.Connection | None:
        if self._connection is not None and _inode(self.path) == self._inode:
            return self._connection
        self.close()  # somebody has removed the file, or set it aside
        if not self.path.exists():
            if not writing:
                return None
            ensure_private(self.path.parent)
            os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o600))
        elif self.path.stat().st_mode & 0o077 and os.access(self.path, os.W_OK):
            self.path.chmod(0o600)  # the log beside it takes its mode over
        self._inode = _inode(self.path)
        self._connection = self._connect() if writing else self._connect_to_read()
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        connection = _connect(self.path, "mode=rw")
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect_to_read(self) -> sqlite3.Connection | None:
        """A file on a disk that cannot be written is read as it lies there."""
        if self.path.stat().st_size == 0:
            return None
        try:
            return self._connect()
        except sqlite3.OperationalError as err:
            if _code(err) not in READ_ONLY:
                raise
        connection = _connect(self.path, "mode=ro&immutable=1")
        if _schema(connection) != SCHEMA:
            raise DFlashError(
                f"the statistics in {self.path} are of an older dflash, and the disk cannot be written to renew them"
            )
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Check the file; make it, or renew an older one, while others wait."""
        if self._is_current(connection):
            return
        from filelock import FileLock

        with FileLock(self.path.with_suffix(".lock"), mode=0o600, timeout=BUSY_S):
            if self._is_current(connection):
                return
            connection.execute("PRAGMA journal_mode=WAL")
            _transaction(connection, _migrate)

    def _is_current(self, connection: sqlite3.Connection) -> bool:
        schema = _schema(connection)
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
            if schema or names:
                raise Damaged("it holds something else than statistics")
            return False
        if schema > SCHEMA:
            raise DFlashError(
                f"the statistics in {self.path} are of schema {schema}, kept by a newer dflash; this one knows up to "
                f"{SCHEMA}: update dflash, or move the file away"
            )
        if schema == SCHEMA and (missing := set(TABLES) - names):
            raise Damaged(f"it has no table {min(missing)}")
        return schema == SCHEMA

    def _set_aside(self, why: str) -> None:
        """Move a damaged file out of the way, unless another process just did."""
        from filelock import FileLock

        try:
            with FileLock(self.path.with_suffix(".lock"), mode=0o600, timeout=BUSY_S):
                if _inode(self.path) != self._inode:
                    return
                aside = self.path.with_name(f"{self.path.name}.damaged-{time.strftime('%Y%m%d-%H%M%S')}")
                for suffix in ("-wal", "-shm"):
                    with suppress(FileNotFoundError):
                        self.path.with_name(self.path.name + suffix).rename(aside.with_name(aside.name + suffix))
                self.path.rename(aside)
        except (OSError, TimeoutError) as err:
            raise DFlashError(
                f"the statistics in {self.path} are damaged ({why}) and cannot be set aside: {err}"
            ) from err
        self.remark = f"the statistics in {self.path} were damaged ({why}); they are set aside as {aside.name}"

    def _error(self, err: BaseException) -> DFlashError:
        if isinstance(err, sqlite3.Error):
            why = {
                sqlite3.SQLITE_READONLY: "the file or disk is read-only",
                sqlite3.SQLITE_CANTOPEN: "permission denied",
                sqlite3.SQLITE_FULL: "the disk is full",
                sqlite3.SQLITE_BUSY: f"another process has kept it locked for {BUSY_S:g} s",
            }.get(_code(err), str(err))
        else:
            why = (err.strerror if isinstance(err, OSError) else None) or str(err)
        return DFlashError(f"cannot use the statistics in {self.path}: {why}")


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?{mode}", uri=True, timeout=BUSY_S, isolation_level=None
    )
    connection.row_factory = sqlite3.Row
    connection.execute("PRAGMA synchronous=NORMAL")  # a power cut may cost the last turns, never the file
    return connection


def _transaction(connection: sqlite3.Connection, action: Callable[[sqlite3.Connection], Result]) -> Result:
    """All of `action`, or nothing. It takes the turn of writing at once: to wait for it halfway may fail."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = action(connection)
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise
    return result


def _migrate(connection: sqlite3.Connection) -> None:
    for script in (*MIGRATIONS[_schema(connection) :], REBUILD):
        run_script(connection, script)
    connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version={len(MIGRATIONS)}")


def _schema(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0


def _code(err: BaseException) -> int:
    return getattr(err, "sqlite_errorcode", 0) & PRIMARY


def _damage(err: BaseException) -> str | None:
    """Why the file is damaged, or None where it is not."""
    if isinstance(err, Damaged) or _code(err) in DAMAGED:
        return str(err)
    return None
