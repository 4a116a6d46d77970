"""Whether a row's texts are those of plain decoding."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dflash_cli.bench.ours import Ours
from dflash_cli.bench.subject import PLAIN
from dflash_cli.compare import compare
from dflash_cli.stats import AnswerStats

if TYPE_CHECKING:
    from dflash_cli.bench.case import Case
    from dflash_cli.bench.runner import Group, Measured
    from dflash_cli.bench.subject import Subject


@dataclass(frozen=True)
class Agreement:
    """Of `compared` texts, how many differ from plain decoding's, and how many of those part at a tie of logits."""

    compared: int = 0
    differing: int = 0
    ties: int = 0

    @property
    def identical(self) -> bool | None:
        """Whether none differs; None where there was nothing to compare."""
        return self.differing == 0 if self.compared else None


def agreements(measured: Iterable[Measured], groups: dict[Group, list[Case]]) -> dict[int, Agreement]:
    """By `id` of Measured, for each row whose text should be that of a plain decoding that was measured."""
    there = list(measured)
    plain = {(each.subject.place, each.group): each for each in there if each.subject.name == PLAIN}
    return {
        id(each): _agreement(each, plain[each.subject.baseline, each.group], groups[each.group])
        for each in there
        if _is_comparable(each.subject) and (each.subject.baseline, each.group) in plain
    }


def _is_comparable(subject: Subject) -> bool:
    """Not plain decoding itself, not a simulation; and a peer has random numbers and weights of its own."""
    is_peer = not isinstance(subject, Ours)
    same = not is_peer or (subject.place.temperature == 0 and subject.place.precision == subject.baseline.precision)
    return same and subject.name != PLAIN and subject.simulated_tau is None


def _agreement(ours: Measured, plain: Measured, cases: list[Case]) -> Agreement:
    compared = differing = ties = 0
    assert isinstance(plain.subject, Ours)
    for mine, theirs in zip(ours.rounds, plain.rounds, strict=False):
        for number in sorted(mine.keys() & theirs.keys()):
            for row, (text, plainly) in enumerate(zip(mine[number].ids, theirs[number].ids, strict=True)):
                compared += 1
                if text != plainly:
                    differing += 1
                    ties += _is_tie(plain.subject, cases[(number + row) % len(cases)].ids, text, plainly)
    return Agreement(compared, differing, ties)


def _is_tie(plain: Ours, prompt_ids: tuple[int, ...], ours: tuple[int, ...], theirs: tuple[int, ...]) -> bool:
    """Whether the texts part where the target finds two ids equally likely, within rounding."""
    if not plain.work.params.greedy:
        return False
    found = compare(plain.decoder, prompt_ids, AnswerStats(ids=list(ours)), AnswerStats(ids=list(theirs)))
    return found.first_difference is not None and found.first_difference.tie
