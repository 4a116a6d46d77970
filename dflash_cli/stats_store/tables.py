"""The views as tables and bars for a terminal. Imports no torch."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.text import Text

from dflash_cli.overlay_render import glyphs_for
from dflash_cli.stats import Position, counted
from dflash_cli.stats_store.fitted import FittedBars, FittedTable
from dflash_cli.terminal import is_terminal, printable

if TYPE_CHECKING:
    from dflash_cli.stats_store.figures import Figures
    from dflash_cli.stats_store.regression import Regression
    from dflash_cli.stats_store.views import Group as Turns
    from dflash_cli.stats_store.views import Overview

WIDTH = 110  # of what goes to a file or pipe
DAYS = 30  # that the trend shows
NOT_MEASURED = "not measured"
HEADINGS = ("turns", "tokens", "blocks", "τ", "accepted", "tok/s", "speed-up")
SPARE = ("blocks", "tokens", "turns", "accepted", "speed-up")  # on a narrow terminal, the first first
TURN = ("turn", "time", "pair", "backend", "kind", "tokens", "τ", "accepted", "tok/s", "end")
SPARE_OF_TURN = ("backend", "end", "accepted", "tokens", "time", "kind")


def console_for(has_color: bool) -> Console:
    """For stdout; as wide as the terminal is."""
    width = None if is_terminal(sys.stdout) else WIDTH
    return Console(
        file=sys.stdout, width=width, highlight=False, force_terminal=has_color or None, no_color=not has_color
    )


def encodable(console: Console, view: RenderableType) -> None:
    """Print a view; signs that the output's encoding lacks become others."""
    if glyphs_for(console.encoding).tau == "τ":
        console.print(view)
        return
    with console.capture() as capture:
        console.print(view)
    text = capture.get().translate(str.maketrans("τ█·×", "t#|x"))
    console.out(text.encode(console.encoding, "replace").decode(console.encoding), end="", highlight=False)


def number(value: float | None, digits: int = 2, unit: str = "") -> str:
    """`1,234.50`, or a dash where there is none."""
    return "-" if value is None else f"{value:,.{digits}f}{unit}"


def share(value: float | None) -> str:
    """`61 %`."""
    return "-" if value is None else f"{value:.0%}"


def figure_cells(figures: Figures) -> tuple[str, ...]:
    """The cells under HEADINGS."""
    speedup = figures.speedup
    return (
        number(figures.turns, 0),
        number(figures.new_tokens, 0),
        number(figures.passes, 0),
        number(figures.tau),
        share(figures.rate),
        number(figures.tokens_per_s, 1),
        NOT_MEASURED if speedup is None else f"{speedup:.2f}×",
    )


def groups_table(what: str, groups: Sequence[Turns]) -> FittedTable:
    """A row a group."""
    rows = ((each.name or "?", *figure_cells(each.figures)) for each in groups)
    return FittedTable((what, *HEADINGS), rows, spare=SPARE)


def lengths_bars(lengths: Mapping[int, int]) -> RenderableType:
    """The histogram of acceptance lengths."""
    most, total = max(lengths.values(), default=0), sum(lengths.values())
    rows = ((str(each), count / most, f"{count:,} ({count / total:.0%})") for each, count in lengths.items())
    return FittedBars(rows, "acceptance length: blocks")


def positions_bars(positions: Sequence[Position]) -> RenderableType:
    """Survival by position, with the conditional acceptance behind it."""
    rows = (
        (str(place), each.survival or 0.0, f"{share(each.survival)} (conditional {share(each.conditional)})")
        for place, each in enumerate(positions, 1)
    )
    return FittedBars(rows, "draft position: survival")


def time_bars(figures: Figures) -> RenderableType:
    """How decoding time was spent, and the prefill beside it."""
    rows = [(name, part, f"{ms / 1e3:,.2f} s ({part:.0%})") for name, ms, part in figures.time_split]
    decode_s, prefill_s = figures.decode_ms / 1e3, figures.prefill_ms / 1e3
    return FittedBars(rows, f"decoding time, {decode_s:,.1f} s (prefill {prefill_s:,.1f} s)")


