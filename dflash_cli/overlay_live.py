"""The overlay's screen: a thread that draws on its own clock, so that decoding never waits for the terminal.

Between frames the cursor stands at the beginning of the first line that may still change. Whatever was above it was
written once, line by line, and is never touched again; a frame erases from the cursor down and draws the short live
part anew. So nothing depends on where rows were before a resize, nor on how wide the terminal thinks an emoji is.
"""

from __future__ import annotations

import io
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.text import Text

from dflash_cli.events import BlockDrafted, Event
from dflash_cli.overlay import MODES, Mode, OverlayState, TokenTexts
from dflash_cli.overlay_render import ASCII, UNICODE, Look, num_settled, settled, strip, tail, wrap
from dflash_cli.terminal import is_terminal
from dflash_cli.themes import THEMES

if TYPE_CHECKING:
    from dflash_cli.text import TextCodec

FRAME_S = 1 / 20
LOOK_S = 0.25  # how often an idle screen looks whether it was resized
MARGIN = 1  # rows of the terminal that are never drawn on: a full screen would scroll
NARROWING = 3  # the live part still fits when a resize cuts the width to a third and its rows are folded
ROWS_FOR_STRIP = 6  # of the live part; with fewer rows the strip has one line
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"
BEGIN, END = "\x1b[?2026h", "\x1b[?2026l"  # terminals that know it show a frame at once; the others ignore it
# Erased down from the second column: from the first one of the top row, tmux would keep what it erases as scroll-back.
ERASE = "\r\x1b[K\x1b[C\x1b[J\r"
UP, NO_WRAP, WRAP = "\x1b[{}A", "\x1b[?7l", "\x1b[?7h"
Size = Callable[[], tuple[int, int]]
"""The terminal's (columns, rows) now."""


