"""The figures of a run for TensorBoard: event files in a folder. Needs tensorboard. Imports no torch."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from dflash_cli.errors import DFlashError
from dflash_cli.paths import ensure_private
from dflash_cli.terminal import printable


def require_tensorboard() -> None:
    """Raises DFlashError with what to install."""
    try:
        import tensorboard.compat.proto.event_pb2
        import tensorboard.summary.writer.record_writer  # noqa: F401
    except ImportError:
        raise DFlashError("--tensorboard needs tensorboard: pip install 'dflash-cli[tensorboard]'") from None


class Board:
    """Entries of the metrics as scalars. Every write is made at once and may raise OSError."""

    # TensorBoard's own writer works in a thread, where a full disk is a traceback on the terminal.

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file: BinaryIO | None = None

    def start(self, step: int) -> None:
        """Begin a file, in which readers are told to forget what they know of steps after `step`."""
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog

        self.close()
        ensure_private(self.folder)
        # Readers take the files in the order of their names.
        name = f"events.out.tfevents.{time.time_ns() // 10**6:013d}.{len(list(self.folder.iterdir())):04d}"
        handle = os.open(self.folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._file = os.fdopen(handle, "wb", buffering=0)
        now = time.time()
        self._write(Event(wall_time=now, file_version="brain.Event:2"))
        self._write(Event(wall_time=now, step=step + 1, session_log=SessionLog(status=SessionLog.START)))

    def add(self, entry: dict[str, Any]) -> None:
        """The numbers of an entry at its `step`."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars(entry)]
        self._write(Event(wall_time=time.time(), step=entry["step"], summary=Summary(value=values)))

    def close(self) -> None:
        """End the file; a later `start` begins another."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _write(self, event: Any) -> None:
        from tensorboard.summary.writer.record_writer import RecordWriter

        if self._file is not None:
            RecordWriter(self._file).write(event.SerializeToString())


def scalars(entry: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """(tag, value) of every number: `training/loss`, `measured/tau`, `hits/slot_01`, `tau_by_source/math`."""
    kind = "measured" if "tau" in entry else "training"
    for key, value in entry.items():
        if key != "step":
            yield from _flat(key if isinstance(value, dict | list) else f"{kind}/{key}", value)


def _flat(tag: str, value: Any) -> Iterator[tuple[str, float]]:
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _flat(f"{tag}/{printable(name)}", each)
    elif isinstance(value, list):
        for slot, each in enumerate(value, 1):
            yield from _flat(f"{tag}/slot_{slot:02d}", each)
    elif isinstance(value, int | float):
        yield tag, float(value)
