"""How long single passes take, by turns, on a device's own clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor

from backends.base import Clock, likeliest

Call = Callable[[], Tensor]
WARM_UP_CALLS = 3


@dataclass(frozen=True)
class Timed:
    """Milliseconds: the median, the lowest and the highest."""

    ms: float
    low: float
    high: float

    def as_dict(self) -> dict[str, float]:
        """Rounded."""
        return {name: round(value, 4) for name, value in vars(self).items()}


def time_calls(calls: Mapping[str, Call], device: torch.device, rounds: int) -> dict[str, Timed]:
    """Each call up to the ids that its result [.., V or ids] stands for, one after the other, round after round.

    The first few of each are not counted.
    """
    clock = Clock(device)
    for call in calls.values():
        for _ in range(WARM_UP_CALLS):
            _measure(call, clock)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            times[name].append(_measure(call, clock))
    return {name: Timed(median(each), min(each), max(each)) for name, each in times.items()}


def _measure(call: Call, clock: Clock) -> float:
    begun = clock.mark()
    result = call()
    chosen = likeliest(result) if result.is_floating_point() else result
    ended = clock.mark()
    chosen.tolist()  # waits for the device
    return clock.ms(begun, ended)