class Painter:
    """Turns states into what is written to the terminal. One for an answer; pure but for what it has settled."""

    def __init__(self, look: Look, mode: Mode, colors: ColorSystem | None = None) -> None:
        self._look, self._mode, self._colors = look, mode, colors
        self._console = Console(file=io.StringIO())
        self._taken = 0  # pieces that are in `_open` or were written
        self._open = Text()  # settled text of the line that has no end yet
        self._is_drawn = False

    def frame(self, state: OverlayState, width: int, height: int) -> str:
        """What brings the screen from the last frame to this state; the last frame is the one of a finished state."""
        rows = max(1, min(height - MARGIN, max(NARROWING, height // NARROWING)))
        strip_rows = 3 if rows >= ROWS_FOR_STRIP else int(rows > 2)
        lines = self._settle(state, width, rows - strip_rows)
        below = strip(state, width - 1, strip_rows, self._look) if self._mode == "full" else []
        live = []
        if state.finished:
            if state.turn.passes and state.text:
                lines += below
        elif state.pieces:
            live = [*self._live(state, width)[-(rows - len(below)) :], *below]
        return self._write(lines, live)

    def _settle(self, state: OverlayState, width: int, rows: int) -> list[Text]:
        """Lines that are over: they ended, or the open one has outgrown the live part and is cut at a full row."""
        count = num_settled(state, self._mode)
        self._open.append_text(settled(state, self._taken, count, self._look))
        self._taken = count
        *lines, self._open = self._open.split("\n", allow_blank=True)
        for line in lines:
            line.expand_tabs()
        if state.finished:
            if self._open.plain:
                lines.append(wrap(self._open, sys.maxsize)[0])
            self._open = Text()
        elif len(cut := wrap(self._open, width)) > rows:
            lines += cut[:-rows]
            self._open = Text().join(cut[-rows:])
        return lines

    def _live(self, state: OverlayState, width: int) -> list[Text]:
        whole = self._open.copy().append_text(tail(state, self._mode, self._look))
        return [row for line in whole.split("\n", allow_blank=True) for row in wrap(line, width)]

    def _write(self, lines: list[Text], live: list[Text]) -> str:
        if not (lines or live or self._is_drawn):
            return ""
        self._is_drawn = bool(live)
        out = [BEGIN, ERASE, *(self._ansi(line) + "\n" for line in lines)]
        if live:
            # Without wrapping a row stays one row, even if the terminal finds it wider than was counted.
            out += [NO_WRAP, "\n".join(map(self._ansi, live)), WRAP, "\r"]
            out += [UP.format(len(live) - 1)] if len(live) > 1 else []
        return "".join((*out, END))

    def _ansi(self, line: Text) -> str:
        segments = Segment.simplify(line.render(self._console))
        return "".join(
            text if style is None else style.render(text, color_system=self._colors) for text, style, _ in segments
        )


class LiveAnswer:
    """One answer on the screen. `add` takes an event and returns at once; a thread folds, detokenises and draws."""

    def __init__(
        self, stream: TextIO, painter: Painter, texts: TokenTexts, state: OverlayState, size: Size | None = None
    ) -> None:
        self.state = state
        self._stream, self._painter, self._texts = stream, painter, texts
        self._size = size or (lambda: terminal_size(stream))
        self._events: deque[tuple[Event, float]] = deque()
        self._wake, self._over = threading.Event(), threading.Event()
        self._error: Exception | None = None
        self._drawn: tuple[OverlayState, tuple[int, int]] | None = None
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

    def add(self, event: Event) -> None:
        """Take an event. Raises what the drawing met, so that an answer that nobody can see ends."""
        self._events.append((event, time.perf_counter()))
        self._wake.set()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                self._wake.wait(LOOK_S)
                self._wake.clear()
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
        events = [self._events.popleft() for _ in range(len(self._events))]
        drafts = [i for i, (event, _) in enumerate(events) if isinstance(event, BlockDrafted)]
        for i, (event, at) in enumerate(events):
            # Only the newest block's drafts are ever shown.
            skipped = isinstance(event, BlockDrafted) and i != drafts[-1]
            texts = ("",) * len(event.ids) if skipped and isinstance(event, BlockDrafted) else self._texts.of(event)
            self.state = self.state.add(event, texts, at)

    def _draw(self) -> None:
        now = (self.state, self._size())
        if self._drawn is not None and self._drawn[0] is now[0] and self._drawn[1] == now[1]:
            return
        self._drawn = now
        self._stream.write(self._painter.frame(self.state, *now[1]))
        self._stream.flush()


class Overlay:
    """A chat's overlay: its mode, its looks, and the figures that go on from answer to answer."""

    def __init__(self, stream: TextIO, mode: str | None, theme: str, *, has_color: bool) -> None:
        """`mode`: one of MODES; None is `full` where there are colours, else `off`. `theme`: one of THEMES."""
        self._stream = stream
        self._theme = THEMES[theme]
        self.can_draw = is_terminal(stream) and os.environ.get("TERM") != "dumb" and not _is_legacy_windows()
        self._has_color = self.can_draw and has_color
        self.mode: Mode = "full" if self._has_color else "off"
        if mode is not None:
            self.switch(mode)
        self._state = OverlayState()

    @property
    def is_on(self) -> bool:
        """Whether answers are drawn here. `tokens` is nothing but colours."""
        return self.can_draw and (self.mode == "full" or (self.mode == "tokens" and self._has_color))

    def switch(self, word: str) -> bool:
        """Take the mode of that name from the next answer on; False, and nothing has changed, where there is none."""
        mode = next((each for each in MODES if each == word), None)
        self.mode = mode or self.mode
        return mode is not None

    def describe(self) -> str:
        """The mode in words, with the reason where it shows nothing."""
        if self.mode == "off" or self.is_on:
            return f"overlay {self.mode}"
        why = "it is nothing but colours, which are off" if self.can_draw else "the output is no terminal to draw on"
        return f"overlay {self.mode}, but {why}"

    @contextmanager
    def answer(self, codec: TextCodec, stop: tuple[str, ...]) -> Iterator[LiveAnswer]:
        """An answer to draw; give it each event."""
        painter = Painter(self._look(), self.mode, self._colors())
        live = LiveAnswer(self._stream, painter, TokenTexts(codec, stop), self._state.next_turn())
        with no_echo(sys.stdin):
            try:
                with live:
                    yield live
            finally:
                self._state = live.state

    def _look(self) -> Look:
        encoding = self._stream.encoding or "utf-8"
        glyphs = UNICODE if encoding.lower().replace("-", "") in ("utf8", "utf8sig") else ASCII
        return Look(self._theme, glyphs, not self._has_color, encoding)

    def _colors(self) -> ColorSystem | None:
        if not self._has_color:
            return None
        names = {"256": ColorSystem.EIGHT_BIT, "truecolor": ColorSystem.TRUECOLOR}
        found = Console(file=self._stream, force_terminal=True, no_color=False).color_system
        return names.get(found or "", ColorSystem.STANDARD)


def _is_legacy_windows() -> bool:
    return os.name == "nt" and Console().legacy_windows


def terminal_size(stream: TextIO) -> tuple[int, int]:
    """(columns, rows) of the terminal behind `stream`; 80 by 24 where it does not say."""
    try:
        columns, rows = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return 80, 24
    return columns or 80, rows or 24


@contextmanager
def no_echo(stream: TextIO | None) -> Iterator[None]:
    """Keys typed in mid-answer wait for the next prompt unseen: their echo, a newline above all, would move the cursor.

    Does nothing where `stream` is no terminal, and on systems without termios.
    """
    try:
        import termios
    except ImportError:
        yield
        return
    if stream is None or not is_terminal(stream):
        yield
        return
    fd = stream.fileno()
    before = termios.tcgetattr(fd)
    quiet = [*before[:3], before[3] & ~termios.ECHO, *before[4:]]
    termios.tcsetattr(fd, termios.TCSADRAIN, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
