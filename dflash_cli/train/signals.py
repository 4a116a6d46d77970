"""Ctrl-C and SIGTERM while a drafter is trained: noted, and heeded where the run can be saved. Imports no torch."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType

from dflash_cli.interrupts import SignalHandlers

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop(SignalHandlers):
    """Within this context the first signal sets `requested`; a second Ctrl-C ends the program as it always does.

    `others`: of several processes of a run, tells them whether a signal came here and says whether one came to any.
    """

    def __init__(self) -> None:
        super().__init__()
        self.requested = False
        self.others: Callable[[bool], bool] = lambda own: own

    def _install(self) -> None:
        for number in SIGNALS:
            self._handle(number, self._on_signal)

    def __call__(self) -> bool:
        """Whether a signal has come."""
        return self.others(self.requested)

    def check(self) -> None:
        """Raises KeyboardInterrupt where a signal has come."""
        if self():
            raise KeyboardInterrupt

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.requested = True
