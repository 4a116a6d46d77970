"""All that take part answer the same prompts by turns, round after round. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dflash_cli.bench.subject import label_of
from dflash_cli.interrupts import Interrupts

if TYPE_CHECKING:
    from dflash_cli.bench.case import Case
    from dflash_cli.bench.sample import Sample
    from dflash_cli.bench.subject import Progress, Subject

Group = tuple[str, int | None]
"""Kind of text and length of context asked for: the prompts that make up one row."""


@dataclass
class Measured:
    """What a subject did for the prompts of a group: `rounds[r]` has the sample of each prompt by its index."""

    subject: Subject
    group: Group
    rounds: list[dict[int, Sample]] = field(default_factory=list)

    @property
    def samples(self) -> list[Sample]:
        """Of all rounds."""
        return [sample for each in self.rounds for sample in each.values()]


@dataclass
class Watch:
    """Who looks on: `stage` is told what begins, `advance` that so many measurements of all are over."""

    stage: Callable[[str], None] = lambda _text: None
    advance: Callable[[int, int], None] = lambda _done, _total: None

    def follow(self, stage: str) -> Progress:
        """Say that a stage begins; what is returned says how far its compiling is."""
        self.stage(stage)

        def progress(done: int, total: int) -> None:
            if total:
                self.stage(f"{stage}, compiling {done} of {total}")

        return progress


class Runner:
    """Subjects and prompts. After Ctrl-C `interrupted` is true, and what was measured so far is in `measured`."""

    def __init__(
        self,
        subjects: Sequence[Subject],
        cases: Sequence[Case],
        rounds: int,
        watch: Watch,
        settle: Callable[[], object] = lambda: None,
    ) -> None:
        """`settle` is called once, after all warm-ups and before the first measurement."""
        self.subjects, self.rounds, self.watch, self.settle = list(subjects), rounds, watch, settle
        self.groups: dict[Group, list[Case]] = {}
        for case in cases:
            self.groups.setdefault((case.kind, case.context), []).append(case)
        self.measured = {
            (index, group): Measured(subject, group)
            for group in self.groups
            for index, subject in enumerate(self.subjects)
        }
        self.interrupted = False

    def run(self) -> None:
        """Warm up, settle, then measure."""
        with Interrupts() as interrupts:
            try:
                interrupts.call(self._warm_up)
                interrupts.call(self.settle)
                self._measure(interrupts)
            except KeyboardInterrupt:
                self.interrupted = True
            self.interrupted |= interrupts.requested

    def _warm_up(self) -> None:
        longest = max((case for cases in self.groups.values() for case in cases), key=lambda case: len(case.ids))
        for index, subject in enumerate(self.subjects, 1):
            label = label_of(subject.name, subject.block_size, subject.adaptive, getattr(subject, "draft_ids", None))
            self.watch.stage(f"warm-up {index} of {len(self.subjects)}: {label}, {subject.place.backend}")
            subject.warm_up([longest.ids] * subject.place.batch)

    def _measure(self, interrupts: Interrupts) -> None:
        turns = list(self._turns())
        self.watch.stage("measuring")
        for done, (round_, index, group, number) in enumerate(turns):
            if interrupts.requested:
                return
            self.watch.advance(done, len(turns))
            subject, rows = self.subjects[index], self._rows(index, group, number)
            sample = interrupts.call(lambda subject=subject, rows=rows: subject.answer(rows))  # type: ignore[misc]
            rounds = self.measured[index, group].rounds
            if len(rounds) == round_:
                rounds.append({})
            rounds[round_][number] = sample
        self.watch.advance(len(turns), len(turns))

    def _turns(self) -> Iterator[tuple[int, int, Group, int]]:
        """(round, subject, group, prompt): for each prompt everybody in turn, every second round backwards."""
        order = list(range(len(self.subjects)))
        for round_ in range(self.rounds):
            for group, cases in self.groups.items():
                for number in range(len(cases)):
                    for index in order if round_ % 2 == 0 else reversed(order):
                        yield round_, index, group, number

    def _rows(self, index: int, group: Group, number: int) -> list[tuple[int, ...]]:
        """The prompts of a batch: this one, and in the other rows the ones after it."""
        cases = self.groups[group]
        return [cases[(number + row) % len(cases)].ids for row in range(self.subjects[index].place.batch)]
