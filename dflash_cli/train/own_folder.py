"""The folder of a run: one run at a time works in it. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dflash_cli.errors import DFlashError
from dflash_cli.file_lock import acquired
from dflash_cli.paths import ensure_private

LOCK = "lock"


@contextmanager
def alone_in(out: Path) -> Iterator[None]:
    """Alone among all processes in the folder `out`, which is made. Raises DFlashError where another has it, or it
    cannot be written."""
    lock = acquired(ensure_private(out / "work") / LOCK)
    if lock is None:
        raise DFlashError(
            f"another dflash train-drafter is at work in {out}, and two would mix their files there: wait until it "
            "ends, end it, or pass another --out"
        )
    try:
        yield
    finally:
        lock.release()
