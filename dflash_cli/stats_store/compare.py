"""Two selections of turns side by side: `dflash stats compare A B`. Imports no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from dflash_cli.errors import UsageError, nearest
from dflash_cli.stats_store.confidence import margin
from dflash_cli.stats_store.figures import Figures, total
from dflash_cli.stats_store.fitted import FittedTable
from dflash_cli.stats_store.selection import Selection, parse_day
from dflash_cli.stats_store.tables import HEADINGS, figure_cells, number
from dflash_cli.stats_store.views import grouped
from dflash_cli.terminal import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from dflash_cli.stats_store.store import StatsStore

COLUMNS = ("pair", "backend", "version", "kind", "temperature", "device", "dtype", "command", "day", "depth",
           "quantisation", "block_size", "adaptive", "draft_vocabulary", "target_hash", "drafter_hash")  # fmt: skip
GUESSED = ("pair", "backend", "kind", "version", "device", "dtype", "quantisation")  # where a bare word is looked for
NUMBERS = ("temperature", "depth", "block_size", "adaptive", "draft_vocabulary")
CONFIDENCE = 0.975  # on each side


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

    def view(self) -> RenderableType:
        """A row a figure, and how sure the differences are."""
        first, second = self.figures
        names = Text(printable("\n".join(f"{side}: {name}" for side, name in zip("AB", self.names, strict=True))))
        cells = zip(HEADINGS, figure_cells(first), figure_cells(second), strict=True)
        changes = Text(f"B against A: τ {self._change('tau')}\nB against A: tok/s {self._change('speed')}")
        return Group(names, Text(), FittedTable(("", "A", "B"), cells), Text(), changes)

    def _change(self, figure: str) -> str:
        first, second = (getattr(each, f"{figure}_estimate") for each in self.figures)
        ratio = None if first is None or second is None else second.value / first.value
        if ratio is None:
            return "-"
        uncertain = margin(first, second, CONFIDENCE)
        if uncertain is None:
            verdict = "too few turns to tell from chance"
        else:
            verdict = "clear" if abs(math.log(ratio)) > uncertain else "may be chance"
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
