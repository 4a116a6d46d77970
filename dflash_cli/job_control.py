"""Ctrl-Z, `fg` and the signals that end a program, while it draws on the terminal. Imports no torch."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

from dflash_cli.interrupts import SignalHandlers

ENDING = ("SIGTERM", "SIGQUIT", "SIGHUP")


class JobControl(SignalHandlers):
    """Within this context the terminal is given back before the program stops or ends, and taken again on `fg`.

    Signals that are ignored or handled by somebody else stay so. Does nothing outside the main thread, and on systems
    without these signals.
    """

    def __init__(self, release: Callable[[], None], take: Callable[[], None], end: Callable[[], None]) -> None:
        """`release` before a stop, `take` after it, `end` before the end: it must not wait for anything."""
        super().__init__()
        self._release, self._take, self._end = release, take, end

    def _install(self) -> None:
        self._take_over("SIGTSTP", self._on_stop)
        self._take_over("SIGCONT", lambda _number, _frame: self._take())
        for name in ENDING:
            self._take_over(name, self._on_end)

    def _take_over(self, name: str, handler: Callable[[int, FrameType | None], None]) -> None:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            self._handle(number, handler)

    def _on_stop(self, number: int, _frame: FrameType | None) -> None:
        self._release()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)  # stops here; SIGCONT takes the terminal again
        signal.signal(number, self._on_stop)

    def _on_end(self, number: int, _frame: FrameType | None) -> None:
        with suppress(OSError, ValueError):
            self._end()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
