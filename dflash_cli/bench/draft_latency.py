"""The time of a draft: DFlash by its depth against a one-layer drafter that guesses one token after the other."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from backends import COMPILED, create_backend
from backends.config import DrafterConfig, TargetConfig
from backends.layers import run_layers
from dflash_cli.bench.eagle import EagleDrafter, EagleDrafting
from dflash_cli.bench.entrants import compiled_code
from dflash_cli.bench.shapes import shape_of
from dflash_cli.bench.synthetic import fill, random_drafter, random_target, ready
from dflash_cli.bench.timing import Call, time_calls

if TYPE_CHECKING:
    from backends.drafter import Drafter
    from backends.target import Target

DEPTHS = (1, 3, 5)
BLOCKS = (4, 8, 16)
EAGLE = "one layer, autoregressive (EAGLE-3 shape)"
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


def draft_latency(
    shape: str,
    backends: Sequence[str],
    dtype: torch.dtype,
    device: torch.device,
    context: int,
    rounds: int,
    tell: Callable[[str], None] = lambda _: None,
) -> list[Latency]:
    """Measure all drafts on random weights of a shape, by turns. `tell` takes what begins. Raises UsageError."""
    target_dict, drafter_dict = shape_of(shape)
    # Drafting runs none of the target's layers: one is enough to make an engine, and all taps may be that one.
    target = random_target(replace(TargetConfig.from_dict(target_dict), num_layers=1), dtype, device)
    drafter_config = DrafterConfig.from_dict(drafter_dict)
    taps = (0,) * len(drafter_config.target_layer_ids)
    drafter_config = replace(drafter_config, target_layer_ids=taps, num_target_layers=1)
    found: list[Latency] = []
    for backend in backends:
        tell(f"draft latency: warm-up of {backend}")
        keys: list[tuple[str, int, int, str]] = []
        calls: dict[str, Call] = {}
        for name, layers, tokens, used, call in (
            *_block_drafts(backend, target, drafter_config, context),
            *_chain_drafts(backend, target, context),
        ):
            keys.append((name, layers, tokens, used))
            calls[str(len(calls))] = call
        tell(f"draft latency: measuring {backend}")
        for (name, layers, tokens, used), timed in zip(
            keys, time_calls(calls, device, rounds).values(), strict=True
        ):  # fmt: skip
            label = str(dtype).removeprefix("torch.")
            found.append(
                Latency(name, layers, tokens, tokens - 1, used, label, context, timed.ms, timed.low, timed.high)
            )
    return found


def _block_drafts(
    backend: str, target: Target, config: DrafterConfig, context: int
) -> Iterator[tuple[str, int, int, str, Call]]:
    """DFlash: (name, layers, tokens of the block, backend, the draft)."""
    weight = target.model.embed_tokens.weight
    for depth in DEPTHS:
        deep = replace(config, num_layers=depth, layer_types=(config.layer_types[0],) * depth)
        drafter = random_drafter(deep, weight.dtype, weight.device)
        for tokens in BLOCKS:
            engine = create_backend(
                backend,
                target,
                _with_block(drafter, tokens),
                max_len=context + SPACE,
                artefacts=compiled_code(backend),
            )
            engine.warm_up()
            anchors = torch.zeros(1, dtype=torch.long, device=weight.device)
            yield (
                f"DFlash, {depth} layer{'s' if depth > 1 else ''}", depth, tokens, engine.name,
                lambda engine=engine, anchors=anchors: engine.draft(anchors, [context]),  # type: ignore[misc]
            )  # fmt: skip


def _with_block(drafter: Drafter, block_size: int) -> Drafter:
    """The same weights with blocks of another size, on which none of them depends."""
    other = copy.copy(drafter)
    other.config = replace(drafter.config, block_size=block_size)
    return other


def _chain_drafts(backend: str, target: Target, context: int) -> Iterator[tuple[str, int, int, str, Call]]:
    """The one-layer drafter, computed as the backend computes; with flex, too, through a dense mask."""
    weight, compiles = target.model.embed_tokens.weight, backend in COMPILED
    device, length = weight.device, context + SPACE
    with torch.device("meta"):
        drafter = EagleDrafter(target.config)
    fill(drafter, weight.dtype, device)
    run: Any = run_layers
    if compiles:
        from backends.compiled import CompiledLayers

        run = CompiledLayers(1)
    drafting = EagleDrafting(target, ready(drafter), length, run=run)
    anchors = torch.zeros(1, 1, dtype=torch.long, device=device)
    start = torch.tensor([context], device=device)
    draft = _recorded(drafting) if compiles and device.type == "cuda" else _direct(drafting)
    for tokens in BLOCKS:
        yield EAGLE, 1, tokens, backend, lambda count=tokens - 1: draft(count, length - 1, anchors, start)  # type: ignore[misc]


Draft = Callable[[int, int, torch.Tensor, torch.Tensor], torch.Tensor]


def _direct(drafting: EagleDrafting) -> Draft:
    return lambda count, length, anchors, start: drafting.draft(anchors[:, 0], start, count, length)


def _recorded(drafting: EagleDrafting) -> Draft:
    """As a CUDA graph, as the engine's own draft is."""
    from backends.cuda_graphs import Recordings

    recordings = Recordings(lambda kind, length, ids, start: drafting.draft(ids[:, 0], start, int(kind), length))
    return lambda count, length, anchors, start: recordings(str(count), length, anchors, start)
