"""What a checkpoint's `config.json` says about a model, as frozen values with Hugging Face's names on the outside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

Item = TypeVar("Item", str, int)
LARGEST = 2.0**53  # whole numbers up to it are exact as floats; nothing in a configuration is larger
FULL = "full_attention"
SLIDING = "sliding_attention"
TARGET_TYPES = ("qwen3", "llama")
NEUTRAL = {
    "mlp_bias": False,
    "hidden_act": "silu",
    "partial_rotary_factor": 1.0,
    "attention_multiplier": 1.0,
    "logits_scaling": 1.0,
    "is_neox_style": True,
}
"""Fields that would change the computation, with the only value that is computed here."""
ROPE_TYPES = ("default", "linear", "llama3")


class CheckpointError(ValueError):
    """A checkpoint that cannot be used: the message says what was found, what was expected and what to do."""


@dataclass(frozen=True)
class RopeConfig:
    """Rotary embedding: base `theta` and, for long-context checkpoints, how its frequencies are rescaled."""

    theta: float
    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position: int = 0

    @classmethod
    def from_dict(cls, config: Mapping[str, Any]) -> RopeConfig:
        """Read `rope_theta` + `rope_scaling`, or the newer `rope_parameters`. Raises CheckpointError."""
        scaling = _table(config, "rope_scaling") | _table(config, "rope_parameters")
        if any(isinstance(value, Mapping) for value in scaling.values()):
            raise CheckpointError("config.json has RoPE parameters by layer type, which are not supported")
        theta = _number({"rope_theta": config.get("rope_theta")} | scaling, "rope_theta", 10000.0)
        kind = scaling.get("rope_type", scaling.get("type", "default"))
        if kind not in ROPE_TYPES:
            raise CheckpointError(
                f"config.json asks for RoPE scaling {kind!r}; supported are {', '.join(ROPE_TYPES)}. "
                "Remove the scaling (shorter context) or use another checkpoint"
            )
        if kind == "default":
            return cls(theta=theta)
        low, high = _number(scaling, "low_freq_factor", 1.0), _number(scaling, "high_freq_factor", 4.0)
        positions = _whole(config, "max_position_embeddings", 0)
        original = _whole(scaling, "original_max_position_embeddings", positions)
        return cls(theta, kind, _number(scaling, "factor"), low, high, original)


@dataclass(frozen=True)
class ModelConfig:
    """The shape of a decoder stack; shared by target and drafter. Sizes are numbers of channels, heads or layers."""

    model_type: str
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    rms_norm_eps: float
    max_position_embeddings: int
    qk_norm: bool
    attention_bias: bool
    rope: RopeConfig


@dataclass(frozen=True)
class TargetConfig(ModelConfig):
    """A Qwen3 or Llama target."""

    tie_word_embeddings: bool = False

    @classmethod
    def from_dict(cls, config: Mapping[str, Any]) -> TargetConfig:
        """Read a target's `config.json`. Raises CheckpointError for what this decoder does not compute."""
        model_type = config.get("model_type")
        if model_type not in TARGET_TYPES:
            raise CheckpointError(
                f"config.json has model_type {model_type!r}; supported targets are {', '.join(TARGET_TYPES)}"
            )
        if "dflash_config" in config:
            raise CheckpointError("this checkpoint is a DFlash drafter, not a target: pass it as --draft")
        _refuse_unless_neutral(config, {**NEUTRAL, "use_sliding_window": False})
        if config.get("quantization_config"):
            raise CheckpointError(
                "this checkpoint is quantised (quantization_config); use the unquantised one or a GGUF"
            )
        if SLIDING in _array(config, "layer_types", str):
            raise CheckpointError("this target has sliding-window layers, which are not supported for targets")
        shape = _shape(config, qk_norm=model_type == "qwen3")
        return cls(**shape, tie_word_embeddings=bool(config.get("tie_word_embeddings", False)))


@dataclass(frozen=True)
class DrafterConfig(ModelConfig):
    """A DFlash drafter in the released format (`z-lab/*-DFlash-*`): Qwen3 fields plus `dflash_config`.

    `target_layer_ids` are the taps: 0-based target blocks whose output feeds the context feature. `sliding_window`
    counts positions; it applies to layers of type `sliding_attention`. A layer is causal inside the block when
    `is_causal` says so or, where that is absent, when it slides (the rule of the reference loader).
    """

    block_size: int
    num_target_layers: int
    mask_token_id: int
    target_layer_ids: tuple[int, ...]
    layer_types: tuple[str, ...]
    sliding_window: int | None = None
    is_causal: bool | None = None
    input_embedding_scale: float = 1.0
    output_multiplier: float = 1.0
    final_logit_softcapping: float = 0.0

    @classmethod
    def from_dict(cls, config: Mapping[str, Any]) -> DrafterConfig:
        """Read a drafter's `config.json`. Taps and mask id are never guessed. Raises CheckpointError."""
        if "dflash_config" not in config:
            raise CheckpointError("config.json has no dflash_config: this is not a DFlash drafter")
        flat = {**config, **_table(config, "dflash_config")}
        _refuse_successors(config, flat)
        _refuse_unless_neutral(flat, NEUTRAL)
        shape = _shape(config, qk_norm=True)
        num_layers = shape["num_layers"]
        layer_types = _array(config, "layer_types", str) or tuple(_derived_layer_types(config, num_layers))
        sliding_window = _whole(config, "sliding_window", 0)
        if len(layer_types) != num_layers or not set(layer_types) <= {FULL, SLIDING}:
            raise CheckpointError(f"layer_types is {list(layer_types)}; expected {num_layers} of {FULL} or {SLIDING}")
        if SLIDING in layer_types and not sliding_window:
            raise CheckpointError(f"layer_types has {SLIDING} but sliding_window is {config.get('sliding_window')!r}")
        is_causal = flat.get("is_causal")
        return cls(
            **shape,
            block_size=_whole(flat, "block_size"),
            num_target_layers=_whole(flat, "num_target_layers"),
            mask_token_id=_whole(flat, "mask_token_id"),
            target_layer_ids=_array({"target_layer_ids": _need(flat, "target_layer_ids")}, "target_layer_ids", int),
            layer_types=layer_types,
            sliding_window=sliding_window if SLIDING in layer_types else None,
            is_causal=None if is_causal is None else bool(is_causal),
            input_embedding_scale=_number(flat, "input_embedding_scale", 1.0) or 1.0,
            output_multiplier=_number(flat, "output_multiplier", 1.0) or 1.0,
            final_logit_softcapping=_number(flat, "final_logit_softcapping", 0.0),
        )

    def window(self, layer: int) -> int | None:
        """The sliding window of a layer, or None where it sees the whole context."""
        return self.sliding_window if self.layer_types[layer] == SLIDING else None

    def causal(self, layer: int) -> bool:
        """Whether a block slot of this layer is blind to the slots after it."""
        return self.layer_types[layer] == SLIDING if self.is_causal is None else self.is_causal


