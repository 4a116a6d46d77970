"""Follows the turns that other processes add: `dflash stats --watch`. Imports no torch."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from dflash_cli.stats_store.tables import console_for, overview_view, turns_table
from dflash_cli.stats_store.views import by, last_turns, overview
from dflash_cli.terminal import AnswerOutput, is_terminal, printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from dflash_cli.stats_store.selection import Selection
    from dflash_cli.stats_store.store import StatsStore

SECONDS = 0.5  # between looks
SHOWN = 5  # turns below the overview


def watch(
    store: StatsStore, selection: Selection, *, has_color: bool, is_over: Callable[[], bool] = lambda: False
) -> None:
    """Show the overview and the last turns as they change, until Ctrl-C; on a file or pipe a line for each new turn."""
    try:
        if is_terminal(sys.stdout):
            _watch_screen(store, selection, console_for(has_color), is_over)
        else:
            _watch_lines(store, selection, is_over)
    except KeyboardInterrupt:
        return


def _watch_screen(store: StatsStore, selection: Selection, console: Console, is_over: Callable[[], bool]) -> None:
    from rich.live import Live

    with Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live:
        seen = None
        while not is_over():
            if (now := (store.version(), console.size)) != seen:
                seen = now
                live.update(_page(store, selection), refresh=True)
            time.sleep(SECONDS)


def _page(store: StatsStore, selection: Selection) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    view = overview(store, selection)
    if not view.figures.turns:
        return Text("waiting for the first turn; Ctrl-C ends this")
    newest = turns_table(last_turns(store, selection, SHOWN))
    return Group(newest, Text(), overview_view(view, by(store, selection, "pair"), [], selection.words))


def _watch_lines(store: StatsStore, selection: Selection, is_over: Callable[[], bool]) -> None:
    output, seen = AnswerOutput(), -1
    while not is_over():
        turns = last_turns(store, selection, SHOWN if seen < 0 else 1000)
        for row in reversed([each for each in turns if each["id"] > seen]):
            seen = row["id"]
            output.write(printable(_line(row)) + "\n")
        time.sleep(SECONDS)


def _line(row: dict[str, object]) -> str:
    parts = [f"turn {row['id']}", str(row["pair"]), str(row["kind"]), f"{row['new_tokens']} tokens"]
    if row["tau"] is not None:
        parts.append(f"τ {row['tau']:.2f}")
    if row["tokens_per_s"] is not None:
        parts.append(f"{row['tokens_per_s']:.1f} tok/s")
    return " · ".join(parts)
