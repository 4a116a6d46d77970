"""From a view's name to what is printed of it: data for programs, a picture for people. Imports no torch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.text import Text

from dflash_cli.overlay_render import Look, glyphs_for
from dflash_cli.replay import stats_of
from dflash_cli.stats_store import export, tables
from dflash_cli.stats_store.regression import regressions
from dflash_cli.stats_store.row import BLOCK
from dflash_cli.stats_store.turn_view import recording_blocks, strip_lines, turn_view
from dflash_cli.stats_store.views import GROUPS, blocks_of_turn, by, last_turns, overview, turn_of
from dflash_cli.terminal import AnswerOutput, printable
from dflash_cli.themes import THEMES
from dflash_cli.trace import read_trace

if TYPE_CHECKING:
    from rich.console import RenderableType

    from dflash_cli.config import Config
    from dflash_cli.stats_store.selection import Selection
    from dflash_cli.stats_store.store import StatsStore


@dataclass(frozen=True)
class Shown:
    """A view: `data` for JSON, `rows` for CSV, and what draws it."""

    data: object
    rows: export.Rows
    picture: Callable[[], RenderableType]
    is_empty: bool


def show(store: StatsStore, selection: Selection, what: str, count: int) -> Shown:
    """One of `GROUPS` or of `stats_command.VIEWS`; `count`: turns of the view of the last ones."""
    if what in GROUPS:
        groups = by(store, selection, what)
        rows = export.group_rows(what, groups)
        return Shown(rows, rows, lambda: tables.groups_table(what, groups), not groups)
    if what == "turns":
        turns = last_turns(store, selection, selection.last or count)
        rows = export.turn_rows(turns)
        return Shown(rows, rows, lambda: tables.turns_table(turns), not turns)
    if what == "trend":
        return _trend(store, selection)
    return _of_overview(store, selection, what)


def _of_overview(store: StatsStore, selection: Selection, what: str) -> Shown:
    view = overview(store, selection)
    is_empty = not view.figures.turns
    if what == "lengths":
        rows = export.length_rows(view.lengths)
        return Shown(rows, rows, lambda: tables.lengths_bars(view.lengths), is_empty)
    if what == "positions":
        rows = export.position_rows(view.positions)
        return Shown(rows, rows, lambda: tables.positions_bars(view.positions), is_empty)
    if what == "time":
        rows = export.time_rows(view.figures)
        return Shown(rows[0], rows, lambda: tables.time_bars(view.figures), is_empty)

    def picture() -> RenderableType:
        return tables.overview_view(
            view, by(store, selection, "pair"), regressions(store, selection), selection.words
        )  # fmt: skip

    return Shown(view.as_dict(), export.overview_rows(view), picture, is_empty)


def _trend(store: StatsStore, selection: Selection) -> Shown:
    days, alerts = by(store, selection, "day"), regressions(store, selection)
    rows = export.group_rows("day", days)
    data = {"days": rows, "regressions": export.alert_rows(alerts)}
    return Shown(data, rows, lambda: tables.trend_view(days, alerts), not days)


def show_turn(store: StatsStore, number: int | None, config: Config, *, as_json: bool) -> dict[str, Any] | None:
    """Print a turn, the newest for None, unless it is wanted as JSON; its data, or None where there is no such turn."""
    row = turn_of(store, number)
    if row is None:
        return None
    blocks = blocks_of_turn(store, row["id"])
    if not as_json:
        console = tables.console_for(config.wants_color(sys.stdout))
        tables.encodable(console, turn_view(row, blocks, console.width, _look(config)))
    named = None if blocks is None else [dict(zip(BLOCK, each, strict=True)) for each in blocks]
    return {**row, "blocks": named}


def show_trace(path: Path, config: Config, *, as_json: bool) -> None:
    """The figures and blocks of each answer of a trace."""
    told = []
    console = tables.console_for(config.wants_color(sys.stdout))
    for recording in read_trace(path):
        stats = stats_of(recording)
        told.append({"pair": recording.head.pair, "time": recording.head.time, "acceptance": stats.acceptance()})
        if not as_json:
            head = Text(printable(f"{recording.head.pair} · {stats.summary()}"))
            lines = strip_lines(recording_blocks(recording), console.width, _look(config))
            tables.encodable(console, Group(head, *lines))
    if as_json:
        AnswerOutput().write(export.to_json(told))


def _look(config: Config) -> Look:
    encoding = (sys.stdout.encoding if sys.stdout is not None else None) or "utf-8"
    return Look(THEMES[config.theme], glyphs_for(encoding), not config.wants_color(sys.stdout), encoding)
