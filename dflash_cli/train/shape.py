"""The drafter to train: its `config.json`, its mask token and its first weights."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from backends.config import FULL, CheckpointError, DrafterConfig, TargetConfig
from backends.dflash import DFlashDrafter
from backends.drafter import Drafter
from backends.drafter_kinds import new_drafter
from backends.target import Target
from backends.weights import load_weights, open_checkpoint, read_json
from dflash_cli.errors import DFlashError, UsageError
from dflash_cli.models import Pair
from dflash_cli.pairing import check_pair, mismatches
from dflash_cli.train.blocks import generator
from dflash_cli.train.recipe import EAGLE, Recipe

if TYPE_CHECKING:
    from dflash_cli.model import Model
    from dflash_cli.text import TextCodec
    from dflash_cli.train.documents import Document

INIT_STD = 0.02
SMALL = 1024  # hidden size below which a target counts as small
NUM_TAPS = 5
EAGLE_TAPS = 3  # of a low, a middle and a high layer (arXiv 2503.01840)


def config_dict(recipe: Recipe, target: TargetConfig, mask_id: int) -> dict[str, Any]:
    """The `config.json` of a new DFlash drafter, in the released format; without context one key is added."""
    layers = recipe.layers or (3 if target.hidden_size < SMALL else 5)
    taps = [] if recipe.no_context else list(recipe.taps or default_taps(target.num_layers))
    dflash: dict[str, Any] = {"mask_token_id": mask_id, "target_layer_ids": taps}
    return {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "dflash_config": dflash | ({"target_context": False} if recipe.no_context else {}),
        **_beside_target(recipe, target),
        "num_hidden_layers": layers,
        "layer_types": [FULL] * layers,
        "sliding_window": None,
        "use_sliding_window": False,
        "max_window_layers": layers,
    }


def eagle_dict(recipe: Recipe, target: TargetConfig) -> dict[str, Any]:
    """The `config.json` of a new autoregressive drafter, a format of our own (see `backends.config.EagleConfig`)."""
    taps = recipe.taps or default_taps(target.num_layers, EAGLE_TAPS)
    return {
        "architectures": ["Eagle3DraftModel"],
        "model_type": "llama",
        "eagle3_config": {"target_layer_ids": list(taps)},
        **_beside_target(recipe, target),
        "num_hidden_layers": 1,
    }


def _beside_target(recipe: Recipe, target: TargetConfig) -> dict[str, Any]:
    """What drafters of both kinds say: how much they draft, and sizes, of which most are the target's."""
    rope = target.rope
    scaling = None
    if rope.kind != "default":
        scaling = {"rope_type": rope.kind, "factor": rope.factor}
    if rope.kind == "llama3":
        scaling = (scaling or {}) | {
            "low_freq_factor": rope.low_freq_factor,
            "high_freq_factor": rope.high_freq_factor,
            "original_max_position_embeddings": rope.original_max_position,
        }
    return {
        "attention_bias": False,
        "attention_dropout": 0.0,
        "block_size": recipe.block or (8 if target.hidden_size < SMALL else 16),
        "num_target_layers": target.num_layers,
        "head_dim": target.head_dim,
        "hidden_act": "silu",
        "hidden_size": target.hidden_size,
        "intermediate_size": recipe.hidden or target.intermediate_size,
        "num_attention_heads": target.num_heads,
        "num_key_value_heads": target.num_kv_heads,
        "max_position_embeddings": target.max_position_embeddings,
        "rms_norm_eps": 1e-6,
        "rope_theta": rope.theta,
        "rope_scaling": scaling,
        "tie_word_embeddings": False,
        "use_cache": True,
        "vocab_size": target.vocab_size,
        "dtype": "bfloat16",
    }


def drafter_shape(recipe: Recipe, model: Model, documents: Iterable[Document]) -> tuple[dict[str, Any], DrafterConfig]:
    """The `config.json` of the drafter to train, raw and read. Raises DFlashError where it does not fit the target."""
    target = model.target.config
    if recipe.warm_start is not None:
        raw = warm_config(Path(recipe.warm_start), model.pair, target)
    elif recipe.arch == EAGLE:
        raw = eagle_dict(recipe, target)
    else:
        raw = config_dict(recipe, target, pick_mask_id(recipe, target, model.codec, documents))
    config = DrafterConfig.from_dict(raw)
    if problem := next(mismatches(target, config), None):
        raise UsageError(f"this drafter would not fit the target: {problem}")
    return raw, config


