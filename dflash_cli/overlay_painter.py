"""What is written to the terminal, frame by frame. Knows no clock and no thread; imports no torch.

Between frames the cursor stands at the beginning of the first line that may still change. Whatever was above it was
written once, line by line, and is never touched again; a frame erases from the cursor down and draws the short live
part anew. So nothing depends on where rows were before a resize, nor on how wide the terminal thinks an emoji is.
"""

from __future__ import annotations

import io
from collections.abc import Callable

from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.text import Text

from dflash_cli.overlay import Mode, OverlayState
from dflash_cli.overlay_open import Markdown, OpenText
from dflash_cli.overlay_render import Look, before_answer, num_settled, settled, style_of, tail, thought
from dflash_cli.overlay_strip import strip

MARGIN = 1  # rows of the terminal that are never drawn on: a full screen would scroll
NARROWING = 3  # the live part still fits when a resize cuts the width to a third and its rows are folded
ROWS_FOR_STRIP = 6  # of the live part; with fewer rows the strip has one line
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"
BEGIN, END = "\x1b[?2026h", "\x1b[?2026l"  # terminals that know it show a frame at once; the others ignore it
# Erased down from the second column: from the first one of the top row, tmux would keep what it erases as scroll-back.
ERASE = "\r\x1b[K\x1b[C\x1b[J\r"
UP, NO_WRAP, WRAP = "\x1b[{}A", "\x1b[?7l", "\x1b[?7h"


class Painter:
    """Turns states into what is written to the terminal. One for an answer; pure but for what it has settled.

    `mode` may change between frames: what was settled stays as it is, the rest is drawn in the new mode.
    """

    def __init__(
        self,
        look: Look,
        mode: Mode,
        colors: ColorSystem | None = None,
        markdown: Callable[[], Markdown] | None = None,
    ) -> None:
        """`markdown` loads what draws the finished blocks of an answer in mode `off`; without they are plain lines."""
        self.mode = mode
        self._look, self._colors, self._markdown = look, colors, markdown
        self._console = Console(file=io.StringIO())
        self._taken = 0  # pieces that are in `_open` or were written
        self._open = OpenText(markdown)
        self._has_blocks = False  # whether `_open` was taking Markdown in the last frame
        self._is_drawn = False
        self._height = self._width = 0  # of the live part's text

    def frame(self, state: OverlayState, width: int, height: int) -> str:
        """What brings the screen from the last frame to this state; the last frame is the one of a finished state."""
        rows = max(1, min(height - MARGIN, max(NARROWING, height // NARROWING)))
        strip_rows = 3 if rows >= ROWS_FOR_STRIP else int(rows > 2)
        strip_rows = strip_rows if self.mode == "full" else 0
        lines = self._settle(state, width, rows - strip_rows)
        below = strip(state, width - 1, strip_rows, self._look)
        live = []
        if state.finished:
            if state.turn.passes and state.text:
                lines += below
        elif state.pieces:
            rest = tail(state, self.mode, self._look, self._taken)
            text = self._open.view(rest, width, rows - len(below))
            live = [*self._steadied(text, lines, width, rows - len(below)), *below]
        return self._write(lines, live)

    def erase(self) -> str:
        """What takes the live rows from the screen; the next frame draws them where the cursor is then."""
        was_drawn, self._is_drawn = self._is_drawn, False
        return ERASE if was_drawn else ""

    def _steadied(self, text: list[Text], lines: list[Text], width: int, rows: int) -> list[Text]:
        """With blank rows where rejected drafts that are gone made it longer: the strip must not jump up again."""
        written = sum(max(1, -(-line.cell_len // width)) for line in lines)
        height = min(rows, self._height - written) if self.mode == "full" and width == self._width else 0
        text += [Text()] * (height - len(text))
        self._height, self._width = len(text), width
        return text

    def _settle(self, state: OverlayState, width: int, rows: int) -> list[Text]:
        """Lines that are over: they ended, or the open one has outgrown the live part and is cut at a full row."""
        count = max(self._taken, num_settled(state, self.mode))
        first, self._taken = self._taken, count
        begin = state.answer_at if state.parts.thought else 0  # of the answer; None: thinking is all there is
        if self._markdown is None or self.mode != "off" or begin is None:
            self._has_blocks = False
            lines = self._open.lines(settled(state, first, count, self._look, calm=self.mode != "off"), width)
        else:
            lines = self._settle_blocks(state, first, count, width, begin)
        if state.finished:
            lines += self._end(state, width)
        elif not self._has_blocks:
            lines += self._open.cut(width, rows)
        return lines

    def _settle_blocks(self, state: OverlayState, first: int, count: int, width: int, begin: int) -> list[Text]:
        lines = []
        more = settled(state, max(first, begin), count, self._look)
        if first <= begin < count:
            gap = before_answer(state, self._look)
            thinking = settled(state, first, begin, self._look, calm=False)
            lines = [*self._open.lines(thinking.append_text(gap), width), *self._open.end(width)]
            more, self._has_blocks = more[len(gap) :], False
        if not self._has_blocks:
            # What was written of the answer in another mode until here.
            written = settled(state, begin, first, self._look).plain[len(before_answer(state, self._look)) :]
            self._open.begin_blocks(written[: len(written) - len(self._open.text)])
        self._has_blocks = True
        return lines + self._open.blocks(more, width, self._look)

    def _end(self, state: OverlayState, width: int) -> list[Text]:
        if self._has_blocks:
            return self._open.end_blocks(width, self._look)
        lines = self._open.end(width)
        if not self._look.thinking and state.parts.has_thinking and state.answer_at is None:
            lines.append(Text(thought(state, self._look), style_of("faint", self._look)))
        return lines

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
