"""What plain decoding was measured at, for the speed-ups of `dflash stats`. Imports no torch."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from dflash_cli.bench.subject import PLAIN
from dflash_cli.stats_store.checkpoint import checkpoint_hash, quantisation_of
from dflash_cli.stats_store.row import Baseline

if TYPE_CHECKING:
    from dflash_cli.bench.entrants import Weights
    from dflash_cli.bench.runner import Measured


def baselines_of(weights: Weights, measured: Sequence[Measured]) -> Iterator[Baseline]:
    """One for each row of plain decoding, all rounds together. Answers decoded together are no measure for one."""
    target = weights.pair.target
    plain = [each for each in measured if each.subject.name == PLAIN and each.subject.place.batch == 1]
    found = checkpoint_hash(target) if plain else ""
    for each in plain:
        tokens, ms = sum(one.decoded for one in each.samples), sum(one.decode_ms for one in each.samples)
        if tokens and ms:
            place = each.subject.place
            yield Baseline(
                time=round(time.time() * 1e3),
                target=target,
                target_hash=found,
                backend=place.backend,
                device=weights.device,
                dtype=place.dtype,
                tokens=tokens,
                ms=ms,
                quantisation=quantisation_of(target, weights.quantize),
            )
