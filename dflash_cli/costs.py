"""What a draft and a verify pass cost on this machine, by width. Imports no torch before `calibrate` runs.

Times in milliseconds. A pass gets slower as the context grows or the machine gets busy, and all widths do so about
alike: so each figure is kept apart from the common *pace*, and a width that was not measured lately moves with it.
"""

from __future__ import annotations

import json
import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median, median_low
from typing import TYPE_CHECKING

from dflash_cli.checkpoint_folder import read_json
from dflash_cli.errors import DFlashError
from dflash_cli.paths import write_private

if TYPE_CHECKING:
    from backends.base import Backend, Clock

DRAFT = 0  # stands in the table of figures for the draft pass, where a verify pass stands by its width
SETTLED = 7  # samples that a figure is made of
PRIOR_SAMPLES = 2  # what a calibration or a figure of long ago weighs: it takes three slower passes to overrule it
STALE = 30  # passes after which a figure has to settle anew
PACE_SAMPLES = 9
GUESSED_SLOPE = 0.02  # what a row more adds to a verify pass, before two widths were measured
GUESSED_DRAFT = 0.25  # a draft pass over a verify pass of width 1, before one was measured
REPEATS = 3
LIMIT_MS = 1500.0
FIRST_LIMITS = 2  # first passes that took this many limits count: more of them would take too long
VERSION = 1
MAX_ENTRIES = 32


class Figure:
    """One cost at the pace 1: the median of a few samples, of two the lower one: a pass may be held up, never hurried.

    Once settled it stands still and tells the pace; only when it was not measured for long it has to settle anew.
    """

    def __init__(self, prior: Sequence[float] = ()) -> None:
        self.age = 0
        self._keep(prior)

    def _keep(self, samples: Sequence[float]) -> None:
        self.samples = list(samples)
        self.value = median_low(samples) if samples else 0.0

    @property
    def settled(self) -> bool:
        """Whether it is known well enough to tell a change of pace."""
        return len(self.samples) >= SETTLED and self.age <= STALE

    def take(self, sample: float) -> bool:
        """Take a sample that was brought to the pace 1; whether it changed the figure."""
        if self.samples and self.age > STALE:
            self.samples = [self.value] * PRIOR_SAMPLES
        self.age = 0
        if len(self.samples) >= SETTLED:
            return False
        self._keep([*self.samples, sample])
        return True

    def follow(self, sample: float) -> None:
        """Take a sample of what does not tell the pace: only the newest count."""
        self.age = 0
        self._keep([*self.samples, sample][-SETTLED:])


class Costs:
    """Running estimates of `verify_ms(width)` and `draft_ms`, from priors (a calibration) and from every block."""

    def __init__(self, verify_ms: Mapping[int, float] | None = None, draft_ms: float | None = None) -> None:
        """`verify_ms`: figures by width; those and `draft_ms` count until enough passes say otherwise."""
        priors = {**(verify_ms or {}), **({} if draft_ms is None else {DRAFT: draft_ms})}
        self._figures = {key: Figure([ms] * PRIOR_SAMPLES) for key, ms in priors.items() if _is_time(ms)}
        self._recent: deque[float] = deque(maxlen=PACE_SAMPLES)
        self._pace = 1.0
        self._curve: list[tuple[int, float]] = []

    def observe(self, width: int, verify_ms: float, draft_ms: float | None = None) -> None:
        """Take the times of one block; `draft_ms` None where nothing was drafted."""
        for known in self._figures.values():
            known.age += 1
        if draft_ms is not None and _is_time(draft_ms):
            self._figures.setdefault(DRAFT, Figure()).follow(draft_ms / self._pace)
        if not _is_time(verify_ms):
            return
        if width not in self._figures:
            self._figures[width] = Figure(self._between(width))
        figure = self._figures[width]
        if figure.settled:
            self._recent.append(verify_ms / figure.value)
            self._pace = median(self._recent)
        if figure.take(verify_ms / self._pace):
            self._curve = []

    def is_measured(self, width: int) -> bool:
        """Whether there is any figure for a verify pass of just this width (or, for 0, for a draft)."""
        return width in self._figures

    @property
    def draft_ms(self) -> float:
        """What a draft costs now, whatever the width."""
        if DRAFT in self._figures:
            return self._figures[DRAFT].value * self._pace
        return GUESSED_DRAFT * self.verify_ms(1)

    def verify_ms(self, width: int) -> float:
        """What a verify pass of `width` rows costs now; between measured widths by a straight line, never falling."""
        return self._shape(width) * self._pace

    def _shape(self, width: int) -> float:
        curve = self._curve = self._curve or self._measured()
        if not curve:
            return _guess(width)
        if not curve[0][0] < width < curve[-1][0]:
            end, end_ms = curve[0] if width <= curve[0][0] else curve[-1]
            return end_ms * _guess(width) / _guess(end)
        (low, low_ms), (high, high_ms) = next(pair for pair in pairwise(curve) if pair[1][0] >= width)
        return low_ms + (high_ms - low_ms) * (width - low) / (high - low)

    def _between(self, width: int) -> list[float]:
        """What its neighbours say of a width never measured: a first pass that is held up must not count alone."""
        return [self._shape(width)] if len(self._figures.keys() - {DRAFT}) > 1 else []

    def _measured(self) -> list[tuple[int, float]]:
        """(width, ms) by width; neighbours that fall are pooled, each by the number of its samples."""
        pools: list[tuple[float, float, list[int]]] = []
        for width in sorted(self._figures.keys() - {DRAFT}):
            figure = self._figures[width]
            value, weight, widths = figure.value, float(len(figure.samples)), [width]
            while pools and pools[-1][0] > value:
                other, its_weight, its_widths = pools.pop()
                value = (value * weight + other * its_weight) / (weight + its_weight)
                weight, widths = weight + its_weight, its_widths + widths
            pools.append((value, weight, widths))
        return [(width, value) for value, _, widths in pools for width in widths]

    def to_dict(self) -> dict[str, object]:
        """The figures as `load` reads them back."""
        verify = {str(width): self._shape(width) * self._pace for width in sorted(self._figures) if width != DRAFT}
        return {"verify_ms": verify, "draft_ms": self.draft_ms if DRAFT in self._figures else None}


