"""Two selections of turns side by side: `dflash stats compare A B`. Imports no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dflash_cli.errors import UsageError, nearest
from dflash_cli.stats_store.figures import Figures, total
from dflash_cli.stats_store.selection import Selection, parse_day
from dflash_cli.stats_store.tables import figure_cells, number, table_of
from dflash_cli.stats_store.views import grouped

if TYPE_CHECKING:
    from rich.table import Table

    from dflash_cli.stats_store.store import StatsStore

COLUMNS = ("pair", "backend", "version", "kind", "temperature", "device", "dtype", "command", "day", "depth",
           "quantisation", "block_size", "target_hash", "drafter_hash")  # fmt: skip
GUESSED = ("pair", "backend", "kind", "version", "device", "dtype")  # where a bare word is looked for
NUMBERS = ("temperature", "depth", "block_size")
SURE = 1.96  # standard errors of a difference: 95 % on both sides
LABELS = ("turns", "tokens", "blocks", "τ", "accepted", "tok/s", "speed-up")


@dataclass(frozen=True)
class Compared:
    """Two selections and their figures."""

    names: tuple[str, str]
    figures: tuple[Figures, Figures]

    def as_dict(self) -> dict[str, object]:
        """The JSON object: each side, and how B stands to A."""
        first, second = self.figures
        return {
            "a": {"selection": self.names[0], **first.as_dict()},
            "b": {"selection": self.names[1], **second.as_dict()},
            "tau_ratio": _rounded(_ratio(first.tau, second.tau)),
            "tokens_per_s_ratio": _rounded(_ratio(first.tokens_per_s, second.tokens_per_s)),
        }

    def table(self) -> Table:
        """A row a figure."""
        first, second = self.figures
        changes = {"τ": self._change("tau"), "tok/s": self._change("tokens_per_s")}
        cells = zip(LABELS, figure_cells(first), figure_cells(second), strict=True)
        return table_of(
            ("", *self.names, "B against A"), ((name, a, b, changes.get(name, "")) for name, a, b in cells)
        )  # fmt: skip

    def _change(self, figure: str) -> str:
        first, second = self.figures
        ratio = _ratio(getattr(first, figure), getattr(second, figure))
        if ratio is None:
            return "-"
        errors = [getattr(each, "tau_error" if figure == "tau" else "speed_error") for each in self.figures]
        if None in errors:
            verdict = "too few turns to tell from chance"
        else:
            verdict = "clear" if abs(math.log(ratio)) > SURE * math.hypot(*errors) else "may be chance"
        return f"{number((ratio - 1) * 100, 1)} % ({verdict})"


def compare(store: StatsStore, selection: Selection, first: str, second: str) -> Compared:
    """See `side` for what the two may be. Raises UsageError for what has no turns."""
    figures = []
    for text in (first, second):
        groups = grouped(store, side(store, selection, text), ("drafter",))
        if not groups:
            raise UsageError(f"there are no turns of {text!r}; `dflash stats` shows what there is")
        figures.append(total([each.figures for each in groups]))
    return Compared((first, second), (figures[0], figures[1]))


def side(store: StatsStore, selection: Selection, text: str) -> Selection:
    """The turns that `text` means: a turn's number, `column=value` (several with commas), or a value alone."""
    if text.isascii() and text.isdigit():
        return replace(selection, where=(("id", int(text)),))
    parts = [part.strip() for part in text.split(",")]
    if all("=" in part for part in parts):
        return replace(selection, where=tuple(_condition(part) for part in parts))
    return replace(selection, where=((_column_of(store, text), text),))


def _condition(part: str) -> tuple[str, object]:
    column, _, value = part.partition("=")
    if column not in COLUMNS:
        hint = nearest(column, list(COLUMNS)) or f". Known are {', '.join(COLUMNS)}"
        raise UsageError(f"turns cannot be told apart by {column!r}{hint}")
    if column == "day":
        return column, parse_day(value)
    if column not in NUMBERS:
        return column, value
    try:
        return column, float(value)
    except ValueError:
        raise UsageError(f"{column} is a number; found {value!r}") from None


def _column_of(store: StatsStore, word: str) -> str:
    """The first column that has the value."""
    known: list[str] = []
    for column in GUESSED:
        values = [row[0] for row in store.query(f"SELECT DISTINCT {column} FROM sums")]  # noqa: S608
        if word in values:
            return column
        known += values
    hint = nearest(word, known) or f"; expected a turn's number, or as in {COLUMNS[0]}=NAME or backend=eager,kind=code"
    raise UsageError(f"no turn has {word!r}{hint}")


def _ratio(first: float | None, second: float | None) -> float | None:
    return second / first if first and second else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
