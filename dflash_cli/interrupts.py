"""Ctrl-C while a model is loaded or an answer is being made, and the handlers of signals. Imports no torch."""

from __future__ import annotations

import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self, TypeVar

Result = TypeVar("Result")


def is_ignored(number: int) -> bool:
    """Whether a signal is ignored, as Ctrl-C is by what a script runs in its background: it stays so."""
    return signal.getsignal(number) is signal.SIG_IGN


class Interrupts:
    """Within this context Ctrl-C raises KeyboardInterrupt inside `call` only; elsewhere it is noted in `requested`.

    The decoder can be stopped anywhere without harm. The code that counts and prints what it yields could not: a
    signal there waits for the next block. One that the context around this one has noted counts here, too. Where
    Ctrl-C is ignored, as in a script's background, it stays so.
    """

    def __init__(self) -> None:
        self.requested = False
        self._in_call = False
        self._previous: Any = None

    def __enter__(self) -> Interrupts:
        before = signal.getsignal(signal.SIGINT)
        # Python allows handlers in no other thread.
        if threading.current_thread() is threading.main_thread() and not is_ignored(signal.SIGINT):
            self._previous = signal.signal(signal.SIGINT, self._on_signal)
            around = getattr(before, "__self__", None)
            self.requested |= isinstance(around, Interrupts) and around.requested
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)

    def call(self, function: Callable[[], Result]) -> Result:
        """What `function` returns. Raises KeyboardInterrupt on Ctrl-C, unless code below `function` swallows it:

        then, too, `requested` says that it came.
        """
        self._in_call = True
        try:
            return function()
        finally:
            self._in_call = False

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.requested = True
        if self._in_call:
            raise KeyboardInterrupt


class SignalHandlers(ABC):
    """Signal handlers of a context; at its end those from before are back. What is ignored stays so."""

    def __init__(self) -> None:
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # Python allows handlers nowhere else
            self._install()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    @abstractmethod
    def _install(self) -> None:
        """Set the handlers, each by `_handle`."""

    def _handle(self, number: int, handler: Callable[[int, FrameType | None], None]) -> None:
        if not is_ignored(number):
            self._previous[number] = signal.signal(number, handler)


def interruptible(function: Callable[[], Result]) -> Result:
    """What `function` returns. Raises KeyboardInterrupt where Ctrl-C came, even if code below swallowed it.

    Libraries do that while they are imported.
    """
    with Interrupts() as interrupts:
        result = interrupts.call(function)
    if interrupts.requested:
        raise KeyboardInterrupt
    return result


def uninterrupted(function: Callable[[], Result]) -> Result:
    """What `function` returns, run to its end; then raises KeyboardInterrupt where Ctrl-C came meanwhile."""
    with Interrupts() as interrupts:
        result = function()
    if interrupts.requested:
        raise KeyboardInterrupt
    return result
