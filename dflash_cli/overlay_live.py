"""The overlay of a chat: which answers are drawn, how, and what goes on from answer to answer. Imports no torch."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, TextIO

from rich.color import ColorSystem
from rich.console import Console
from rich.text import Text

from dflash_cli.job_control import JobControl
from dflash_cli.keys import KeyReader
from dflash_cli.live_answer import LiveAnswer
from dflash_cli.overlay import MODES, Mode, OverlayState, TokenTexts
from dflash_cli.overlay_open import Markdown
from dflash_cli.overlay_painter import Painter
from dflash_cli.overlay_render import Look, glyphs_for
from dflash_cli.terminal import is_terminal
from dflash_cli.themes import THEMES

if TYPE_CHECKING:
    from dflash_cli.pace import Pace
    from dflash_cli.text import TextCodec


class Overlay:
    """A chat's overlay: its mode, its looks, and the figures that go on from answer to answer."""

    def __init__(self, stream: TextIO, mode: str | None, theme: str, *, has_color: bool) -> None:
        """`mode`: one of MODES; None is `full` where there are colours, else `off`. `theme`: one of THEMES."""
        self._stream = stream
        self._theme = THEMES[theme]
        self.is_on = is_terminal(stream) and os.environ.get("TERM") != "dumb" and not _is_legacy_windows()
        """Whether answers can be drawn here, in whatever mode: the output is a terminal that moves its cursor."""
        self._has_color = self.is_on and has_color
        self.mode: Mode = "full" if self._has_color else "off"
        if mode is not None:
            self.switch(mode)
        self._state = OverlayState()
        self._typed = ""

    def switch(self, word: str) -> bool:
        """Take the mode of that name at once, in mid-answer too; False, and nothing has changed, if there is none."""
        mode = next((each for each in MODES if each == word), None)
        self.mode = mode or self.mode
        return mode is not None

    def cycle(self) -> Mode:
        """Take the next mode at once, as F2 does; which one it is."""
        self.mode = MODES[(MODES.index(self.mode) + 1) % len(MODES)]
        return self.mode

    def dress(self, theme: str) -> None:
        """Take the colours of one of THEMES, from the next answer on."""
        self._theme = THEMES[theme]

    def legend(self) -> list[Text]:
        """What the overlay's colours or symbols mean, as they are drawn here; then its figures."""
        look = self._look()
        samples = (
            (("[kept]" if look.marks else "kept"), look.theme.accepted, "guessed by the drafter, kept by the model"),
            (("+own" if look.marks else "own"), look.theme.bonus, "the model's own token, where no guess was kept"),
            (("~gone~" if look.marks else "gone"), look.theme.rejected, "guesses of the newest block, thrown away"),
            (("[guess]" if look.marks else "guess"), look.theme.pending, "guesses that the model has not read yet"),
            (look.glyphs.tau, "", "tokens per pass of the model; 1 without guesses"),
        )
        width = max(len(sample) for sample, *_ in samples)
        return [
            Text.assemble((sample, "" if look.marks else style), " " * (width - len(sample) + 2), meaning)
            for sample, style, meaning in samples
        ]

    def take_typed(self) -> str:
        """What was typed while answers streamed, once: for the next prompt, where a last Enter sends nothing yet."""
        typed, self._typed = self._typed, ""
        return typed.rstrip("\n")

    def describe(self) -> str:
        """The mode in words, with the reason where it shows nothing."""
        if self.mode == "off" or (self.is_on and (self._has_color or self.mode == "full")):
            return f"overlay {self.mode}"
        why = "it is nothing but colours, which are off" if self.is_on else "the output is no terminal to draw on"
        return f"overlay {self.mode}, but {why}"

    @contextmanager
    def answer(
        self,
        codec: TextCodec,
        stop: tuple[str, ...],
        *,
        show_thinking: bool = True,
        markdown: bool = True,
        pace: Pace | None = None,
    ) -> Iterator[LiveAnswer]:
        """An answer to draw; give it each event, with which of its ids are thinking.

        `markdown`: whether mode `off` shows it, where there are colours. `pace`: what slows the answer down; its
        pauses are no part of the figures.
        """
        painter = self._painter(show_thinking=show_thinking, markdown=markdown)
        keys = KeyReader(sys.stdin, self.cycle)
        live = LiveAnswer(
            self._stream, painter, TokenTexts(codec, stop), self._state.next_turn(),
            mode=lambda: self.mode, keys=keys, pace=pace,
        )  # fmt: skip
        try:
            with self._drawing(live, keys):
                yield live
        finally:
            self._state = live.state

    @contextmanager
    def replay(self, *, show_thinking: bool = True) -> Iterator[LiveAnswer]:
        """A recorded answer to draw, in mode `full` at first; give it each event with its texts and time.

        The figures of the session and the mode stay as they are.
        """
        before = self.mode
        self.mode = "full"
        keys = KeyReader(sys.stdin, self.cycle)
        painter = self._painter(show_thinking=show_thinking, markdown=True)
        live = LiveAnswer(self._stream, painter, None, OverlayState(), mode=lambda: self.mode, keys=keys)
        try:
            with self._drawing(live, keys):
                yield live
        finally:
            self.mode = before

    @contextmanager
    def _drawing(self, live: LiveAnswer, keys: KeyReader) -> Iterator[None]:
        try:
            with keys, live, JobControl(live.release, live.take, live.abandon):
                yield
        finally:
            self._typed += keys.typed

    def _painter(self, *, show_thinking: bool, markdown: bool) -> Painter:
        look = replace(self._look(), thinking=show_thinking)
        return Painter(look, self.mode, self._colors(), load_markdown if markdown and self._has_color else None)

    def _look(self) -> Look:
        encoding = self._stream.encoding or "utf-8"
        return Look(self._theme, glyphs_for(encoding), not self._has_color, encoding)

    def _colors(self) -> ColorSystem | None:
        if not self._has_color:
            return None
        names = {"256": ColorSystem.EIGHT_BIT, "truecolor": ColorSystem.TRUECOLOR}
        found = Console(file=self._stream, force_terminal=True, no_color=False).color_system
        return names.get(found or "", ColorSystem.STANDARD)


def load_markdown() -> Markdown:
    """What draws Markdown; its libraries are loaded when it is needed first."""
    from dflash_cli.markdown import MarkdownBlocks, render_block

    return Markdown(MarkdownBlocks, render_block)


def _is_legacy_windows() -> bool:
    return os.name == "nt" and Console().legacy_windows
