"""The time of a draft: DFlash by its depth against a one-layer drafter that guesses one token after the other."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import torch

from backends import create_backend
from backends.config import DFlashConfig, EagleConfig, ModelConfig, TargetConfig
from backends.draft_vocabulary import DraftHead
from dflash_cli.bench.entrants import compiled_code
from dflash_cli.bench.shapes import shape_of
from dflash_cli.bench.synthetic import random_drafter, random_target
from dflash_cli.bench.timing import Call, time_calls

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
    drafter_config = DFlashConfig.from_dict(drafter_dict)
    taps = (0,) * len(drafter_config.target_layer_ids)
    drafter_config = replace(drafter_config, target_layer_ids=taps, num_target_layers=1)
    chain = _chain(target)
    found: list[Latency] = []
    for backend in backends:
        tell(f"draft latency: warm-up of {backend}")
        keys: list[tuple[str, int, int, str]] = []
        calls: dict[str, Call] = {}
        for name, drafter in (*_by_depth(drafter_config, target), (EAGLE, chain)):
            for tokens, used, call in _drafts(backend, target, drafter, context):
                keys.append((name, drafter.config.num_layers, tokens, used))
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


def _by_depth(config: DFlashConfig, target: Target) -> Iterator[tuple[str, Drafter]]:
    """DFlash drafters by name."""
    weight = target.model.embed_tokens.weight
    for depth in DEPTHS:
        deep = replace(config, num_layers=depth, layer_types=(config.layer_types[0],) * depth)
        yield f"DFlash, {depth} layer{'s' if depth > 1 else ''}", random_drafter(deep, weight.dtype, weight.device)


def _chain(target: Target) -> Drafter:
    """The one-layer drafter, over as many ids as published ones choose from."""
    weight = target.model.embed_tokens.weight
    shape = {each.name: getattr(target.config, each.name) for each in fields(ModelConfig)}
    shape |= {"num_layers": 1, "qk_norm": False, "attention_bias": False}
    config = EagleConfig(**shape, block_size=BLOCKS[0], num_target_layers=1, target_layer_ids=(0,) * EAGLE_TAPS)
    ids = torch.arange(min(EAGLE_VOCAB, config.vocab_size))
    return random_drafter(config, weight.dtype, weight.device).with_head(DraftHead(target, ids))


def _drafts(backend: str, target: Target, drafter: Drafter, context: int) -> Iterator[tuple[int, str, Call]]:
    """(tokens of the block, backend, the draft)."""
    for tokens in BLOCKS:
        engine = create_backend(
            backend, target, _with_block(drafter, tokens), max_len=context + SPACE, artefacts=compiled_code(backend)
        )
        engine.warm_up()
        anchors = torch.zeros(1, dtype=torch.long, device=target.model.embed_tokens.weight.device)
        yield tokens, engine.name, lambda engine=engine, anchors=anchors: engine.draft(anchors, [context])  # type: ignore[misc]


def _with_block(drafter: Drafter, block_size: int) -> Drafter:
    """The same weights with blocks of another size, on which none of them depends."""
    other = copy.copy(drafter)
    other.config = replace(drafter.config, block_size=block_size)
    return other
