"""Random weights of real shapes, made on the device: what passes of a big pair cost, without a download."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import nn

from backends.config import DrafterConfig, TargetConfig
from backends.drafter import Drafter
from backends.drafter_kinds import new_drafter
from backends.linears import fuse_for_inference
from backends.quantize import quantise
from backends.target import Target
from dflash_cli.bench.case import Case
from dflash_cli.bench.entrants import Weights
from dflash_cli.bench.shapes import shape_of
from dflash_cli.free_memory import free_memory
from dflash_cli.memory import plan_memory
from dflash_cli.memory_fit import check_fits
from dflash_cli.models import Pair

KIND = "random ids"
DEFAULT_CONTEXT = 200
STD = 0.02  # of the weights: as of models before they are trained, so that nothing overflows
Model = TypeVar("Model", bound=nn.Module)


def synthetic_weights(
    name: str, dtype: torch.dtype, device: torch.device, context: int, batch: int = 1, quantize: str = "none"
) -> Weights:
    """A random pair of a published shape, with room for `context` tokens in the memory of the device.

    Raises UsageError for an unknown name, DFlashError where it does not fit.
    """
    target_dict, drafter_dict = shape_of(name)
    target, drafter = TargetConfig.from_dict(target_dict), DrafterConfig.from_dict(drafter_dict)
    plan = plan_memory(
        target, drafter, dtype_bytes=dtype.itemsize, context=context, batch=batch, device=device.type,
        converted=(True, True), quantize=quantize, is_filled=True,
    )  # fmt: skip
    check_fits(plan, free_memory(str(device)), device=str(device))
    source = f"synthetic:{name}"
    pair = Pair(source, source, source, thinking=None, expected=(), note="random weights")
    return Weights(
        pair, random_target(target, dtype, device, quantize), random_drafter(drafter, dtype, device),
        target.max_position_embeddings,
    )  # fmt: skip


def random_target(config: TargetConfig, dtype: torch.dtype, device: torch.device, quantize: str = "none") -> Target:
    """A target ready for inference that says nothing sensible."""
    with torch.device("meta"):
        target = Target(config)
    fill(target, dtype, device)
    if config.tie_word_embeddings:
        target.lm_head.weight = target.model.embed_tokens.weight
    if quantize != "none":
        quantise(target, quantize, dtype, device)
        return target.eval()
    return ready(target)


def random_drafter(config: DrafterConfig, dtype: torch.dtype, device: torch.device) -> Drafter:
    """A drafter ready for inference that guesses nothing right."""
    with torch.device("meta"):
        drafter = new_drafter(config)
    fill(drafter, dtype, device)
    return ready(drafter)


def ready(module: Model) -> Model:
    """Fused, as loaded weights are."""
    fuse_for_inference(module)
    return module.eval()


def fill(module: nn.Module, dtype: torch.dtype, device: torch.device) -> None:
    """Give every parameter of a module on the meta device random values, norms ones; the same ones every time."""
    generator = torch.Generator(device).manual_seed(0)
    for name, parameter in list(module.named_parameters()):
        tensor = torch.empty(parameter.shape, dtype=dtype, device=device)
        if parameter.dim() == 1:
            tensor.fill_(1.0)
        else:
            tensor.normal_(0.0, STD, generator=generator)
        parent, _, leaf = name.rpartition(".")
        setattr(module.get_submodule(parent), leaf, nn.Parameter(tensor, requires_grad=False))


def random_cases(weights: Weights, contexts: tuple[int, ...], samples: int) -> list[Case]:
    """Prompts of random ids, of the lengths asked for."""
    generator = torch.Generator().manual_seed(0)
    vocab: Any = weights.target.config.vocab_size
    return [
        Case(KIND, length, tuple(torch.randint(0, vocab, (length,), generator=generator).tolist()))
        for length in contexts or (DEFAULT_CONTEXT,)
        for _ in range(samples)
    ]
