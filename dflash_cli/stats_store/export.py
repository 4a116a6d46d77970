"""The views as JSON and CSV, for programs. Imports no torch."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dflash_cli.stats import Position
from dflash_cli.stats_store.views import positions_as_dicts

if TYPE_CHECKING:
    from dflash_cli.stats_store.figures import Figures
    from dflash_cli.stats_store.regression import Regression
    from dflash_cli.stats_store.views import Group, Overview

Rows = list[dict[str, Any]]


def group_rows(what: str, groups: Sequence[Group]) -> Rows:
    """An object a group; its value under the name of what it is grouped by."""
    rows = []
    for each in groups:
        values: dict[str, Any] = {what: each.values[0]}
        if what == "pair":
            values["drafter"] = each.values[1] or None
        rows.append({**values, **each.figures.as_dict()})
    return rows


def overview_rows(view: Overview) -> Rows:
    """One row, without what is a table of its own."""
    return [{key: value for key, value in view.as_dict().items() if not isinstance(value, dict | list)}]


def length_rows(lengths: Mapping[int, int]) -> Rows:
    """A row an acceptance length."""
    return [{"length": length, "blocks": blocks} for length, blocks in lengths.items()]


def position_rows(positions: Sequence[Position]) -> Rows:
    """A row a place of a block."""
    return positions_as_dicts(positions)


def time_rows(figures: Figures) -> Rows:
    """One row: milliseconds in all."""
    names = ("prefill_ms", "decode_ms", "draft_ms", "verify_ms", "other_ms")
    return [{name: round(getattr(figures, name), 2) for name in names}]


def alert_rows(alerts: Sequence[Regression]) -> Rows:
    """An object a regression."""
    return [
        {"figure": each.figure, "before": round(each.before, 3), "after": round(each.after, 3), "turns": each.turns,
         "subject": each.subject, "change": each.change}
        for each in alerts
    ]  # fmt: skip


def turn_rows(turns: Sequence[Mapping[str, Any]]) -> Rows:
    """A row a turn: the columns of the store, `id` is its number."""
    return [dict(each) for each in turns]


def to_json(value: object) -> str:
    """Indented JSON, ASCII only, with its newline."""
    return json.dumps(value, indent=2) + "\n"


def to_csv(rows: Rows) -> str:
    """A line of names and a line a row; lists and objects are JSON. Empty where there are no rows."""
    if not rows:
        return ""
    output = io.StringIO()
    writer = csv.DictWriter(output, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: _cell(value) for key, value in row.items()})
    return output.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, dict | list):
        return json.dumps(value)
    # A spreadsheet takes text that begins so for a formula.
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@")) else value
