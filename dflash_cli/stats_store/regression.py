"""Has it become worse? τ and tok/s before and after a change of version, backend or checkpoint. Imports no torch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from dflash_cli.stats_store.confidence import Estimate, margin
from dflash_cli.stats_store.views import Group, depth_name, grouped

if TYPE_CHECKING:
    from dflash_cli.stats_store.figures import Figures
    from dflash_cli.stats_store.selection import Selection
    from dflash_cli.stats_store.store import StatsStore

ALIKE = ("pair", "drafter", "device", "dtype", "quantisation", "batch", "block_size", "adaptive",
         "draft_vocabulary", "temperature", "kind", "depth")  # fmt: skip
"""Only turns that agree in these are compared: else a change of subject would pass for a change of the program."""
CHANGES = ("version", "backend", "target_hash", "drafter_hash")
NAMES = {"target_hash": "target checkpoint", "drafter_hash": "drafter checkpoint"}
DROP = 0.10  # how much lower it must be
CONFIDENCE = 0.95  # that it is, on one side
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
    """What is worse now than before the last change, of each pair, kind of text and depth.

    Now: as the newest turn was made. Before: what was used last of all else that has turns enough to tell.
    """
    groups = grouped(store, selection, (*ALIKE, *CHANGES))
    groups.sort(key=lambda each: (_alike(each), each.last))
    found: list[Regression] = []
    for _, same in groupby(groups, key=_alike):
        *others, now = same
        before = [each for each in others if each.figures.turns >= MIN_TURNS]
        if before and now.figures.turns >= MIN_TURNS:
            found += _compare(before[-1], now)
    return found


def _alike(group: Group) -> tuple[Any, ...]:
    return group.values[: len(ALIKE)]


def _compare(before: Group, after: Group) -> Iterator[Regression]:
    old, new = before.figures, after.figures
    subject, change = _subject(after), _change(before, after)
    for name in ("τ", "tok/s") if old.drafted and new.drafted else ("tok/s",):
        was, now = _estimate(old, name), _estimate(new, name)
        if was and now and is_lower(was, now):
            yield Regression(name, was.value, now.value, subject, change, new.turns)


def _estimate(figures: Figures, name: str) -> Estimate | None:
    return figures.tau_estimate if name == "τ" else figures.speed_estimate


def is_lower(before: Estimate, after: Estimate) -> bool:
    """Whether `after` is lower by more than DROP, with CONFIDENCE."""
    uncertain = margin(before, after, CONFIDENCE)
    return uncertain is not None and math.log(after.value / before.value) + uncertain < math.log(1 - DROP)


def _subject(group: Group) -> str:
    facts = dict(zip(ALIKE, group.values, strict=False))
    depth = f", context {depth_name(facts['depth'])}" if facts["depth"] else ""
    return f"{facts['pair']} ({facts['kind']}, temperature {facts['temperature']:g}, {facts['device']}{depth})"


def _change(before: Group, after: Group) -> str:
    pairs = zip(CHANGES, before.values[len(ALIKE) :], after.values[len(ALIKE) :], strict=True)
    changed = [f"{NAMES.get(name, name)} {was or '?'} became {now or '?'}" for name, was, now in pairs if was != now]
    return " and ".join(changed)
