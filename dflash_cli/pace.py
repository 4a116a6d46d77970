"""Slow motion: pauses between the steps of an answer, so that people can look. Imports no torch."""

from __future__ import annotations

import time
from collections.abc import Callable

from dflash_cli.events import BlockDrafted, BlockVerified, Event

SLICE_S = 0.05  # how late a stop may be noticed


class Pace:
    """At most `steps_per_s` blocks a second. A new one for each answer."""

    def __init__(self, steps_per_s: float) -> None:
        self.paused_s = 0.0
        """All pauses so far; clocks of an answer leave them out."""
        self._step_s = 1 / steps_per_s

    def wait(self, event: Event, should_stop: Callable[[], bool]) -> float:
        """Pause as long as is right after the event; the seconds that it took. Ends early once `should_stop`.

        Half a step lets people see the drafts, the other half what became of them.
        """
        if isinstance(event, BlockDrafted):
            return self._pause(self._step_s / 2, should_stop)
        if isinstance(event, BlockVerified):
            return self._pause(self._step_s / (2 if event.num_drafted else 1), should_stop)
        return 0.0

    def _pause(self, seconds: float, should_stop: Callable[[], bool]) -> float:
        paused = pause(seconds, should_stop)
        self.paused_s += paused
        return paused


def pause(seconds: float, should_stop: Callable[[], bool]) -> float:
    """Wait that long, or until `should_stop`; the seconds that it took."""
    begun = time.perf_counter()
    end = begun + seconds
    while (left := end - time.perf_counter()) > 0 and not should_stop():
        time.sleep(min(SLICE_S, left))
    return time.perf_counter() - begun
