"""What a checkpoint's `config.json` says about a model, as frozen values with Hugging Face's names on the outside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from backends.config_fields import CheckpointError as CheckpointError  # importers take it from here
from backends.config_fields import array, need, number, table, whole

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
DRAFTER_KEYS = ("dflash_config", "eagle3_config")
"""The table that makes a `config.json` a drafter's, by kind."""
ROPE_TYPES = ("default", "linear", "llama3")


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
        scaling = table(config, "rope_scaling") | table(config, "rope_parameters")
        if any(isinstance(value, Mapping) for value in scaling.values()):
            raise CheckpointError("config.json has RoPE parameters by layer type, which are not supported")
        theta = number({"rope_theta": config.get("rope_theta")} | scaling, "rope_theta", 10000.0)
        kind = scaling.get("rope_type", scaling.get("type", "default"))
        if kind not in ROPE_TYPES:
            raise CheckpointError(
                f"config.json asks for RoPE scaling {kind!r}; supported are {', '.join(ROPE_TYPES)}. "
                "Remove the scaling (shorter context) or use another checkpoint"
            )
        if kind == "default":
            return cls(theta=theta)
        low, high = number(scaling, "low_freq_factor", 1.0), number(scaling, "high_freq_factor", 4.0)
        positions = whole(config, "max_position_embeddings", 0)
        original = whole(scaling, "original_max_position_embeddings", positions)
        return cls(theta, kind, number(scaling, "factor"), low, high, original)


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
        if is_drafter(config):
            raise CheckpointError("this checkpoint is a drafter, not a target: pass it as --draft")
        _refuse_foreign_drafters(config)
        if model_type not in TARGET_TYPES:
            raise CheckpointError(
                f"config.json has model_type {model_type!r}; supported targets are {', '.join(TARGET_TYPES)}"
            )
        _refuse_unless_neutral(config, {**NEUTRAL, "use_sliding_window": False})
        if config.get("quantization_config"):
            raise CheckpointError(
                "this checkpoint is quantised (quantization_config); use the unquantised one or a GGUF"
            )
        if SLIDING in array(config, "layer_types", str):
            raise CheckpointError("this target has sliding-window layers, which are not supported for targets")
        shape = _shape(config, qk_norm=model_type == "qwen3")
        return cls(**shape, tie_word_embeddings=bool(config.get("tie_word_embeddings", False)))


@dataclass(frozen=True, kw_only=True)
class DrafterConfig(ModelConfig):
    """What every drafter says of itself.

    `block_size`: the anchor and its drafts. `target_layer_ids` are the taps: 0-based target blocks whose output it
    reads; none where it has no `target_context`. `sliding_window` counts positions; None where no layer slides.
    """

    block_size: int
    num_target_layers: int
    target_layer_ids: tuple[int, ...]
    target_context: bool = True
    sliding_window: int | None = None

    @classmethod
    def from_dict(cls, config: Mapping[str, Any]) -> DrafterConfig:
        """Read the `config.json` of a drafter of either kind. Taps are never guessed. Raises CheckpointError."""
        _refuse_foreign_drafters(config)
        if not is_drafter(config):
            raise CheckpointError(f"config.json has no {' or '.join(DRAFTER_KEYS)}: this is not a DFlash drafter")
        return (DFlashConfig if "dflash_config" in config else EagleConfig).from_dict(config)


@dataclass(frozen=True, kw_only=True)
class DFlashConfig(DrafterConfig):
    """A DFlash drafter in the released format (`z-lab/*-DFlash-*`): Qwen3 fields plus `dflash_config`.

    `sliding_window` applies to layers of type `sliding_attention`. A layer is causal inside the block when `is_causal`
    says so or, where that is absent, when it slides (the rule of the reference loader). One key is not of that format:
    with `target_context` false and no taps it sees nothing of the text but the anchor, and has no `fc` to load.
    """

    mask_token_id: int
    layer_types: tuple[str, ...]
    is_causal: bool | None = None
    input_embedding_scale: float = 1.0
    output_multiplier: float = 1.0
    final_logit_softcapping: float = 0.0

    @classmethod
    def from_dict(cls, config: Mapping[str, Any]) -> DFlashConfig:
        """Read such a `config.json`. Taps and mask id are never guessed. Raises CheckpointError."""
        flat = {**config, **table(config, "dflash_config")}
        _refuse_successors(config, flat)
        _refuse_unless_neutral(flat, NEUTRAL)
        shape = _shape(config, qk_norm=True)
        num_layers = shape["num_layers"]
        layer_types = array(config, "layer_types", str) or tuple(_derived_layer_types(config, num_layers))
        sliding_window = whole(config, "sliding_window", 0)
        if len(layer_types) != num_layers or not set(layer_types) <= {FULL, SLIDING}:
            raise CheckpointError(f"layer_types is {list(layer_types)}; expected {num_layers} of {FULL} or {SLIDING}")
        if SLIDING in layer_types and not sliding_window:
            raise CheckpointError(f"layer_types has {SLIDING} but sliding_window is {config.get('sliding_window')!r}")
        is_causal = flat.get("is_causal")
        return cls(
            **shape,
            **_place_beside_target(flat),
            mask_token_id=whole(flat, "mask_token_id"),
            layer_types=layer_types,
            sliding_window=sliding_window if SLIDING in layer_types else None,
            is_causal=None if is_causal is None else bool(is_causal),
            input_embedding_scale=number(flat, "input_embedding_scale", 1.0) or 1.0,
            output_multiplier=number(flat, "output_multiplier", 1.0) or 1.0,
            final_logit_softcapping=number(flat, "final_logit_softcapping", 0.0),
        )

    def window(self, layer: int) -> int | None:
        """The sliding window of a layer, or None where it sees the whole context."""
        return self.sliding_window if self.layer_types[layer] == SLIDING else None

    def causal(self, layer: int) -> bool:
        """Whether a block slot of this layer is blind to the slots after it."""
        return self.layer_types[layer] == SLIDING if self.is_causal is None else self.is_causal


