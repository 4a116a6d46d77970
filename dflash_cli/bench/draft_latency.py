"""The time of a draft: DFlash by its depth against a one-layer drafter that guesses one token after the other."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import torch

from backends import create_backend
from backends.config import DFlashConfig, DrafterConfig, EagleConfig, ModelConfig, TargetConfig
from backends.draft_vocabulary import DraftHead
from backends.huge_pages import use_huge_pages
from dflash_cli.bench.entrants import compiled_code
from dflash_cli.bench.room import tidy
from dflash_cli.bench.runner import Watch
from dflash_cli.bench.shapes import shape_of
from dflash_cli.bench.synthetic import random_drafter, random_target
from dflash_cli.bench.timing import Call, time_calls
from dflash_cli.fetch_progress import megabytes
from dflash_cli.free_memory import free_memory
from dflash_cli.memory import plan_memory
from dflash_cli.memory_fit import NotEnoughMemory

if TYPE_CHECKING:
    from backends.drafter import Drafter
    from backends.target import Target

DEPTHS = (1, 3, 5)
BLOCKS = (4, 8, 16)
EAGLE = "one layer, autoregressive (EAGLE-3 shape)"
EAGLE_TAPS = 3
EAGLE_VOCAB = 32000  # ids that published drafters of this kind choose from, where the target has more
SPACE = 64  # cache rows past the place that is drafted at


@dataclass(frozen=True)
class Latency:
    """One draft. A block of `tokens` ids has the anchor and tokens - 1 drafts; the other drafter makes as many."""

    drafter: str
    layers: int
    tokens: int
    drafts: int
    backend: str
    dtype: str
    context: int
    ms: float
    low: float
    high: float

    def as_dict(self) -> dict[str, Any]:
        """An object of the JSON output."""
        return {name: round(value, 4) if isinstance(value, float) else value for name, value in asdict(self).items()}


@dataclass(frozen=True)
class _Kind:
    """A drafter that is not made yet. `draft_ids`: how many ids it chooses from, 0 for all."""

    name: str
    config: DrafterConfig
    draft_ids: int = 0

    def make(self, target: Target) -> Drafter:
        """With random weights."""
        weight = target.model.embed_tokens.weight
        drafter = random_drafter(self.config, weight.dtype, weight.device)
        return drafter.with_head(DraftHead(target, torch.arange(self.draft_ids))) if self.draft_ids else drafter


def draft_latency(
    shape: str,
    backends: Sequence[str],
    dtype: torch.dtype,
    device: torch.device,
    context: int,
    rounds: int,
    watch: Watch | None = None,
) -> Iterator[Latency]:
    """Measure drafts on random weights of a shape: of one drafter after the other, so that only one takes memory; for
    each, all blocks and backends by turns. Raises UsageError, NotEnoughMemory.
    """
    watch = watch or Watch()
    target_config, kinds = _kinds(shape)
    _check_fits(target_config, kinds, dtype, device, context, len(BLOCKS) * len(backends))
    watch.stage("draft latency: making weights")
    target = random_target(target_config, dtype, device)
    for number, kind in enumerate(kinds):
        watch.advance(number, len(kinds))
        yield from _latencies(kind, target, backends, context, rounds, watch)
        tidy()
    watch.advance(len(kinds), len(kinds))


def _kinds(shape: str) -> tuple[TargetConfig, list[_Kind]]:
    """The target, and DFlash drafters by depth, then the one-layer drafter."""
    target_dict, drafter_dict = shape_of(shape)
    # Drafting runs none of the target's layers: one is enough to make an engine, and all taps may be that one.
    target, config = replace(TargetConfig.from_dict(target_dict), num_layers=1), DFlashConfig.from_dict(drafter_dict)
    config = replace(config, target_layer_ids=(0,) * len(config.target_layer_ids), num_target_layers=1)
    kinds = [
        _Kind(
            f"DFlash, {depth} layer{'s' if depth > 1 else ''}",
            replace(config, num_layers=depth, layer_types=(config.layer_types[0],) * depth),
        )
        for depth in DEPTHS
    ]
    return target, [*kinds, _Kind(EAGLE, _chain(target), min(EAGLE_VOCAB, target.vocab_size))]


def _chain(target: TargetConfig) -> EagleConfig:
    shape = {each.name: getattr(target, each.name) for each in fields(ModelConfig)}
    shape |= {"num_layers": 1, "qk_norm": False, "attention_bias": False}
    return EagleConfig(**shape, block_size=BLOCKS[0], num_target_layers=1, target_layer_ids=(0,) * EAGLE_TAPS)


def _check_fits(
    target: TargetConfig, kinds: Sequence[_Kind], dtype: torch.dtype, device: torch.device, context: int, engines: int
) -> None:
    """Of all drafters, before the first is made. Raises NotEnoughMemory."""
    needed = {
        kind.name: plan_memory(
            target, kind.config, dtype_bytes=dtype.itemsize, context=context + SPACE, batch=engines,
            device=device.type, converted=(True, True), draft_ids=kind.draft_ids,
        ).needed
        for kind in kinds
    }  # fmt: skip
    largest, free = max(needed, key=lambda name: needed[name]), free_memory(str(device))
    if free is not None and needed[largest] > free:
        narrower = "--dtypes bfloat16, " if dtype.itemsize > 2 else ""
        raise NotEnoughMemory(
            f"not enough memory on {device} to time drafts: {largest} needs {megabytes(needed[largest])} with what is "
            f"around it, {megabytes(free)} free. Use {narrower}smaller --contexts, or a smaller shape with --synthetic",
            needed[largest],
            free,
        )


def _latencies(
    kind: _Kind, target: Target, backends: Sequence[str], context: int, rounds: int, watch: Watch
) -> list[Latency]:
    """Of one drafter, which nobody holds afterwards."""
    drafter = kind.make(target)
    keys: list[tuple[int, str]] = []
    calls: dict[str, Call] = {}
    for backend in backends:
        for tokens, used, call in _drafts(kind.name, backend, target, drafter, context, watch):
            keys.append((tokens, used))
            calls[str(len(calls))] = call
    if target.model.embed_tokens.weight.device.type == "cpu":
        use_huge_pages()  # all backends alike
    watch.stage(f"draft latency: measuring {kind.name}")
    timed = time_calls(calls, target.model.embed_tokens.weight.device, rounds).values()
    dtype = str(target.model.embed_tokens.weight.dtype).removeprefix("torch.")
    return [
        Latency(
            kind.name, kind.config.num_layers, tokens, tokens - 1, used, dtype, context, each.ms, each.low, each.high
        )
        for (tokens, used), each in zip(keys, timed, strict=True)
    ]  # fmt: skip


def _drafts(
    name: str, backend: str, target: Target, drafter: Drafter, context: int, watch: Watch
) -> Iterator[tuple[int, str, Call]]:
    """(tokens of the block, backend, the draft)."""
    for tokens in BLOCKS:
        engine = create_backend(
            backend, target, _with_block(drafter, tokens), max_len=context + SPACE, artefacts=compiled_code(backend)
        )
        engine.warm_up(watch.follow(f"draft latency: warm-up of {name}, {tokens} ids, {engine.name}"))
        anchors = torch.zeros(1, dtype=torch.long, device=target.model.embed_tokens.weight.device)
        yield tokens, engine.name, lambda engine=engine, anchors=anchors: engine.draft(anchors, [context])  # type: ignore[misc]


def _with_block(drafter: Drafter, block_size: int) -> Drafter:
    """The same weights with blocks of another size, on which none of them depends."""
    other = copy.copy(drafter)
    other.config = replace(drafter.config, block_size=block_size)
    return other
