"""Waiting for what another thread, process or terminal does: as long as a busy machine may take, no longer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE_S = 60
Seen = TypeVar("Seen")


def poll(look: Callable[[], Seen], holds: Callable[[Seen], object], seconds: float = PATIENCE_S) -> Seen:
    """What `look` gives as soon as it `holds`; fails with what was seen last where that takes too long."""
    end = time.monotonic() + seconds
    while not holds(seen := look()):
        assert time.monotonic() < end, "\n".join(seen) if isinstance(seen, list) else seen
        time.sleep(0.02)
    return seen
