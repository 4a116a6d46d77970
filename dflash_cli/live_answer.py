"""One answer on the screen: a thread that draws on its own clock, so that decoding never waits for the terminal."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TextIO

from dflash_cli.events import BlockDrafted, Event, Finished
from dflash_cli.keys import KeyReader
from dflash_cli.overlay import Mode, OverlayState, TokenTexts
from dflash_cli.overlay_painter import END, HIDE, SHOW, WRAP, Painter
from dflash_cli.pace import Pace

FRAME_S = 1 / 20
LOOK_S = 0.1  # how often an idle screen looks for keys and whether it was resized
PATIENCE_S = 1.0  # how long a stop waits for a terminal that takes nothing
Size = Callable[[], tuple[int, int]]
"""The terminal's (columns, rows) now."""


@dataclass(frozen=True, slots=True)
class _Arrived:
    event: Event
    at: float
    flags: Sequence[bool]
    texts: Sequence[str] | None


class LiveAnswer:
    """One answer on the screen. `add` takes an event and returns at once; a thread folds, detokenises and draws."""

    def __init__(
        self,
        stream: TextIO,
        painter: Painter,
        texts: TokenTexts | None,
        state: OverlayState,
        size: Size | None = None,
        *,
        mode: Callable[[], Mode] | None = None,
        keys: KeyReader | None = None,
        pace: Pace | None = None,
    ) -> None:
        """`texts` may be missing where each event comes with its own. `mode` is asked before each frame."""
        self.state = state
        self._stream, self._painter, self._texts = stream, painter, texts
        self._size = size or (lambda: terminal_size(stream))
        self._mode = mode or (lambda: painter.mode)
        self._keys = keys or KeyReader(None)
        self._pace = pace
        self._events: deque[_Arrived] = deque()
        self._wake, self._over = threading.Event(), threading.Event()
        self._error: Exception | None = None
        self._drawn: tuple[OverlayState, tuple[int, int], Mode] | None = None
        self._screen = threading.RLock()  # who has it may write
        self._is_away = False  # the terminal belongs to somebody else
        self._thread = threading.Thread(target=self._run, name="dflash-overlay", daemon=True)

    def __enter__(self) -> LiveAnswer:
        self._stream.write(HIDE)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Draw what is left and show the cursor. Raises what the drawing met, unless another error is on its way."""
        self._over.set()
        self._wake.set()
        try:
            self._thread.join()
            self._finish()
        finally:
            with suppress(OSError, ValueError):
                self._stream.write(WRAP + SHOW)
                self._stream.flush()
        if self._error is not None and kind is None:
            raise self._error

    def add(
        self,
        event: Event,
        flags: Sequence[bool] = (),
        *,
        texts: Sequence[str] | None = None,
        at: float | None = None,
    ) -> None:
        """Take an event; the last three as `OverlayState.add` takes them, by default from the ids and the clock.

        Raises what the drawing met, so that an answer that nobody can see ends.
        """
        paused = self._pace.paused_s if self._pace else 0.0
        if isinstance(event, Finished):
            event = replace(event, ms=max(0.0, event.ms - paused * 1e3))
        self._events.append(_Arrived(event, time.perf_counter() - paused if at is None else at, flags, texts))
        self._wake.set()
        if self._error is not None:
            raise self._error

    def release(self) -> None:
        """Give the terminal back: the live rows leave, the cursor and the echo of keys come back."""
        has_screen = self._screen.acquire(timeout=PATIENCE_S)
        try:
            self._is_away = True
            with suppress(OSError, ValueError):
                self._stream.write(self._painter.erase() + WRAP + SHOW)
                self._stream.flush()
        finally:
            if has_screen:
                self._screen.release()
        self._keys.release()

    def take(self) -> None:
        """Take the terminal again: the live rows are drawn anew where the cursor is now."""
        self._keys.take()
        with self._screen:
            self._drawn, self._is_away = None, False
            with suppress(OSError, ValueError):
                self._stream.write(HIDE)
        self._wake.set()

    def abandon(self) -> None:
        """The program ends now: leave the terminal as it was, below what is drawn. Waits for nothing."""
        self._keys.release()
        os.write(self._stream.fileno(), (END + WRAP + SHOW).encode())

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                self._wake.wait(LOOK_S)
                self._wake.clear()
                self._keys.poll()
                self._fold()
                self._draw()
                self._over.wait(FRAME_S)
        except Exception as err:  # a terminal that went away, and whatever else: the loop must hear of it
            self._error = err

    def _finish(self) -> None:
        """The last frame, by the loop's thread; an answer that broke off is drawn as far as it came."""
        if self._error is not None:
            return
        self._fold()
        if self.state.finished is None:
            self.state = replace(self.state, pending=(), finished="interrupted")  # the loop tells what broke it off
        self._draw()

    def _fold(self) -> None:
        arrived = [self._events.popleft() for _ in range(len(self._events))]
        drafts = [i for i, each in enumerate(arrived) if isinstance(each.event, BlockDrafted)]
        for i, each in enumerate(arrived):
            texts = each.texts
            if texts is None and isinstance(each.event, BlockDrafted) and i != drafts[-1]:
                texts = ("",) * len(each.event.ids)  # only the newest block's drafts are ever shown
            elif texts is None:
                texts = self._texts.of(each.event) if self._texts else ()
            self.state = self.state.add(each.event, texts, each.at, each.flags)

    def _draw(self) -> None:
        now = (self.state, self._size(), self._mode())
        with self._screen:
            if self._is_away or (self._drawn is not None and self._drawn[0] is now[0] and self._drawn[1:] == now[1:]):
                return
            self._drawn = now
            self._painter.mode = now[2]
            self._stream.write(self._painter.frame(self.state, *now[1]))
            self._stream.flush()


def terminal_size(stream: TextIO) -> tuple[int, int]:
    """(columns, rows) of the terminal behind `stream`; 80 by 24 where it does not say."""
    try:
        columns, rows = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return 80, 24
    return columns or 80, rows or 24
