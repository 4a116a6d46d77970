"""The rows of the table: medians over rounds, speed-ups within a round, shares of the limit. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any

from dflash_cli.bench.sample import acceptance, pooled
from dflash_cli.bench.subject import PLAIN, label_of
from dflash_cli.stats import rounded

if TYPE_CHECKING:
    from dflash_cli.bench.agreement import Agreement
    from dflash_cli.bench.limit import Limit
    from dflash_cli.bench.runner import Measured
    from dflash_cli.bench.sample import Pooled


@dataclass(frozen=True)
class Row:
    """One row: who, at what, and medians over `rounds` rounds. Times in milliseconds, those of a step per step.

    `spread`: highest less lowest speed of a round over the median. `speedup`: over plain decoding of the same place
    and prompts. `identical`: whether every text equals plain decoding's, None where there is nothing to compare;
    of `differing` texts, `ties` part where two logits are equal within rounding.
    """

    name: str
    kind: str
    backend: str
    dtype: str
    block_size: int | None
    batch: int
    context: int
    tokens_per_s: float | None
    speedup: float | None
    tau: float | None
    ttft_ms: float
    draft_ms: float | None
    verify_ms: float | None
    step_ms: float | None
    overhead_ms: float | None
    peak_mb: float | None
    quantize: str
    temperature: float
    adaptive: bool
    simulated: bool
    simulated_tau: float | None
    draft_ids: int | None
    spread: float | None
    rate: float | None
    survival: list[float | None]
    identical: bool | None
    differing: int
    ties: int
    limit_ms: float | None
    limit_share: float | None
    recompiles: int | None
    tokens: int
    rounds: int

    @property
    def label(self) -> str:
        """See `subject.label_of`."""
        return label_of(self.name, self.block_size, self.adaptive, self.draft_ids)

    def as_dict(self) -> dict[str, Any]:
        """An object of `rows` in the JSON output."""
        digits = {"tokens_per_s": 2, "speedup": 3, "tau": 3, "peak_mb": 1, "spread": 4, "rate": 4, "limit_share": 4}
        return {
            name: round(value, digits.get(name, 4)) if isinstance(value, float) else value
            for name, value in vars(self).items()
        } | {"survival": [rounded(each, 4) for each in self.survival]}


def make_rows(
    measured: Iterable[Measured], agreements: Mapping[int, Agreement], limits: Mapping[str, Limit]
) -> list[Row]:
    """A row for each subject and group that was measured. `agreements` by `id` of Measured, `limits` by precision."""
    there = [each for each in measured if each.samples]
    plain = {(each.subject.place, each.group): each for each in there if each.subject.name == PLAIN}
    return [
        _row(
            each, plain.get((each.subject.baseline, each.group)), agreements.get(id(each)),
            limits.get(each.subject.place.precision) if each.subject.baseline == each.subject.place else None,
        )
        for each in there
    ]  # fmt: skip


def _row(measured: Measured, plain: Measured | None, agreement: Agreement | None, limit: Limit | None) -> Row:
    subject, samples = measured.subject, measured.samples
    rounds = [pooled(list(each.values())) for each in _complete(measured)]
    step_ms, context = _median(rounds, "step_ms"), round(median(each.prompt_tokens for each in samples))
    fared = acceptance(samples)
    limit_ms = None if limit is None or step_ms is None else _limit_ms(measured, limit, context)
    peaks = [each.peak_bytes for each in samples if each.peak_bytes is not None]
    return Row(
        name=subject.name,
        kind=measured.group[0],
        backend=subject.place.backend,
        dtype=subject.place.dtype,
        block_size=subject.block_size,
        batch=subject.place.batch,
        context=context,
        tokens_per_s=_median(rounds, "tokens_per_s"),
        speedup=1.0 if measured is plain else _speedup(measured, plain),
        tau=fared.tau,
        ttft_ms=median(each.ttft_ms for each in rounds),
        draft_ms=_median(rounds, "draft_ms"),
        verify_ms=_median(rounds, "verify_ms"),
        step_ms=step_ms,
        overhead_ms=_median(rounds, "overhead_ms"),
        peak_mb=max(peaks) / 1e6 if peaks else None,
        quantize=subject.place.quantize,
        temperature=subject.place.temperature,
        adaptive=subject.adaptive,
        simulated=subject.simulated_tau is not None,
        simulated_tau=subject.simulated_tau,
        draft_ids=getattr(subject, "draft_ids", None),
        spread=_spread([each.tokens_per_s for each in rounds]),
        rate=fared.rate,
        survival=[each.survival for each in fared.positions],
        identical=None if agreement is None else agreement.identical,
        differing=0 if agreement is None else agreement.differing,
        ties=0 if agreement is None else agreement.ties,
        limit_ms=limit_ms,
        limit_share=limit_ms / step_ms if limit_ms and step_ms else None,
        recompiles=getattr(subject, "recompiles", None),
        tokens=sum(len(ids) for each in samples for ids in each.ids),
        rounds=len(rounds),
    )


def _complete(measured: Measured) -> list[dict[int, Any]]:
    """The rounds that have every prompt; where Ctrl-C left none of those, what there is."""
    most = max(len(each) for each in measured.rounds)
    return [each for each in measured.rounds if len(each) == most]


def _median(rounds: Sequence[Pooled], name: str) -> float | None:
    values = [value for each in rounds if (value := getattr(each, name)) is not None]
    return median(values) if values else None


def _spread(speeds: Sequence[float | None]) -> float | None:
    known = [each for each in speeds if each is not None]
    return (max(known) - min(known)) / median(known) if len(known) > 1 else None


def _speedup(measured: Measured, plain: Measured | None) -> float | None:
    """The median over rounds of the ratio within a round: what slows the machine down for a while slows both."""
    ratios = []
    for ours, theirs in zip(measured.rounds, plain.rounds if plain else [], strict=False):
        shared = sorted(ours.keys() & theirs.keys())
        if not shared:
            continue
        fast = pooled([ours[number] for number in shared]).tokens_per_s
        slow = pooled([theirs[number] for number in shared]).tokens_per_s
        if fast and slow:
            ratios.append(fast / slow)
    return median(ratios) if ratios else None


def _limit_ms(measured: Measured, limit: Limit, context: int) -> float:
    """At the middle of the answers, with the share of steps that drafted."""
    samples = measured.samples
    steps = sum(each.steps or 0 for each in samples)
    drafted = sum(each.drafted_steps for each in samples) / steps if steps else 0.0
    grown = median(len(ids) for each in samples for ids in each.ids) / 2
    limit = replace(limit, draft_ids=getattr(measured.subject, "draft_ids", None))
    return limit.step_ms(context + grown, measured.subject.place.batch, drafted)
