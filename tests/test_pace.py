from __future__ import annotations

import time

import pytest

from dflash_cli.events import BlockDrafted, BlockVerified, Event, Finished, Prefilled
from dflash_cli.pace import Pace

DRAFTED = BlockDrafted(3, (1, 2))


def verified(num_drafted: int) -> BlockVerified:
    return BlockVerified(3, 0, (1,), num_drafted, 1.0, 1.0)


@pytest.mark.parametrize(
    ("event", "steps"),
    [(Prefilled(3, 0, (1,), 1.0), 0), (DRAFTED, 0.5), (verified(2), 0.5), (verified(0), 1), (Finished("stop", 1.0), 0)],
)
def test_a_step_has_two_halves(event: Event, steps: float) -> None:
    pace = Pace(20)
    begun = time.perf_counter()
    paused = pace.wait(event, lambda: False)
    assert paused == pytest.approx(pace.paused_s)
    assert paused <= time.perf_counter() - begun
    assert steps / 20 <= paused
    assert paused < steps / 20 + 5  # a busy machine sleeps longer


def test_a_stop_ends_it_at_once() -> None:
    pace = Pace(0.001)
    calls = iter([False, True])
    assert pace.wait(DRAFTED, lambda: next(calls)) < 5
    assert pace.wait(DRAFTED, lambda: True) < 5
    assert 0 < pace.paused_s < 5