def _refuse_unless_neutral(config: Mapping[str, Any], neutral: Mapping[str, Any]) -> None:
    for key, value in neutral.items():
        if config.get(key, value) not in (value, None):
            raise CheckpointError(f"config.json sets {key} to {config[key]!r}; only {value!r} is supported")


def _derived_layer_types(config: Mapping[str, Any], num_layers: int) -> list[str]:
    """Where `layer_types` is absent: Qwen3Config's rule, sliding from layer `max_window_layers` on when switched on."""
    first = _whole(config, "max_window_layers", 28) if config.get("use_sliding_window") else num_layers
    return [SLIDING if layer >= first else FULL for layer in range(num_layers)]


def _need(config: Mapping[str, Any], key: str) -> Any:
    if config.get(key) is None:
        raise CheckpointError(f"config.json has no {key!r}, which this kind of checkpoint must have")
    return config[key]


def _whole(config: Mapping[str, Any], key: str, default: int | None = None) -> int:
    """A whole number, written as one; where it is absent or null, `default`. Raises CheckpointError."""
    value = _number(config, key, default)
    if value != int(value):
        raise CheckpointError(f"config.json has {key} {config[key]!r}; expected a whole number")
    return int(value)


def _number(config: Mapping[str, Any], key: str, default: float | None = None) -> float:
    value = _need(config, key) if default is None else config.get(key)
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < LARGEST:
        raise CheckpointError(f"config.json has {key} {value!r}; expected a number")
    return float(value)


def _array(config: Mapping[str, Any], key: str, kind: type[Item]) -> tuple[Item, ...]:
    """An array; empty where it is absent or null."""
    value = config.get(key)
    value = [] if value is None else value
    if not isinstance(value, list) or not all(type(item) is kind for item in value):
        what = "strings" if kind is str else "whole numbers"
        raise CheckpointError(f"config.json has {key} {value!r}; expected an array of {what}")
    return tuple(value)


def _table(config: Mapping[str, Any], key: str) -> dict[str, Any]:
    """An object; empty where it is absent or null."""
    value = config.get(key)
    value = {} if value is None else value
    if not isinstance(value, Mapping):
        raise CheckpointError(f"config.json has {key} {value!r}; expected an object")
    return dict(value)


def _shape(config: Mapping[str, Any], *, qk_norm: bool) -> dict[str, Any]:
    heads, hidden = _whole(config, "num_attention_heads"), _whole(config, "hidden_size")
    kv_heads = _whole(config, "num_key_value_heads", heads)
    sizes = ("num_attention_heads", "hidden_size", "num_hidden_layers", "intermediate_size", "vocab_size")
    for key, value in ((key, _whole(config, key)) for key in sizes):
        if value < 1:
            raise CheckpointError(f"config.json has {key} {value}; expected at least 1")
    if kv_heads < 1 or heads % kv_heads:
        raise CheckpointError(f"config.json has {heads} query heads over {kv_heads} kv heads: not a whole group size")
    return {
        "model_type": str(config.get("model_type")),
        "hidden_size": hidden,
        "intermediate_size": _whole(config, "intermediate_size"),
        "num_layers": _whole(config, "num_hidden_layers"),
        "num_heads": heads,
        "num_kv_heads": kv_heads,
        # Qwen3 checkpoints that leave it out mean 128, as Hugging Face's Qwen3Config does.
        "head_dim": _whole(config, "head_dim", 0) or (128 if qk_norm else hidden // heads),
        "vocab_size": _whole(config, "vocab_size"),
        "rms_norm_eps": _number(config, "rms_norm_eps", 1e-6),
        "max_position_embeddings": _whole(config, "max_position_embeddings", 2048),
        "qk_norm": qk_norm,
        "attention_bias": bool(config.get("attention_bias", False)),
        "rope": RopeConfig.from_dict(config),
    }


def _refuse_successors(config: Mapping[str, Any], flat: Mapping[str, Any]) -> None:
    """Formats that would load in part and then draft badly: named, never half-read."""
    names = ", ".join(_array(config, "architectures", str))
    for key in ("conv_kernel_size", "selector_rank", "markov_rank", "mask_embedding"):
        if flat.get(key):
            raise CheckpointError(
                f"this drafter ({names or 'unnamed'}) has {key}: it is a successor of DFlash (DFlash 2, DSpark), "
                "which is not supported; use a DFlash drafter"
            )
