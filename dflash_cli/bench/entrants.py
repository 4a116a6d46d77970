"""The rows that are ours: plain decoding and DFlash at every setting of a plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, cast

from backends import COMPILED, choose_backend, create_backend
from backends.self_test import self_test
from dflash_cli.adaptive import Adaptive
from dflash_cli.backend_setup import TEST_ROWS
from dflash_cli.bench.ours import Ours
from dflash_cli.bench.plan import AUTO, Plan
from dflash_cli.bench.room import Room
from dflash_cli.bench.schedule import Scheduled
from dflash_cli.bench.subject import Place, Work
from dflash_cli.errors import DFlashError
from dflash_cli.memory import plan_memory
from dflash_cli.paths import cache_dir, ensure_private
from dflash_cli.speculative import Decoder

if TYPE_CHECKING:
    from backends.base import Backend
    from backends.drafter import Drafter
    from backends.target import Target
    from dflash_cli.bench.case import Case
    from dflash_cli.bench.runner import Watch
    from dflash_cli.models import Pair

ROUND_UP = 512  # caches are made in multiples of it, so that compiled code is found again


@dataclass(frozen=True)
class Weights:
    """A pair in memory. `most`: the tokens that prompt and answer may have together."""

    pair: Pair
    target: Target
    drafter: Drafter | None
    most: int

    @property
    def dtype(self) -> str:
        """`bfloat16`."""
        return str(self.target.model.embed_tokens.weight.dtype).removeprefix("torch.")

    @property
    def quantize(self) -> str:
        """How the target's weights are kept."""
        return self.target.quantize

    @property
    def device(self) -> str:
        """Where they are."""
        return str(self.target.model.embed_tokens.weight.device)

    def drafters(self, vocabularies: Sequence[str]) -> list[Drafter]:
        """The drafter with each of these vocabularies; where it has no index they are all the same."""
        if self.drafter is None or self.drafter.head is None:
            return [] if self.drafter is None else [self.drafter]
        return [self.drafter.with_head(self.drafter.head if each == AUTO else None) for each in vocabularies]


def cache_length(cases: Sequence[Case], max_new_tokens: int, most: int) -> int:
    """Cache rows that the longest prompt and its answer need. Raises DFlashError where there are not as many."""
    longest = max(len(case.ids) for case in cases)
    needed = longest + max_new_tokens
    if needed > most:
        raise DFlashError(
            f"a prompt of {longest} tokens and an answer of {max_new_tokens} need {needed}, and the context holds "
            f"{most}; pass a larger --context, or shorter --contexts"
        )
    return min(most, -(-needed // ROUND_UP) * ROUND_UP)


def our_subjects(
    weights: Weights,
    plan: Plan,
    work: Work,
    max_len: int,
    watch: Watch,
    schedules: Sequence[float] = (),
    room: Room | None = None,
) -> Iterator[Ours]:
    """Plain decoding, then DFlash, for every backend, batch and temperature.

    `schedules`: simulated acceptance lengths, see `schedule.Scheduled`; by default drafts are verified for real.
    All are there together, so that they can take turns: `room` is where they must fit, by default all that is free.
    Raises BackendUnavailable, NotEnoughMemory, and UsageError for a width that is not possible.
    """
    room = room or Room(weights.device)
    for name, batch in product(plan.backends, plan.batches):
        plain = Decoder(_ready(name, weights, None, max_len, batch, watch, room), 1)
        drafters = weights.drafters(plan.draft_vocabularies)
        fast = [_ready(name, weights, drafter, max_len, batch, watch, room) for drafter in drafters]
        for temperature in plan.temperatures:
            place = Place(plain.backend.name, weights.dtype, batch, temperature, weights.quantize)
            here = replace(work, params=replace(work.params, temperature=temperature, seed=plan.seed))
            yield Ours(plain, place, here)
            for backend in fast:
                yield from _drafting(backend, weights.pair, plan, place, here, schedules)


def _drafting(
    backend: Backend, pair: Pair, plan: Plan, place: Place, work: Work, schedules: Sequence[float]
) -> Iterator[Ours]:
    for tau, width in product(schedules or (None,), plan.widths(backend.block_size)):
        used = backend if tau is None else cast("Backend", Scheduled(backend, tau))
        depth = Adaptive(pair, used) if width is None else None  # each row learns for itself
        yield Ours(Decoder(used, width, depth), place, work, tau)


def _ready(
    name: str, weights: Weights, drafter: Drafter | None, max_len: int, batch: int, watch: Watch, room: Room
) -> Backend:
    """A backend that has compiled what it will and was compared with eager: widths are timed on it next."""
    chosen = choose_backend(name, weights.device.partition(":")[0]).name
    plan = plan_memory(
        weights.target.config, None if drafter is None else drafter.config, context=max_len, batch=batch,
        dtype_bytes=weights.target.model.embed_tokens.weight.dtype.itemsize, device=weights.device.partition(":")[0],
        loaded=(True, True), quantize=weights.quantize,
    )  # fmt: skip
    room.take_engine(plan, f"{chosen} with batch {batch}, beside what is loaded")
    artefacts = compiled_code(chosen)
    backend = create_backend(name, weights.target, drafter, max_len=max_len, batch_size=batch, artefacts=artefacts)
    if backend.name in COMPILED:
        backend.warm_up(watch.follow(f"making {backend.name} ready"))
        twin = create_backend("eager", weights.target, drafter, max_len=min(TEST_ROWS, max_len))
        self_test(backend, twin)  # type: ignore[arg-type]
    return backend


def compiled_code(backend: str) -> Path | None:
    """The folder for what a backend compiles, the one of chats; None for one that compiles nothing."""
    # Code is loaded from there: nobody else may write to it.
    return ensure_private(cache_dir() / "compiled") if backend in COMPILED else None
