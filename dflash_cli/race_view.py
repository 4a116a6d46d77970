"""A race on the screen: two columns that grow, or two rows where the terminal is narrow."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from dflash_cli.job_control import JobControl
from dflash_cli.keys import KeyReader
from dflash_cli.overlay_painter import SHOW
from dflash_cli.overlay_render import UNICODE, glyphs_for
from dflash_cli.terminal import is_terminal, printable

if TYPE_CHECKING:
    from dflash_cli.race import Race, Racer

FRAMES_A_SECOND = 8
TWO_COLUMNS = 72  # of the terminal; below it one stands over the other
ROWS = 12  # of text on each side, at most
FRAME_ROWS = 2
FRAME_COLUMNS = 4  # with the padding
EDGE = 6  # columns of a frame's lower edge that its text leaves free
TAIL = 2000  # characters that may be in view


def frame(race: Race, width: int, height: int, *, is_unicode: bool = True) -> RenderableType:
    """Both sides now, as high as their text but in at most `height` rows (or three for each side)."""
    shape = box.ROUNDED if is_unicode else box.ASCII
    if width >= TWO_COLUMNS:
        most = max(1, min(ROWS, height - FRAME_ROWS))
        lines = [_lines(each, width // 2) for each in race.racers]
        rows = min(most, max(len(each) for each in lines))
        table = Table.grid(expand=True)
        table.add_column(ratio=1)
        table.add_column(ratio=1)
        panels = (_panel(each, text, width // 2, rows, shape) for each, text in zip(race.racers, lines, strict=True))
        table.add_row(*panels)
        return table
    most = max(1, min(ROWS, height // 2 - FRAME_ROWS))
    stacked = ((each, _lines(each, width)) for each in race.racers)
    return Group(*(_panel(each, text, width, min(most, len(text)), shape) for each, text in stacked))


def _lines(racer: Racer, width: int) -> list[Text]:
    """The text of a side of that width, cut into rows; at least one."""
    text = Text(printable(racer.text[-TAIL:]).expandtabs(4))
    return list(text.wrap(Console(width=width), max(1, width - FRAME_COLUMNS), overflow="fold")) or [Text()]


def _panel(racer: Racer, lines: list[Text], width: int, rows: int, shape: box.Box) -> Panel:
    return Panel(
        Text("\n").join(lines[-rows:]),
        title=Text(f"{racer.name}{', finished' if racer.is_finished else ''}"),
        subtitle=Text(racer.figures_within(max(0, width - EDGE))) or None,
        height=rows + FRAME_ROWS,
        box=shape,
    )


def can_draw() -> bool:
    """Whether stderr is a terminal that can move its cursor."""
    return is_terminal(sys.stderr) and os.environ.get("TERM") != "dumb"


@contextmanager
def unseen_keys(keep: Callable[[str], None]) -> Iterator[Callable[[], None]]:
    """While the body runs, keys are not echoed, which would break what is drawn; `keep` gets the text typed.

    Gives what takes the keys that are waiting.
    """
    keys = KeyReader(sys.stdin)
    try:
        with keys, JobControl(lambda: _give_back(keys), keys.take, lambda: _give_back(keys)):
            yield keys.poll
    finally:
        keep(keys.typed.rstrip("\n"))


def _give_back(keys: KeyReader) -> None:
    """To the shell, on Ctrl-Z and at a sudden end."""
    keys.release()
    os.write(sys.stderr.fileno(), SHOW.encode())


@contextmanager
def live(race: Race, *, has_color: bool) -> Iterator[None]:
    """Draw the race on stderr while the body runs; the last frame stays."""
    console = Console(stderr=True, no_color=not has_color, highlight=False)
    is_unicode = glyphs_for(sys.stderr.encoding) is UNICODE

    def render() -> RenderableType:
        return frame(race, console.width, console.height - 2, is_unicode=is_unicode)

    with Live(console=console, get_renderable=render, refresh_per_second=FRAMES_A_SECOND):
        yield