def _guess(width: int) -> float:
    """What a verify pass costs over one of width 1, before anything says better."""
    return 1 + GUESSED_SLOPE * (width - 1)


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0


@dataclass(frozen=True)
class CostsKey:
    """All that the figures depend on. Other values of any field mean another entry in the file."""

    target: str
    drafter: str
    backend: str
    device: str
    dtype: str
    threads: int
    batch_size: int
    version: str

    def __str__(self) -> str:
        return json.dumps(list(vars(self).values()))


def load(path: Path, key: CostsKey) -> Costs | None:
    """The figures kept under `key`, or None; a file that is missing or damaged holds none."""
    entry = _entries(path).get(str(key))
    if not isinstance(entry, dict) or not isinstance(entry.get("verify_ms"), dict):
        return None
    draft_ms, verify_ms = entry.get("draft_ms"), entry["verify_ms"]
    if not all(width.isdecimal() and int(width) > 0 and _is_time(ms) for width, ms in verify_ms.items()):
        return None
    if "1" not in verify_ms or not (draft_ms is None or _is_time(draft_ms)):
        return None
    return Costs({int(width): float(ms) for width, ms in verify_ms.items()}, draft_ms)


def save(path: Path, key: CostsKey, costs: Costs) -> None:
    """Keep the figures under `key` in a private file, the newest entries only. Raises DFlashError."""
    entries = _entries(path)
    entries.pop(str(key), None)
    entries[str(key)] = costs.to_dict()
    kept = dict(list(entries.items())[-MAX_ENTRIES:])
    write_private(path, json.dumps({"version": VERSION, "entries": kept}, indent=1).encode())


def _entries(path: Path) -> dict[str, object]:
    found = read_json(path)
    entries = found.get("entries") if found is not None and found.get("version") == VERSION else None
    return entries if isinstance(entries, dict) else {}


def of_machine(path: Path, key: CostsKey, backend: Backend, clock: Clock, start: int = 0) -> Costs:
    """The figures kept in the file under `key`; where there are none they are measured now, once, and kept."""
    costs = load(path, key)
    if costs is None:
        costs = calibrate(backend, clock, start)
        with suppress(DFlashError):  # then they are measured again next time
            save(path, key, costs)
    return costs


def calibrate(
    backend: Backend,
    clock: Clock,
    start: int = 0,
    *,
    limit_ms: float = LIMIT_MS,
    now: Callable[[], float] | None = None,
) -> Costs:
    """Measure a draft and verify passes of a few widths, with junk written from `start` on in every row's cache.

    The first pass of a kind allocates and picks kernels: it tells nothing, unless it alone takes longer than all of
    this may. Those that count take about `limit_ms`.
    """
    now = now or time.perf_counter
    block_size = backend.block_size
    widths = sorted({1, 2, 4, block_size // 2, block_size} & set(range(1, block_size + 1)))
    needed = list(dict.fromkeys([block_size, 1, *([DRAFT] if block_size > 1 else [])]))
    begun = now()
    figures = {key: _measure(backend, clock, key, start) for key in needed}
    if (now() - begun) * 1e3 < FIRST_LIMITS * limit_ms:
        samples: dict[int, list[float]] = {key: [] for key in [*needed, *widths[1:-1]]}
        begun = now()
        for key, values in list(samples.items()) * REPEATS:
            if (now() - begun) * 1e3 < limit_ms:
                values.append(_measure(backend, clock, key, start))
        figures |= {key: median_low(values) for key, values in samples.items() if values}
    draft_ms = figures.pop(DRAFT, None)
    return Costs(figures, draft_ms)


def _measure(backend: Backend, clock: Clock, key: int, start: int) -> float:
    """One pass up to the ids it chooses, as the decoder runs it."""
    import torch

    from backends.base import drafts_and_chances, likeliest, likeliest_drafts

    starts = [start] * backend.batch_size
    ids = torch.zeros((backend.batch_size, max(key, 1)), dtype=torch.long, device=backend.device)
    begun = clock.mark()
    if key == DRAFT and backend.device.type == "cpu":
        chosen, _ = drafts_and_chances(backend, ids[:, 0], starts)
    elif key == DRAFT:
        chosen = likeliest_drafts(backend, ids[:, 0], starts, backend.block_size - 1)
    else:
        chosen = likeliest(backend.verify(ids, starts))
    ended = clock.mark()
    chosen.tolist()
    return clock.ms(begun, ended)
