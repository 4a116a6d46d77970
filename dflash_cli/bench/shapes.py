"""The shapes of published pairs, as their `config.json` state them, for weights that are random. Imports no torch."""

from __future__ import annotations

from typing import Any

from dflash_cli.errors import UsageError, nearest

Shape = tuple[dict[str, Any], dict[str, Any]]
"""The `config.json` of a target and of its drafter."""

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def _target(kind: str, **sizes: Any) -> dict[str, Any]:
    defaults = {"model_type": kind, "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "hidden_act": "silu"}
    return defaults | {"num_key_value_heads": 8, "head_dim": 128} | sizes


def _drafter(target: dict[str, Any], layers: int, block_size: int, taps: list[int], mask_id: int) -> dict[str, Any]:
    """A drafter as wide as its target, all layers with full attention: the form that was released."""
    same = (
        "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size",
        "max_position_embeddings", "rope_theta", "rope_scaling",
    )  # fmt: skip
    return {
        **{key: target[key] for key in same if key in target},
        "model_type": "qwen3",
        "architectures": ["DFlashDraftModel"],
        "rms_norm_eps": 1e-6,
        "num_hidden_layers": layers,
        "layer_types": ["full_attention"] * layers,
        "block_size": block_size,
        "num_target_layers": target["num_hidden_layers"],
        "dflash_config": {"mask_token_id": mask_id, "target_layer_ids": taps},
    }


_QWEN3 = {"num_hidden_layers": 36, "num_attention_heads": 32, "vocab_size": 151936}
_QWEN3 |= {"rope_theta": 1000000, "max_position_embeddings": 40960}
QWEN3_8B = _target("qwen3", hidden_size=4096, intermediate_size=12288, **_QWEN3)
QWEN3_4B = _target("qwen3", hidden_size=2560, intermediate_size=9728, **_QWEN3 | {"tie_word_embeddings": True})
LLAMA_8B = _target(
    "llama", hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32, vocab_size=128256,
    rope_theta=500000.0, rope_scaling=LLAMA3_ROPE, max_position_embeddings=131072, rms_norm_eps=1e-5,
)  # fmt: skip
TINY = _target(
    "qwen3", hidden_size=64, intermediate_size=96, num_hidden_layers=6, num_attention_heads=4, num_key_value_heads=2,
    head_dim=16, vocab_size=512, rope_theta=10000.0, max_position_embeddings=8192,
)  # fmt: skip

SHAPES: dict[str, Shape] = {
    "qwen3-8b": (QWEN3_8B, _drafter(QWEN3_8B, 5, 16, [1, 9, 17, 25, 33], 151669)),
    "qwen3-4b": (QWEN3_4B, _drafter(QWEN3_4B, 5, 16, [1, 9, 17, 25, 33], 151669)),
    # Its taps and mask id are not published with the others: evenly spread and any id cost the same.
    "llama-3.1-8b": (LLAMA_8B, _drafter(LLAMA_8B, 5, 10, [1, 8, 15, 22, 29], 128255)),
    "tiny": (TINY, _drafter(TINY, 2, 16, [1, 3], 511)),
}


def shape_of(name: str) -> Shape:
    """One of SHAPES. Raises UsageError."""
    if name not in SHAPES:
        raise UsageError(f"unknown shape {name!r}{nearest(name, list(SHAPES)) or '.'} Known are {', '.join(SHAPES)}")
    return SHAPES[name]