def overview_view(view: Overview, pairs: Sequence[Turns], alerts: Sequence[Regression], words: str) -> RenderableType:
    """All of the overview."""
    return _spaced(_overview_parts(view, pairs, alerts, words))


def _overview_parts(
    view: Overview, pairs: Sequence[Turns], alerts: Sequence[Regression], words: str
) -> Iterator[RenderableType]:
    figures = view.figures
    turns = f"{figures.turns:,} turn{'' if figures.turns == 1 else 's'}"
    lines = [f"{turns} · {figures.new_tokens:,} tokens · {figures.passes:,} blocks"]
    lines[0] += f" ({printable(words)})" if words else ""
    speedup = figures.speedup
    lines.append(
        f"τ {number(figures.tau)} · {share(figures.rate)} of drafts accepted · {number(figures.tokens_per_s, 1)} tok/s "
        f"· speed-up {NOT_MEASURED if speedup is None else f'{speedup:.2f}×'}"
    )
    told = [f"first token after {number(figures.ttft, 0)} ms"]
    if figures.prompt_tokens:
        told.append(f"{figures.reused_tokens / figures.prompt_tokens:.0%} of the prompts' tokens reused")
    if figures.interrupted:
        told.append(f"{figures.interrupted} interrupted")
    if view.plain.turns:
        told.append(f"{counted(view.plain.turns, 'turn')} of plain decoding among them, τ 1")
    yield Text("\n".join([*lines, " · ".join(told)]))
    if alerts:
        yield alert_lines(alerts)
    yield groups_table("pair", pairs)
    yield lengths_bars(view.lengths)
    if view.positions:
        yield positions_bars(view.positions)
    yield time_bars(figures)


def alert_lines(alerts: Sequence[Regression]) -> Text:
    """What became worse, a line each."""
    return Text("\n".join(f"regression: {printable(each.text)}" for each in alerts), "bold red")


def trend_view(days: Sequence[Turns], alerts: Sequence[Regression]) -> RenderableType:
    """τ day by day as bars, speeds beside them, and what became worse. Of many days the last ones."""
    title = "day: τ" if len(days) <= DAYS else f"day: τ (the last {DAYS} of {len(days)} days)"
    days = days[-DAYS:]
    most = max((each.figures.tau or 0.0 for each in days), default=0.0) or 1.0
    rows = (
        (each.name, (each.figures.tau or 0.0) / most, f"τ {number(each.figures.tau)}, "
         f"{number(each.figures.tokens_per_s, 1)} tok/s, {counted(each.figures.turns, 'turn')}")
        for each in days
    )  # fmt: skip
    told = alert_lines(alerts) if alerts else Text("no regression: nothing became worse after a change")
    return _spaced([FittedBars(rows, title), told])


def turns_table(rows: Sequence[Mapping[str, Any]]) -> FittedTable:
    """A row a turn."""
    return FittedTable(TURN, (_turn_cells(row) for row in rows), texts=5, names=("pair",), spare=SPARE_OF_TURN)


def _turn_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    is_plain = not row["drafter"]
    time = datetime.fromtimestamp(row["time"] / 1e3).astimezone()
    year = "" if time.year == datetime.now().astimezone().year else "%Y-"
    return (
        str(row["id"]),
        f"{time:{year}%m-%d %H:%M}",
        row["pair"] + (", plain" if is_plain else ""),
        row["backend"],
        row["kind"],
        number(row["new_tokens"], 0),
        number(row["tau"]),
        share(row["acceptance_rate"]),
        number(row["tokens_per_s"], 1),
        row["reason"],
    )


def _spaced(parts: Iterable[RenderableType]) -> Group:
    views: list[RenderableType] = []
    for part in parts:
        views += [Text(), part] if views else [part]
    return Group(*views)
