"""Has it become worse? τ and tok/s before and after a change of version, backend or checkpoint. Imports no torch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

from dflash_cli.stats_store.views import Group, grouped

if TYPE_CHECKING:
    from dflash_cli.stats_store.selection import Selection
    from dflash_cli.stats_store.store import StatsStore

ALIKE = ("pair", "drafter", "device", "dtype", "batch", "temperature", "kind")
"""Only turns that agree in these are compared: else a change of subject would pass for a change of the program."""
CHANGES = ("version", "backend", "target_hash", "drafter_hash")
NAMES = {"target_hash": "target checkpoint", "drafter_hash": "drafter checkpoint"}
DROP = 0.10  # how much lower it must be
CONFIDENT = 1.645  # standard errors: 95 % on one side
MIN_TURNS = 5  # on each side of a change


@dataclass(frozen=True)
class Regression:
    """What became worse, for whom, and after which change."""

    figure: str
    before: float
    after: float
    subject: str
    change: str
    turns: int

    @property
    def text(self) -> str:
        """One line for people."""
        return (
            f"{self.figure} of {self.subject} went from {self.before:.2f} to {self.after:.2f} "
            f"({self.after / self.before - 1:+.0%}, {self.turns} turns since) after {self.change}"
        )


def regressions(store: StatsStore, selection: Selection) -> list[Regression]:
    """What is worse since the last change, of each pair and kind of text; in no case more than one change back."""
    groups = grouped(store, selection, (*ALIKE, *CHANGES))
    groups.sort(key=lambda each: (_alike(each), each.first))
    found: list[Regression] = []
    for _, same in groupby(groups, key=_alike):
        pairs = list(pairwise(same))
        if pairs:
            found += _compare(*pairs[-1])
    return found


def _alike(group: Group) -> tuple[Any, ...]:
    return group.values[: len(ALIKE)]


def _compare(before: Group, after: Group) -> Iterator[Regression]:
    old, new = before.figures, after.figures
    if min(old.turns, new.turns) < MIN_TURNS:
        return
    figures = [("tok/s", old.tokens_per_s, new.tokens_per_s, old.speed_error, new.speed_error)]
    if old.drafted and new.drafted:
        figures.insert(0, ("τ", old.tau, new.tau, old.tau_error, new.tau_error))
    pair, _, device, _, _, temperature, kind = _alike(after)
    subject = f"{pair} ({kind}, temperature {temperature:g}, {device})"
    for name, was, now, was_error, now_error in figures:
        if was and now and is_lower(was, now, was_error or 0.0, now_error or 0.0):
            yield Regression(name, was, now, subject, _change(before, after), new.turns)


def is_lower(before: float, after: float, before_error: float, after_error: float) -> bool:
    """Whether `after` is lower by more than DROP, with confidence; the errors are relative standard errors."""
    return math.log(after / before) + CONFIDENT * math.hypot(before_error, after_error) < math.log(1 - DROP)


def _change(before: Group, after: Group) -> str:
    pairs = zip(CHANGES, before.values[len(ALIKE) :], after.values[len(ALIKE) :], strict=True)
    changed = [f"{NAMES.get(name, name)} {was or '?'} became {now or '?'}" for name, was, now in pairs if was != now]
    return " and ".join(changed)
