"""A measurement made by several processes: each answers its share of the prompts, and the figures are summed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from dflash_cli.train.documents import Document
from dflash_cli.train.evaluate import Figures, Measured, measure
from dflash_cli.train.ranks import Ranks
from dflash_cli.train.report import Reporter

if TYPE_CHECKING:
    from backends.drafter import Drafter
    from dflash_cli.model import Model


def measure_together(
    model: Model,
    drafter: Drafter,
    documents: Sequence[Document],
    most_tokens: int,
    stopped: Callable[[], bool],
    ranks: Ranks,
    report: Reporter,
) -> Measured | None:
    """`measure` by all processes; the same figures in each, or None in each where one was stopped meanwhile."""
    if ranks.alone:
        return measure(model, drafter, documents, most_tokens, stopped, report)
    mine = [documents[index] for index in ranks.share([len(each.prompt_ids) + most_tokens for each in documents])]
    found = measure(model, drafter, mine, most_tokens, stopped, report) if mine else Measured(Figures(), {})
    parts = [part for part in ranks.gather(found) if part is not None]
    if len(parts) < ranks.size:
        return None
    sources = {
        source: total(part.sources[source] for part in parts if source in part.sources)
        for source in dict.fromkeys(each.source for each in documents)
    }
    return Measured(total(part.all for part in parts), sources)


def total(parts: Iterable[Figures]) -> Figures:
    """The sums of several figures."""
    sums = Figures()
    for part in parts:
        sums.passes += part.passes
        sums.tokens += part.tokens
        sums.accepted += part.accepted
        sums.drafted += part.drafted
        sums.reached = _added(sums.reached, part.reached)
        sums.kept = _added(sums.kept, part.kept)
    return sums


def _added(a: list[int], b: list[int]) -> list[int]:
    return [x + y for x, y in zip_longest(a, b, fillvalue=0)]