def default_taps(num_layers: int, count: int = NUM_TAPS) -> tuple[int, ...]:
    """Evenly from layer 1 to the third from the end, as published; fewer where there are not so many layers."""
    last = num_layers - 3
    if last <= 1:
        return (num_layers // 2,)
    count = min(count, last)
    return tuple(round(1 + i * (last - 1) / (count - 1)) for i in range(count)) if count > 1 else (num_layers // 2,)


def pick_mask_id(recipe: Recipe, target: TargetConfig, codec: TextCodec, documents: Iterable[Document]) -> int:
    """An id of the target's vocabulary that occurs in no document: the one asked for, one after the tokenizer's last,
    or a control token that no text has. Raises UsageError, DFlashError."""
    used = {each for document in documents for each in document.ids}
    if recipe.mask_id is not None:
        if recipe.mask_id >= target.vocab_size or recipe.mask_id in used:
            why = "occurs in the training data" if recipe.mask_id in used else f"is not below {target.vocab_size}"
            raise UsageError(f"--mask-id {recipe.mask_id} {why}; expected an id that no text has, or leave it out")
        return recipe.mask_id
    if codec.vocab_size < target.vocab_size:
        return codec.vocab_size
    idle = [each for each in range(codec.vocab_size) if not codec.shows(each) and each not in codec.stop_ids | used]
    if not idle:
        raise DFlashError("every token of this target occurs in text, so none can stand for a mask; pass --mask-id")
    return idle[-1]


def make_drafter(recipe: Recipe, raw: dict[str, Any], target: Target, folder: Path) -> Drafter:
    """The drafter of `raw`, in fp32 and learning, on the target's device. `folder`: the target's checkpoint."""
    device = target.model.embed_tokens.weight.device
    with torch.device("meta"):
        drafter = new_drafter(DrafterConfig.from_dict(raw))
    if recipe.warm_start is not None:
        load_weights(drafter, open_checkpoint(Path(recipe.warm_start)), torch.float32, device)
    else:
        drafter = drafter.to_empty(device=device)
        _initialise(drafter, recipe.seed)
        if recipe.init == "target":
            assert isinstance(drafter, DFlashDrafter)
            _copy_layers(drafter, target.config, folder)
    for parameter in drafter.parameters():
        parameter.data = parameter.data.clone()  # a warm start's are mapped files
        parameter.requires_grad_()
    return drafter.train()


def _initialise(drafter: Drafter, seed: int) -> None:
    random = generator("weights", seed)
    with torch.no_grad():
        for parameter in drafter.parameters():
            first = torch.ones(parameter.shape)
            if parameter.ndim == 2:
                first = torch.randn(parameter.shape, generator=random) * INIT_STD
            parameter.copy_(first)


def _copy_layers(drafter: DFlashDrafter, target: TargetConfig, folder: Path) -> None:
    """Weights of target layers, evenly spread, into the drafter's; norms that the target lacks stay 1."""
    checkpoint = open_checkpoint(folder)
    count = drafter.config.num_layers
    for layer, module in enumerate(drafter.layers):
        source = round((layer + 1) * (target.num_layers - 1) / count)
        for name, parameter in module.named_parameters():
            _copy(parameter, checkpoint.files.get(full := f"model.layers.{source}.{name}"), full)


def _copy(parameter: nn.Parameter, path: Path | None, name: str) -> None:
    from safetensors import safe_open

    if path is None:
        return
    with safe_open(path, framework="pt") as file:
        tensor = file.get_tensor(name)
    if tensor.shape != parameter.shape:
        raise UsageError(
            f"--init target: {name} of the target has shape {list(tensor.shape)}, the drafter's is "
            f"{list(parameter.shape)}; leave out --hidden, or use --init random"
        )
    with torch.no_grad():
        parameter.copy_(tensor)


def warm_config(folder: Path, pair: Pair, target: TargetConfig) -> dict[str, Any]:
    """The `config.json` of the drafter to begin with, without its place. Raises DFlashError where it does not fit."""
    raw = read_json(folder / "config.json")
    try:
        config = DrafterConfig.from_dict(raw)
    except CheckpointError as error:
        raise DFlashError(f"--warm-start {folder}: {error}") from None
    check_pair(Pair(pair.name, pair.target, str(folder), pair.thinking, (), ""), target, config, None)
    return {key: value for key, value in raw.items() if not key.startswith("_")}  # such as _name_or_path
