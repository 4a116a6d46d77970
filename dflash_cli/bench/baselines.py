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
    """One for each row of plain decoding that is like a turn of a chat, all rounds together.

    So not of prompts that were filled up, of sampled answers, or of several that were decoded together.
    """
    target = weights.pair.target
    plain = [each for each in measured if _is_usual(each)]
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


def _is_usual(measured: Measured) -> bool:
    (_, context), subject = measured.group, measured.subject
    return (subject.name, subject.place.batch, subject.place.temperature, context) == (PLAIN, 1, 0.0, None)
