"""What a benchmark is asked to measure. Imports no torch."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

DEFAULT_TOKENS, DEFAULT_ROUNDS, DEFAULT_SAMPLES = 64, 3, 2
SYNTHETIC_TOKENS = 256  # so that the last block, which is cut, hardly counts
AUTO = "auto"


@dataclass(frozen=True)
class Plan:
    """Every combination of these is measured. `blocks`: widths, None for the adaptive one.

    `blocks` () is the adaptive one and the trained block. `contexts` () leaves prompts as long as they are.
    """

    backends: tuple[str, ...] = (AUTO,)
    dtypes: tuple[str, ...] = (AUTO,)
    quantizations: tuple[str, ...] = ("none",)
    draft_vocabularies: tuple[str, ...] = (AUTO,)
    blocks: tuple[int | None, ...] = ()
    temperatures: tuple[float, ...] = (0.0,)
    contexts: tuple[int, ...] = ()
    batches: tuple[int, ...] = (1,)
    peers: tuple[str, ...] = ()
    max_new_tokens: int = DEFAULT_TOKENS
    rounds: int = DEFAULT_ROUNDS
    samples: int = DEFAULT_SAMPLES
    seed: int = 0

    def widths(self, block_size: int) -> list[int | None]:
        """Of the verify passes of the DFlash rows; empty where there is no drafter."""
        if block_size == 1:
            return []
        return list(dict.fromkeys(self.blocks or (None, block_size)))

    def as_dict(self) -> dict[str, Any]:
        """For the `settings` object of the JSON output."""
        blocks = [AUTO if each is None else each for each in self.blocks]
        return {**asdict(self), "blocks": blocks or "auto and the trained block"}
