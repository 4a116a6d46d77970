"""Who takes part in a benchmark, and what it is measured at. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from dflash_cli.errors import DFlashError

if TYPE_CHECKING:
    from dflash_cli.bench.sample import Sample
    from dflash_cli.sampling import SamplingParams

PLAIN, DFLASH = "plain", "dflash"
Progress = Callable[[int, int], None]
"""(done, of how many); may raise to stop what it follows."""


class PeerUnavailable(DFlashError):  # noqa: N818
    """A peer that cannot take part here; the message says what to install or pass."""


@dataclass(frozen=True)
class Place:
    """What a row of the table is measured at. Rows of one place and kind are compared with its plain decoding."""

    backend: str
    dtype: str
    batch: int
    temperature: float
    quantize: str = "none"

    @property
    def precision(self) -> str:
        """`bfloat16`, `bfloat16 int8`."""
        return precision_of(self.dtype, self.quantize)


def precision_of(dtype: str, quantize: str) -> str:
    """A dtype, and how the target's weights are kept where that is not in it."""
    return dtype if quantize == "none" else f"{dtype} {quantize}"


@dataclass(frozen=True)
class Work:
    """What is asked of everybody: how many tokens at most, which ids end an answer, and how ids are chosen."""

    max_new_tokens: int
    stop_ids: frozenset[int]
    params: SamplingParams


class Subject(Protocol):
    """One row of the table. `block_size`: ids of its verify passes, None where it has none of its own.

    `adaptive`: that is the widest of several. `baseline`: where its plain decoding was measured.
    """

    name: str
    place: Place
    baseline: Place
    block_size: int | None
    adaptive: bool
    simulated_tau: float | None

    def warm_up(self, rows: Sequence[Sequence[int]]) -> None:
        """Do all that only a first time has to, with the prompts of a batch."""

    def answer(self, rows: Sequence[Sequence[int]]) -> Sample:
        """Answer the prompts of a batch, prefill included, and say what it took."""


def label_of(name: str, block_size: int | None, adaptive: bool, draft_ids: int | None = None) -> str:
    """`dflash 16`, `dflash auto of 8192 ids`, `plain`: a row by its name, and by its block size and what it drafts
    where these tell it from others."""
    if name == PLAIN or block_size is None:
        return name
    part = "" if draft_ids is None else f" of {draft_ids} ids"
    return f"{name} {'auto' if adaptive else block_size}{part}"


class Peer:
    """What is the same for all that are not ours."""

    block_size: int | None = None
    adaptive: bool = False
    simulated_tau: float | None = None
