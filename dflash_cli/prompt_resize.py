"""The prompt in a window whose size changes: drawn anew in place, so that no line is there twice and none is lost.

prompt-toolkit goes up as many rows as it has drawn above the cursor. Most terminals fold rows that no longer fit, so
that there are more of them.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dflash_cli.overlay_painter import ERASE

if TYPE_CHECKING:
    from prompt_toolkit.application import Application
    from prompt_toolkit.layout.screen import Screen

CUTTING = ("XTERM_VERSION", "STY")  # set by terminals that cut rows instead: xterm and GNU screen


def hear_resizes(app: Application[Any]) -> None:
    """Draw the running `app` anew from now on whenever the window changes. For its `before_render`: once is enough.

    Where there is no such signal (Windows) the library's own way stays.
    """
    with suppress(AttributeError, NotImplementedError, RuntimeError, ValueError):
        asyncio.get_running_loop().add_signal_handler(signal.SIGWINCH, lambda: redraw(app))
        app.terminal_size_polling_interval = None


def redraw(app: Application[Any]) -> None:
    """Erase the prompt from its first row on, as the terminal shows it now, and draw it there."""
    screen, output = app.renderer.last_rendered_screen, app.output
    if screen is None:
        return
    at = screen.get_cursor_position(app.layout.current_window)
    columns = output.get_size().columns
    rows = rows_above(row_widths(screen), at.y, at.x, columns) if folds(os.environ) else at.y
    output.cursor_up(rows)
    output.write_raw(ERASE)
    output.reset_attributes()
    output.enable_autowrap()
    output.flush()
    app.renderer.reset()
    app.renderer.request_absolute_cursor_position()
    app.invalidate()


def folds(environ: Mapping[str, str]) -> bool:
    """Whether the terminal folds rows that are too wide for a narrower window."""
    return environ.get("TERM") != "linux" and not any(environ.get(name) for name in CUTTING)


def row_widths(screen: Screen) -> list[int]:
    """How many columns of each row are used."""
    rows = (screen.data_buffer[y] for y in range(screen.height))
    return [max((x + char.width for x, char in row.items() if char.char.strip()), default=0) for row in rows]


def rows_above(widths: Sequence[int], y: int, x: int, columns: int) -> int:
    """How many rows are above the cursor, which was at (y, x) of rows of these widths, when they are folded."""
    columns = max(1, columns)
    return sum(max(1, -(-width // columns)) for width in widths[:y]) + x // columns