@dataclass(frozen=True, kw_only=True)
class EagleConfig(DrafterConfig):
    """A one-layer autoregressive drafter (EAGLE-3, arXiv 2503.01840) as `train-drafter --arch eagle3` writes it: the
    fields of a Llama layer plus `eagle3_config` with the taps. Embedding and head are the target's."""

    @classmethod
    def from_dict(cls, config: Mapping[str, Any]) -> EagleConfig:
        """Read such a `config.json`. Raises CheckpointError."""
        flat = {**config, **table(config, "eagle3_config")}
        _refuse_unless_neutral(config, {**NEUTRAL, "attention_bias": False})
        shape = _shape(config, qk_norm=False)
        if shape["num_layers"] != 1:
            raise CheckpointError(f"config.json has {shape['num_layers']} layers; an EAGLE-3 drafter has 1")
        beside = _place_beside_target(flat)
        if not beside["target_layer_ids"]:
            raise CheckpointError("config.json has no target_layer_ids; an EAGLE-3 drafter reads at least one layer")
        return cls(**shape, **beside)


def is_drafter(config: Mapping[str, Any]) -> bool:
    """Whether a `config.json` is a drafter's, of a format that is read here."""
    return any(key in config for key in DRAFTER_KEYS)


def _place_beside_target(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Of any drafter: how many tokens it drafts, and what it reads of which target."""
    taps = array({"target_layer_ids": need(flat, "target_layer_ids")}, "target_layer_ids", int)
    context = flat.get("target_context", True)
    if context is not True and (context is not False or taps):
        raise CheckpointError(
            f"config.json has target_context {context!r} and target_layer_ids {list(taps)}; expected true, or false "
            "and an empty array"
        )
    return {
        "block_size": whole(flat, "block_size"),
        "num_target_layers": whole(flat, "num_target_layers"),
        "target_layer_ids": taps,
        "target_context": context,
    }


def _refuse_unless_neutral(config: Mapping[str, Any], neutral: Mapping[str, Any]) -> None:
    for key, value in neutral.items():
        if config.get(key, value) not in (value, None):
            raise CheckpointError(f"config.json sets {key} to {config[key]!r}; only {value!r} is supported")


def _derived_layer_types(config: Mapping[str, Any], num_layers: int) -> list[str]:
    """Where `layer_types` is absent: Qwen3Config's rule, sliding from layer `max_window_layers` on when switched on."""
    first = whole(config, "max_window_layers", 28) if config.get("use_sliding_window") else num_layers
    return [SLIDING if layer >= first else FULL for layer in range(num_layers)]


def _shape(config: Mapping[str, Any], *, qk_norm: bool) -> dict[str, Any]:
    heads, hidden = whole(config, "num_attention_heads"), whole(config, "hidden_size")
    kv_heads = whole(config, "num_key_value_heads", heads)
    sizes = ("num_attention_heads", "hidden_size", "num_hidden_layers", "intermediate_size", "vocab_size")
    for key, value in ((key, whole(config, key)) for key in sizes):
        if value < 1:
            raise CheckpointError(f"config.json has {key} {value}; expected at least 1")
    if kv_heads < 1 or heads % kv_heads:
        raise CheckpointError(f"config.json has {heads} query heads over {kv_heads} kv heads: not a whole group size")
    return {
        "model_type": str(config.get("model_type")),
        "hidden_size": hidden,
        "intermediate_size": whole(config, "intermediate_size"),
        "num_layers": whole(config, "num_hidden_layers"),
        "num_heads": heads,
        "num_kv_heads": kv_heads,
        # Qwen3 checkpoints that leave it out mean 128, as Hugging Face's Qwen3Config does.
        "head_dim": whole(config, "head_dim", 0) or (128 if qk_norm else hidden // heads),
        "vocab_size": whole(config, "vocab_size"),
        "rms_norm_eps": number(config, "rms_norm_eps", 1e-6),
        "max_position_embeddings": whole(config, "max_position_embeddings", 2048),
        "qk_norm": qk_norm,
        "attention_bias": bool(config.get("attention_bias", False)),
        "rope": RopeConfig.from_dict(config),
    }


def _refuse_successors(config: Mapping[str, Any], flat: Mapping[str, Any]) -> None:
    """Formats that would load in part and then draft badly: named, never half-read."""
    names = ", ".join(array(config, "architectures", str))
    for key in ("conv_kernel_size", "selector_rank", "markov_rank", "mask_embedding"):
        if flat.get(key):
            raise CheckpointError(
                f"this drafter ({names or 'unnamed'}) has {key}: it is a successor of DFlash (DFlash 2, DSpark), "
                "which is not supported; use a DFlash drafter"
            )


def _refuse_foreign_drafters(config: Mapping[str, Any]) -> None:
    """Drafters in formats of other programs: named, where they would pass for a model that lacks some tensors."""
    names = ", ".join(array(config, "architectures", str))
    if "speculators_model_type" in config or "speculators_config" in config:
        kind = config.get("speculators_model_type", "unnamed")
        raise CheckpointError(
            f"this is a drafter in the format of the speculators library ({kind}), which is not supported; use a "
            "drafter in the released DFlash format (config.json with dflash_config)"
        )
    if "eagle" in names.lower() and not is_drafter(config):
        raise CheckpointError(
            f"this is an EAGLE drafter ({names}) that does not say which layers of which target it reads, which is not "
            "supported; use a DFlash drafter, or make one with `dflash train-drafter --arch eagle3`"
        )
