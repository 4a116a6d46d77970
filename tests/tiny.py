"""Tiny random models: real architectures, a few thousand weights, no download."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from backends import create_backend
from backends.config import DFlashConfig, EagleConfig, TargetConfig
from backends.dflash import DFlashDrafter
from backends.drafter import Drafter
from backends.eagle import EagleDrafter
from backends.engine import Engine
from backends.target import Target
from dflash_cli.request import Request
from dflash_cli.speculative import Decoder
from tests.byte_tokenizer import make_byte_tokenizer_folder

VOCAB = 272
MASK_ID = 271


def target_dict(kind: str = "qwen3", **changes: Any) -> dict[str, Any]:
    """A `config.json` of a tiny target."""
    config = {
        "model_type": kind,
        "architectures": ["Qwen3ForCausalLM" if kind == "qwen3" else "LlamaForCausalLM"],
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 5,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16 if kind == "qwen3" else 8,
        "vocab_size": VOCAB,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "max_position_embeddings": 512,
        "tie_word_embeddings": kind == "llama",
        "hidden_act": "silu",
    }
    return config | changes


NO_CONTEXT = {"dflash_config": {"mask_token_id": MASK_ID, "target_layer_ids": [], "target_context": False}}
"""Changes to `drafter_dict` for one that sees nothing of the text but the anchor."""
SLIDING = {
    "layer_types": ["sliding_attention", "full_attention"],
    "sliding_window": 7,
    "use_sliding_window": True,
    "max_window_layers": 0,
}
KINDS: dict[str, dict[str, Any]] = {
    "full": {},
    "sliding": SLIDING,
    "sliding-not-causal": {**SLIDING, "is_causal": False},
    "causal": {"is_causal": True},
    "gemma-like": {"input_embedding_scale": 5.5, "output_multiplier": 0.3, "final_logit_softcapping": 4.0},
}
"""Changes to `drafter_dict`: every way in which the rows of a block see."""


def drafter_dict(**changes: Any) -> dict[str, Any]:
    """A `config.json` of a tiny drafter that fits `target_dict`."""
    config = {
        "model_type": "qwen3",
        "architectures": ["DFlashDraftModel"],
        "hidden_size": 32,
        "intermediate_size": 40,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "vocab_size": VOCAB,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "max_position_embeddings": 512,
        "block_size": 6,
        "num_target_layers": 5,
        "dflash_config": {"mask_token_id": MASK_ID, "target_layer_ids": [1, 3]},
        "layer_types": ["full_attention"] * 2,
        "sliding_window": None,
        "attention_bias": False,
        "tie_word_embeddings": False,
    }
    return config | changes


def randomize(module: torch.nn.Module, seed: int) -> None:
    """Weights large enough that every part matters and greedy choices vary."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(1 + 0.2 * noise if "norm" in name else 0.25 * noise)


def make_target(kind: str = "qwen3", seed: int = 0, **changes: Any) -> Target:
    """A random tiny target in fp32."""
    target = Target(TargetConfig.from_dict(target_dict(kind, **changes)))
    randomize(target, seed)
    return target.eval()


def eagle_dict(**changes: Any) -> dict[str, Any]:
    """A `config.json` of a tiny autoregressive drafter that fits `target_dict`."""
    config = drafter_dict(model_type="llama", architectures=["Eagle3DraftModel"], num_hidden_layers=1)
    for key in ("dflash_config", "layer_types"):
        del config[key]
    return config | {"eagle3_config": {"target_layer_ids": [0, 2, 4]}} | changes


def make_drafter(seed: int = 1, **changes: Any) -> DFlashDrafter:
    """A random tiny drafter in fp32."""
    drafter = DFlashDrafter(DFlashConfig.from_dict(drafter_dict(**changes)))
    randomize(drafter, seed)
    return drafter.eval()


def make_eagle(seed: int = 1, **changes: Any) -> EagleDrafter:
    """A random tiny autoregressive drafter in fp32."""
    drafter = EagleDrafter(EagleConfig.from_dict(eagle_dict(**changes)))
    randomize(drafter, seed)
    return drafter.eval()


def make_engine(
    target: Target | None = None, drafter: Drafter | None = None, *, max_len: int = 256, batch_size: int = 1
) -> Engine:
    """An eager engine over tiny models; without a drafter it decodes plainly."""
    engine = create_backend("eager", target or make_target(), drafter, max_len=max_len, batch_size=batch_size)
    assert isinstance(engine, Engine)
    return engine


def write_pair(folder: Path, *, seed: int = 0, kind: str = "qwen3", **drafter_changes: Any) -> tuple[Path, Path]:
    """A tiny target (with the byte tokenizer) and a drafter that fits it, as checkpoint folders."""
    target, drafter = folder / "target", folder / "drafter"
    target.mkdir(parents=True)
    drafter.mkdir(parents=True)
    make_byte_tokenizer_folder(target)
    for place, config, module in (
        (target, target_dict(kind), make_target(kind, seed)),
        (drafter, drafter_dict(**drafter_changes), make_drafter(seed + 1, **drafter_changes)),
    ):
        (place / "config.json").write_text(json.dumps(config))
        tensors = {name: parameter.detach().contiguous() for name, parameter in module.named_parameters()}
        save_file(tensors, place / "model.safetensors")
    return target, drafter


def said_by(target: Target, drafter: Drafter | None, request: Request) -> list[int]:
    """The ids of an answer."""
    events = Decoder(make_engine(target, drafter)).generate(request)
    return [token for event in events for token in getattr(event, "new_ids", ())]
