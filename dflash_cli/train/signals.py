"""Ctrl-C and SIGTERM while a drafter is trained: noted, and heeded where the run can be saved. Imports no torch."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Within this context the first signal sets `requested`; a second Ctrl-C ends the program as it always does."""

    def __init__(self) -> None:
        self.requested = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():  # Python allows handlers nowhere else
            self._previous = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def __call__(self) -> bool:
        """Whether a signal has come."""
        return self.requested

    def check(self) -> None:
        """Raises KeyboardInterrupt where a signal has come."""
        if self.requested:
            raise KeyboardInterrupt

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.requested = True
