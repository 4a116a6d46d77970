"""The user's store of converted checkpoints: each is built once, appears whole or not at all, and is never changed.

A checkpoint is built in a temporary folder beside its final place and renamed there at the end. One lock covers the
store, so whoever holds it knows that every temporary folder in it was left by a process that died.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dflash_cli.checkpoint_folder import read_json
from dflash_cli.errors import DFlashError
from dflash_cli.fetch_progress import megabytes, note
from dflash_cli.paths import cache_dir, ensure_private

TEMPORARY = ".tmp-"
WHOLE = ("config.json", "model.safetensors", "tokenizer.json")
SIZES = "sizes.json"  # file name -> bytes of a stored checkpoint, written last
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)

Build = Callable[[Path, Path], None]  # (folder for scratch files, folder to fill)


def models_dir() -> Path:
    """The folder of the store; it may not exist yet."""
    return cache_dir() / "models"


def stored(name: str) -> Path | None:
    """The checkpoint folder called `name`, or None."""
    folder = models_dir() / name
    return folder if _is_whole(folder) else None


def _is_whole(folder: Path) -> bool:
    """Whether every file has the size it was stored with: a damaged checkpoint is built anew, not read."""
    sizes = read_json(folder / SIZES)
    if sizes is None or not sizes.keys() >= set(WHOLE):
        return False
    return all((folder / file).is_file() and (folder / file).stat().st_size == size for file, size in sizes.items())


def store(name: str, needed_bytes: int, build: Build, *, quiet: bool) -> Path:
    """The checkpoint folder called `name`, built by `build(scratch, folder)` unless another process just did.

    Raises DFlashError where the store cannot be written or the disk is full; then nothing half-written is left.
    """
    found = stored(name)
    if found is not None:
        return found
    ensure_private(models_dir())
    with _locked(quiet=quiet):
        found = stored(name)
        if found is not None:
            return found
        try:
            return _build(name, needed_bytes, build)
        except OSError as err:
            raise disk_error(err, models_dir(), needed_bytes) from err


def disk_error(err: OSError, folder: Path, needed_bytes: int) -> DFlashError:
    """An OSError met while writing to `folder`, for people."""
    if err.errno not in DISK_FULL:
        where = f" ({err.filename})" if err.filename else ""
        return DFlashError(f"cannot prepare a model in {folder}: {err.strerror or err}{where}; nothing was left there")
    return DFlashError(
        f"the disk is full: {folder} needs about {megabytes(needed_bytes)} free. Free some space, or put the cache on "
        "another disk with XDG_CACHE_HOME; nothing half-written was left"
    )


def check_space(folder: Path, needed_bytes: int, variable: str = "XDG_CACHE_HOME") -> None:
    """Raises DFlashError if the disk of `folder` has less than `needed_bytes` free."""
    free = shutil.disk_usage(folder).free
    if free < needed_bytes:
        raise DFlashError(
            f"not enough disk space for {folder}: {megabytes(free)} free, about {megabytes(needed_bytes)} needed. "
            f"Free some space, or put the cache on another disk with {variable}"
        )


def _build(name: str, needed_bytes: int, build: Build) -> Path:
    for left_over in models_dir().glob(TEMPORARY + "*"):
        shutil.rmtree(left_over, ignore_errors=True)
    check_space(models_dir(), needed_bytes)
    scratch = Path(tempfile.mkdtemp(dir=models_dir(), prefix=TEMPORARY))
    try:
        folder = scratch / "checkpoint"
        folder.mkdir(mode=0o700)
        build(scratch, folder)
        sizes = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
        (folder / SIZES).write_text(json.dumps(sizes), encoding="utf-8")
        _make_durable(folder)
        final = models_dir() / name
        shutil.rmtree(final, ignore_errors=True)  # one that has lost files
        folder.replace(final)
        _sync(models_dir())
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return final


def _make_durable(folder: Path) -> None:
    """Private modes, and everything on the disk before the rename makes it visible."""
    for path in folder.iterdir():
        path.chmod(0o600)
        _sync(path)
    _sync(folder)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _locked(*, quiet: bool) -> Iterator[None]:
    from filelock import FileLock, Timeout

    lock = FileLock(models_dir() / ".lock", mode=0o600)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        note("waiting for another dflash that is preparing a model", quiet=quiet)
        lock.acquire()
    except OSError as err:
        raise disk_error(err, models_dir(), 0) from err
    try:
        yield
    finally:
        lock.release()
