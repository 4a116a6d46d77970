"""The folder of a run: one run at a time works in it. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from dflash_cli.errors import DFlashError, UsageError
from dflash_cli.file_lock import acquired
from dflash_cli.paths import ensure_private, remove_unfinished

LOCK = "lock"
MARKS = (LOCK, "metrics.jsonl", "checkpoint.safetensors", "answers.jsonl")
"""In `work`: one of them at least where a run was."""
REPLACED = ("README.md", "config.json", "model.safetensors")


def check_out(out: Path, inputs: Mapping[str, Path]) -> None:
    """Raises UsageError where a run in `out` would replace files that are none of a run's.

    `inputs`: folders that the run reads, by the option that names them.
    """
    for option, folder in inputs.items():
        if _is_same(out, folder):
            raise UsageError(f"--out {out} is the folder of {option}, which would be overwritten; pass another --out")
    found = next((name for name in REPLACED if _exists(out / name)), None)
    if found is not None and not any(_exists(out / "work" / name) for name in MARKS):
        raise UsageError(
            f"--out {out} has a {found} that is no training run's and would be overwritten; pass another --out"
        )


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:  # one of them is not there
        return False


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # in a folder that cannot be read: what then cannot be written is told elsewhere
        return False


@contextmanager
def alone_in(out: Path) -> Iterator[None]:
    """Alone among all processes in the folder `out`, which is made. Raises DFlashError where another has it, or it
    cannot be written."""
    for folder in (out, out / "work"):
        ensure_private(folder, "pass another --out")
    lock = acquired(out / "work" / LOCK)
    if lock is None:
        raise DFlashError(
            f"another dflash train-drafter is at work in {out}, and two would mix their files there: wait until it "
            "ends, end it, or pass another --out"
        )
    try:
        _tidy(out)
        yield
    finally:
        lock.release()


def _tidy(out: Path) -> None:
    """Of a run that was killed while it wrote; beside the drafter only what can be nothing else."""
    from dflash_cli.train.push import FILES

    for folder in (out / "work", out / "work" / "features"):
        remove_unfinished(folder)
    for name in FILES:
        remove_unfinished(out, name)
