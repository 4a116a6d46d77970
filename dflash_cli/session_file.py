"""The file of a saved chat, line by line: it only grows, and a crash at any moment costs its last line at most."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dflash_cli.errors import DFlashError
from dflash_cli.session_records import SessionState, check_session, decode

# A link is not followed, and a pipe is not waited for.
_SAFELY = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
IS_LINK = (errno.ELOOP, errno.EMLINK)
CANNOT_READ, CANNOT_WRITE = "the saved chat {} cannot be read: {}", "the chat cannot be saved in {}: {}"


@contextmanager
def opened(path: Path, flags: int, message: str) -> Iterator[int]:
    """A regular file's descriptor. Raises DFlashError (`message` has places for the path and the reason)."""
    handle: int | None = None
    try:
        handle = os.open(path, flags | _SAFELY)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise DFlashError(message.format(path, "it is not a file"))
        yield handle
    except FileNotFoundError:
        raise DFlashError(message.format(path, "it is not there any more")) from None
    except OSError as err:
        why = "it is a link, and links are not followed" if err.errno in IS_LINK else err.strerror or str(err)
        raise DFlashError(message.format(path, why)) from err
    finally:
        if handle is not None:
            os.close(handle)


def read_bytes(path: Path) -> bytes:
    """All of a file. Raises DFlashError."""
    with opened(path, os.O_RDONLY, CANNOT_READ) as handle, os.fdopen(handle, "rb", closefd=False) as file:
        return file.read()


@dataclass(frozen=True)
class Reading:
    """What could be read of a file: `state` adds up its first `num_bytes`, `problem` says what is wrong after them."""

    state: SessionState
    num_bytes: int
    problem: str = ""


def read(path: Path) -> Reading:
    """The conversation in a file. A last line that was cut off is left out.

    Where a line is damaged, the lines before it are read. Raises DFlashError where there is nothing to read at all
    and for a newer schema.
    """
    data = read_bytes(path)
    state, done = SessionState(), 0
    for number, line in enumerate(lines_of(data), 1):
        try:
            if number > 1 and is_cut(line):
                break
            record = decode(line)
            if number == 1:
                check_session(record)
            state.add(record)
        except ValueError as err:
            if number == 1:
                raise DFlashError(CANNOT_READ.format(path, f"line 1: {err}")) from None
            return Reading(state, done, f"line {number} of {path} is damaged: {err}")
        except DFlashError as err:
            raise DFlashError(CANNOT_READ.format(path, str(err))) from None
        done += len(line)
    if not done:
        raise DFlashError(CANNOT_READ.format(path, "it is empty"))
    return Reading(state, done)


def is_cut(line: bytes) -> bool:
    """Whether a line is only the beginning of one. Where nothing but its newline is missing it is whole."""
    if line.endswith(b"\n"):
        return False
    try:
        decode(line)
    except ValueError:
        return True
    return False


def lines_of(data: bytes) -> Iterator[bytes]:
    """Each line with its newline, which only the last may lack."""
    # Not bytes.splitlines, which ends lines at a carriage return, too.
    begin = 0
    while begin < len(data):
        end = data.find(b"\n", begin) + 1 or len(data)
        yield data[begin:end]
        begin = end


def append(path: Path, lines: list[bytes]) -> None:
    """Add lines and take them out of `lines`; they are on the disk when this returns. Raises DFlashError.

    A line is there whole or not at all: where only a part could be written it is taken back, by the next `append` at
    the latest.
    """
    with opened(path, os.O_RDWR | os.O_APPEND, CANNOT_WRITE) as handle:
        if os.fstat(handle).st_mode & 0o077:
            path.chmod(0o600)
        _mend(handle)
        while lines:
            _write_line(handle, lines[0])
            del lines[0]
        os.fsync(handle)


def _write_line(handle: int, line: bytes) -> None:
    before = os.fstat(handle).st_size
    try:
        written = 0
        while written < len(line):  # a full disk takes a part first, and says at the next write that it is full
            count = os.write(handle, line[written:])
            if not count:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            written += count
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(handle, before)
        raise


def _mend(handle: int) -> None:
    """End the last line where only its newline is missing; cut it off where more is."""
    size = os.fstat(handle).st_size
    os.lseek(handle, max(0, size - 1), os.SEEK_SET)
    if not size or os.read(handle, 1) == b"\n":
        return
    os.lseek(handle, 0, os.SEEK_SET)
    with os.fdopen(handle, "rb", closefd=False) as file:
        data = file.read()
    begin = data.rfind(b"\n") + 1
    if is_cut(data[begin:]):
        os.ftruncate(handle, begin)
    else:
        _write_line(handle, b"\n")
