"""Which turns are looked at. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta

from dflash_cli.errors import UsageError
from dflash_cli.stats_store.schema import DIMENSIONS

SUMS, LENGTHS, POSITIONS = "sums", "lengths", "positions"
_ALL = {SUMS: "sums", LENGTHS: "length_sums", POSITIONS: "position_sums"}
_SINGLE = {SUMS: ("turn_sums", "first"), LENGTHS: ("turn_lengths", "id"), POSITIONS: ("turn_positions", "id")}
_KEYS = {SUMS: DIMENSIONS, LENGTHS: ("day", "pair", "backend"), POSITIONS: ("day", "pair", "backend")}
SPANS = {"d": 1, "w": 7}


@dataclass(frozen=True)
class Selection:
    """All turns, or those `since` a day (ISO 8601), of a `pair`, of a `backend`, with a value in other columns of
    `turns` (`where`), and of these the `last` so many."""

    since: str = ""
    pair: str = ""
    backend: str = ""
    last: int | None = None
    where: tuple[tuple[str, object], ...] = ()

    def source(self, what: str) -> tuple[str, list[object]]:
        """FROM and WHERE for SUMS, LENGTHS or POSITIONS, with their parameters: sums by day where those will do."""
        if self.last is None and all(column in _KEYS[what] for column, _ in self.where):
            condition, values = self._condition()
            return f"{_ALL[what]} WHERE {condition}", values
        (view, column), (ids, values) = _SINGLE[what], self.ids()
        return f"{view} WHERE {column} IN ({ids})", values

    def ids(self) -> tuple[str, list[object]]:
        """A SELECT of the turns' ids, the newest first."""
        condition, values = self._condition()
        limit = "" if self.last is None else f" LIMIT {self.last:d}"
        return f"SELECT id FROM turns WHERE {condition} ORDER BY id DESC{limit}", values  # noqa: S608

    def _condition(self) -> tuple[str, list[object]]:
        parts = [("day >= ?", self.since), ("pair = ?", self.pair), ("backend = ?", self.backend)]
        given: list[tuple[str, object]] = [(text, value) for text, value in parts if value]
        given += [(f"{column} = ?", value) for column, value in self.where]
        return " AND ".join(text for text, _ in given) or "1", [value for _, value in given]

    @property
    def words(self) -> str:
        """In words; "" where all turns are meant."""
        parts = [f"since {self.since}" if self.since else "", self.pair, self.backend and f"backend {self.backend}"]
        parts += [f"{column} {value}" for column, value in self.where]
        parts.append("" if self.last is None else f"the last {self.last}")
        return ", ".join(part for part in parts if part)


def parse_day(text: str, today: date | None = None) -> str:
    """The day (ISO 8601) of "2026-01-31", "today", "yesterday", "7d" or "2w" ago. Raises UsageError."""
    now = today or date.today()
    word = text.strip().lower()
    named = {"today": 0, "yesterday": 1}
    try:
        if word in named:
            return (now - timedelta(days=named[word])).isoformat()
        if word[-1:] in SPANS and word[:-1].isascii() and word[:-1].isdigit():
            return (now - timedelta(days=int(word[:-1]) * SPANS[word[-1]])).isoformat()
        return date.fromisoformat(word).isoformat()
    except (ValueError, OverflowError):
        raise UsageError(f"found {text!r}; expected a day such as 2026-01-31, today, yesterday, 7d or 2w") from None
