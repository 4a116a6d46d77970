"""A race on the screen: two columns that grow, or two rows where the terminal is narrow."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from dflash_cli.terminal import is_terminal, printable

if TYPE_CHECKING:
    from dflash_cli.race import Race, Racer

FRAMES_A_SECOND = 8
TWO_COLUMNS = 72  # of the terminal; below it one stands over the other
ROWS = 12  # of text on each side, where the terminal has room
FRAME_ROWS = 2
TAIL = 2000  # characters that may be in view


def frame(race: Race, width: int, height: int, *, is_unicode: bool = True) -> RenderableType:
    """Both sides now, in at most `height` rows (but three for each side)."""
    shape = box.ROUNDED if is_unicode else box.ASCII
    if width >= TWO_COLUMNS:
        rows = max(1, min(ROWS, height - FRAME_ROWS))
        table = Table.grid(expand=True)
        table.add_column(ratio=1)
        table.add_column(ratio=1)
        table.add_row(*(_panel(each, width // 2, rows, shape) for each in race.racers))
        return table
    rows = max(1, min(ROWS, height // 2 - FRAME_ROWS))
    return Group(*(_panel(each, width, rows, shape) for each in race.racers))


def _panel(racer: Racer, width: int, rows: int, shape: box.Box) -> Panel:
    text = Text(printable(racer.text[-TAIL:]).expandtabs(4))
    lines = text.wrap(Console(width=width), max(1, width - 4), overflow="fold")
    shown = Text("\n").join(list(lines)[-rows:])
    end = ", finished" if racer.is_finished else ""
    return Panel(
        shown, title=Text(f"{racer.name}{end}"), subtitle=Text(racer.figures()), height=rows + FRAME_ROWS, box=shape
    )


def can_draw() -> bool:
    """Whether stderr is a terminal that can move its cursor."""
    return is_terminal(sys.stderr) and os.environ.get("TERM") != "dumb"


@contextmanager
def live(race: Race, *, has_color: bool) -> Iterator[None]:
    """Draw the race on stderr while the body runs; the last frame stays."""
    console = Console(stderr=True, no_color=not has_color, highlight=False)
    is_unicode = (sys.stderr.encoding or "").lower().replace("-", "").startswith("utf")

    def render() -> RenderableType:
        return frame(race, console.width, console.height - 2, is_unicode=is_unicode)

    with Live(console=console, get_renderable=render, refresh_per_second=FRAMES_A_SECOND):
        yield
