"""What `dflash stats` shows, as values: each view is a few queries over the sums. Imports no torch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dflash_cli.stats import Position, rounded
from dflash_cli.stats_store.figures import Figures, Place, total, with_baseline
from dflash_cli.stats_store.row import PLACE, SHALLOW
from dflash_cli.stats_store.schema import SUMMED
from dflash_cli.stats_store.selection import LENGTHS, POSITIONS, SUMS, Selection

if TYPE_CHECKING:
    from dflash_cli.stats_store.store import StatsStore

GROUPS = ("pair", "backend", "day", "temperature", "kind", "depth")
IN_ORDER = ("day", "temperature", "depth")  # by their value; others by the number of turns
_SUMS = ", ".join(f"SUM({name}) AS {name}" for name in SUMMED)


@dataclass(frozen=True)
class Group:
    """Turns that have something in common: its name, the values it is told by, and its first and last turn."""

    name: str
    values: tuple[Any, ...]
    figures: Figures
    first: int
    last: int


@dataclass(frozen=True)
class Overview:
    """All selected turns together. `plain`: the figures of plain decoding, a part of `figures`."""

    figures: Figures
    plain: Figures
    lengths: dict[int, int]
    positions: list[Position]

    def as_dict(self) -> dict[str, object]:
        """The JSON object of `dflash stats`."""
        figures = self.figures
        return {
            "turns": figures.turns,
            "new_tokens": figures.new_tokens,
            "blocks": figures.passes,
            "tau": rounded(figures.tau, 3),
            "acceptance_rate": rounded(figures.rate, 4),
            "tokens_per_s": rounded(figures.tokens_per_s, 2),
            "lengths": {str(length): blocks for length, blocks in self.lengths.items()},
            "positions": positions_as_dicts(self.positions),
        }


def positions_as_dicts(positions: Sequence[Position]) -> list[dict[str, object]]:
    """The JSON objects of the places of a block, the first draft's first."""
    return [
        {
            "position": place,
            "drafted": each.drafted,
            "tested": each.tested,
            "accepted": each.accepted,
            "survival": rounded(each.survival, 4),
            "conditional": rounded(each.conditional, 4),
        }
        for place, each in enumerate(positions, 1)
    ]


def overview(store: StatsStore, selection: Selection) -> Overview:
    """See Overview."""
    groups = grouped(store, selection, ("drafter",))
    plain = total([each.figures for each in groups if not each.values[0]])
    everything = total([each.figures for each in groups])
    return Overview(everything, plain, lengths(store, selection), positions(store, selection))


def lengths(store: StatsStore, selection: Selection) -> dict[int, int]:
    """How many blocks had each acceptance length, the shortest first."""
    source, values = selection.source(LENGTHS)
    rows = store.query(f"SELECT length, SUM(blocks) FROM {source} GROUP BY length", values)  # noqa: S608
    return {row[0]: row[1] for row in rows}


def positions(store: StatsStore, selection: Selection) -> list[Position]:
    """Of each place of a block, the first draft's first."""
    source, values = selection.source(POSITIONS)
    columns = "SUM(drafted), SUM(tested), SUM(accepted)"
    rows = store.query(f"SELECT {columns} FROM {source} GROUP BY position ORDER BY position", values)  # noqa: S608
    return [Position(*row) for row in rows]


def grouped(store: StatsStore, selection: Selection, columns: Sequence[str]) -> list[Group]:
    """The figures of the turns that have the same values in some columns of `sums`, in the order of their first turn.

    The name of a group is its first value.
    """
    plain = baselines(store)
    source, values = selection.source(SUMS)
    keys = ", ".join((*columns, *PLACE, "drafter", "batch"))
    sums = f"MIN(first) AS first, MAX(last) AS last, {_SUMS}"
    found: dict[tuple[Any, ...], Group] = {}
    for row in store.query(f"SELECT {keys}, {sums} FROM {source} GROUP BY {keys}", values):  # noqa: S608
        key, place = tuple(row)[: len(columns)], tuple(row)[len(columns) : len(columns) + len(PLACE)]
        figures = Figures(*(row[name] for name in SUMMED))
        if row["drafter"] and row["batch"] == 1:
            figures = with_baseline(figures, plain, place)
        group = Group(str(key[0]), key, figures, row["first"], row["last"])
        found[key] = _joined(found[key], group) if key in found else group
    return sorted(found.values(), key=lambda each: each.first)


def _joined(one: Group, other: Group) -> Group:
    first, last = min(one.first, other.first), max(one.last, other.last)
    return Group(one.name, one.values, one.figures.plus(other.figures), first, last)


def baselines(store: StatsStore) -> dict[Place, tuple[int, float]]:
    """Plain decoding as it was measured here: tokens after the first, and milliseconds, in all."""
    keys = ", ".join(PLACE)
    rows = store.query(f"SELECT {keys}, SUM(tokens), SUM(ms) FROM baselines GROUP BY {keys}")  # noqa: S608
    return {tuple(row)[: len(PLACE)]: (row[-2], row[-1]) for row in rows}


def by(store: StatsStore, selection: Selection, what: str) -> list[Group]:
    """The groups of one of GROUPS: in order where their values have one, else the largest first."""
    if what == "pair":
        return _by_pair(grouped(store, selection, ("pair", "drafter")))
    groups = grouped(store, selection, (what,))
    if what == "depth":
        groups = [replace(each, name=depth_name(each.values[0])) for each in groups]
    if what in IN_ORDER:
        return sorted(groups, key=lambda each: each.values[0])
    return sorted(groups, key=lambda each: -each.figures.turns)


def _by_pair(groups: list[Group]) -> list[Group]:
    """A drafter is named where a pair was used with several."""
    named = []
    for each in groups:
        pair, drafter = each.values
        others = [other for other in groups if other.values[0] == pair and other.values[1] and drafter]
        name = f"{pair}, plain" if not drafter else pair if len(others) == 1 else f"{pair} with {drafter}"
        named.append(replace(each, name=name))
    return sorted(named, key=lambda each: -each.figures.turns)


def depth_name(depth: int) -> str:
    """`512-1023`."""
    return f"0-{SHALLOW - 1}" if not depth else f"{depth}-{2 * depth - 1}"


def last_turns(store: StatsStore, selection: Selection, count: int) -> list[dict[str, Any]]:
    """The rows of the newest turns, the newest first; `count` of them at most."""
    ids, values = replace(selection, last=min(count, selection.last or count)).ids()
    sql = f"SELECT * FROM turns WHERE id IN ({ids}) ORDER BY id DESC"  # noqa: S608
    return [_decoded(dict(row)) for row in store.query(sql, values)]


def turn_of(store: StatsStore, number: int | None) -> dict[str, Any] | None:
    """The row of a turn, of the newest one for None; None where there is no such turn."""
    where, values = ("id = ?", [number]) if number is not None else ("id = (SELECT MAX(id) FROM turns)", [])
    rows = store.query(f"SELECT * FROM turns WHERE {where}", values)  # noqa: S608
    return _decoded(dict(rows[0])) if rows else None


def blocks_of_turn(store: StatsStore, number: int) -> list[list[float]] | None:
    """The blocks of a turn in order, each as `row.BLOCK` says; None where they were not kept."""
    rows = store.query("SELECT blocks FROM blocks WHERE turn = ?", [number])
    return json.loads(rows[0][0]) if rows else None


def _decoded(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "lengths": json.loads(row["lengths"]), "positions": json.loads(row["positions"])}
