"""A text in the person's own editor, by way of a private file that is gone afterwards."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dflash_cli.errors import DFlashError
from dflash_cli.interrupts import Interrupts
from dflash_cli.terminal import is_terminal

VARIABLES = ("VISUAL", "EDITOR")
FALLBACKS = ("nano", "vi", "notepad")
ADVICE = 'set EDITOR to one that works, for example EDITOR=nano or EDITOR="code --wait"'


def edit(text: str) -> str | None:
    """The text as a person saved it, without the last newline; None where nothing was saved.

    Raises DFlashError where there is no terminal, the editor is missing or fails, and for what is no UTF-8 text.
    """
    if not (is_terminal(sys.stdin) and is_terminal(sys.stdout)):
        raise DFlashError("an editor needs a terminal, and there is none; type the message, or pipe it")
    command = find_editor()
    with tempfile.TemporaryDirectory(prefix="dflash-") as folder:  # mode 0700: editors put their own files beside
        path = Path(folder) / "message.md"
        before = _write(path, text)
        _run([*command, str(path)])
        return _read(path, before)


def find_editor() -> list[str]:
    """The editor and its arguments: $VISUAL, $EDITOR, or the first that is there. Raises DFlashError."""
    for name in VARIABLES:
        if not (value := os.environ.get(name, "").strip()):
            continue
        try:
            return shlex.split(value, posix=os.name != "nt")
        except ValueError as err:
            raise DFlashError(f"{name}={value!r} is no command ({err}); {ADVICE}") from err
    found = next((each for each in FALLBACKS if shutil.which(each)), None)
    if found is None:
        raise DFlashError(f"there is no editor here: neither nano nor vi; {ADVICE}")
    return [found]


def _write(path: Path, text: str) -> int:
    """The time of the last change (ns), long ago, so that whatever is saved is newer."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(text.encode("utf-8", "replace") + (b"\n" if text else b""))
    os.utime(path, (0, 0))
    return path.stat().st_mtime_ns


def _run(command: list[str]) -> None:
    try:
        with _terminal_lent():
            status = subprocess.run(command, check=False).returncode  # noqa: S603  the person's own choice
    except OSError as err:
        raise DFlashError(f"the editor {command[0]} cannot be started: {err.strerror or err}; {ADVICE}") from err
    if status:
        how = f"status {status}" if status > 0 else f"signal {-status}"
        raise DFlashError(f"the editor {shlex.join(command[:-1])} ended with {how}, so its text is not used; {ADVICE}")


def _read(path: Path, before: int) -> str | None:
    try:
        if path.stat().st_mtime_ns == before:
            return None
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as err:
        raise DFlashError(
            "the editor saved something that is not UTF-8 text, so it is not used; save it as UTF-8"
        ) from err
    return text.replace("\r\n", "\n").removesuffix("\n")


@contextmanager
def _terminal_lent() -> Iterator[None]:
    """While another program has the terminal, Ctrl-C is its own affair, and afterwards the terminal is as before."""
    with Interrupts(), _unwoken(), _restored():
        yield


@contextmanager
def _unwoken() -> Iterator[None]:
    """The prompt's event loop does not hear of signals meanwhile: it would take a Ctrl-C for one of its own."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    wakeup = signal.set_wakeup_fd(-1)
    try:
        yield
    finally:
        signal.set_wakeup_fd(wakeup)


@contextmanager
def _restored() -> Iterator[None]:
    """An editor that was killed leaves the terminal in a mode of its own."""
    try:
        import termios
    except ImportError:
        yield
        return
    settings = termios.tcgetattr(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, settings)
