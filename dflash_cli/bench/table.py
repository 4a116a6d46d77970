"""The measurements as tables for a terminal. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from dflash_cli.stats_store.fitted import FittedTable
from dflash_cli.stats_store.tables import number, share
from dflash_cli.terminal import printable

if TYPE_CHECKING:
    from dflash_cli.bench.draft_latency import Latency
    from dflash_cli.bench.rows import Row

Cell = Callable[["Row"], str]

WHO: dict[str, Cell] = {"row": lambda row: row.label, "kind": lambda row: row.kind}
WHERE: dict[str, Cell] = {
    "backend": lambda row: row.backend,
    "dtype": lambda row: row.dtype,
    "quantize": lambda row: row.quantize,
    "batch": lambda row: str(row.batch),
    "temperature": lambda row: f"{row.temperature:g}",
}
"""Shown as columns only where rows differ in them."""
SPEEDS: dict[str, Cell] = {
    "context": lambda row: str(row.context),
    "tok/s": lambda row: number(row.tokens_per_s, 1),
    "spread": lambda row: share(row.spread),
    "speed-up": lambda row: number(row.speedup, 2, "×"),
    "τ": lambda row: number(row.tau) + (f" ({row.simulated_tau:g} simulated)" if row.simulated else ""),
    "accepted": lambda row: share(row.rate),
    "TTFT ms": lambda row: number(row.ttft_ms, 1),
    "peak MB": lambda row: number(row.peak_mb, 0),
    "text": lambda row: _agreement(row),
}
STEPS: dict[str, Cell] = {
    "context": lambda row: str(row.context),
    "draft ms": lambda row: number(row.draft_ms),
    "verify ms": lambda row: number(row.verify_ms),
    "other ms": lambda row: number(row.overhead_ms),
    "step ms": lambda row: number(row.step_ms),
    "limit ms": lambda row: number(row.limit_ms),
    "reached": lambda row: share(row.limit_share),
}


PEAK_OF_ALL = "; peak MB of the whole process, with the weights and caches of all rows"
BEYOND = ", which the processor's own caches can beat where they hold them"


def _agreement(row: Row) -> str:
    if row.identical is None:
        return "-"
    if row.identical:
        return "as plain"
    return f"{row.differing} differ" + (f", {row.ties} at a tie" if row.ties else "")


def bench_view(machine: str, limits: Sequence[str], rows: Sequence[Row], *, whole_process: bool) -> RenderableType:
    """All that was measured. `whole_process`: whether peak memory is of all that is loaded, not of a row alone."""
    return Group(*_parts(machine, limits, rows, PEAK_OF_ALL if whole_process else ""))


def _parts(machine: str, limits: Sequence[str], rows: Sequence[Row], remark: str) -> Iterator[RenderableType]:
    where = {name: cell for name, cell in WHERE.items() if len({cell(row) for row in rows}) > 1}
    same = ", ".join(f"{name} {cell(rows[0])}" for name, cell in WHERE.items() if name not in where)
    yield Text(printable("\n".join(part for part in (machine, same, *limits) if part)))
    yield Text(f"\nspeed, medians over rounds; speed-up over plain decoding at the same settings{remark}")
    yield _table({**WHO, **where, **SPEEDS}, rows)
    timed = [row for row in rows if row.step_ms is not None]
    if timed:
        beyond = BEYOND if any((row.limit_share or 0) > 1 for row in timed) else ""
        yield Text(f"\ntime of a step; the limit is the time in which memory gives the bytes it must read{beyond}")
        yield _table({**WHO, **where, **STEPS}, timed)
    drafting = [row for row in rows if row.survival]
    if drafting:
        yield Text("\nacceptance by position: blocks that kept all drafts up to it")
        yield _positions({**WHO, **where}, drafting)


def _table(columns: dict[str, Cell], rows: Sequence[Row]) -> RenderableType:
    texts = sum(name in WHO or name in WHERE for name in columns)
    return FittedTable(list(columns), ([cell(row) for cell in columns.values()] for row in rows), texts=texts)


def _positions(columns: dict[str, Cell], rows: Sequence[Row]) -> RenderableType:
    most = max(len(row.survival) for row in rows)
    shown = [place for place in range(most) if place < 8 or place % 4 == 3 or place == most - 1]
    heads = [*columns, *(str(place + 1) for place in shown)]
    cells = (
        [cell(row) for cell in columns.values()]
        + [share(row.survival[place]) if place < len(row.survival) else "-" for place in shown]
        for row in rows
    )
    return FittedTable(heads, cells, texts=len(columns))


def latency_view(machine: str, found: Sequence[Latency]) -> RenderableType:
    """A line a drafter and backend, a column a block size."""
    blocks = sorted({each.tokens for each in found})
    lines: dict[tuple[str, str], dict[int, Any]] = {}
    for each in found:
        lines.setdefault((each.drafter, each.backend), {})[each.tokens] = each
    first = found[0]
    head = (
        f"{machine}\n{first.dtype}, context {first.context}, random weights\n\n"
        "milliseconds of a draft, by ids of the block: the anchor, and one draft fewer than that"
    )
    cells = (
        [drafter, backend, *(number(times[block].ms) if block in times else "-" for block in blocks)]
        for (drafter, backend), times in lines.items()
    )
    return Group(Text(printable(head)), FittedTable(["drafter", "backend", *map(str, blocks)], cells, texts=2))
