"""A GGUF file (llama.cpp's format) turned into a Hugging Face checkpoint: `config.json` and `model.safetensors`.

Weights are dequantised and stored as bfloat16, a few rows at a time, so memory does not grow with the model.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from backends.gguf_file import GGUFError, GGUFFile, TensorInfo, gguf_metadata
from backends.gguf_rope import rope_scaling

__all__ = ["ARCHITECTURES", "GGUFError", "GGUFFile", "convert_gguf", "gguf_metadata"]

ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM"}
CHUNK_VALUES = 4 << 20  # values dequantised at a time: 16 MB in float32
HEADER_ALIGNMENT = 64  # the tensor data starts on a cache line, which memory-mapped kernels like

TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
BLOCK_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
QK_NORM_NAMES = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
ROPE_FREQS = "rope_freqs.weight"
PERMUTED = ("attn_q.weight", "attn_k.weight")


@dataclass(frozen=True)
class _Plan:
    """One tensor to write: its Hugging Face name, where it comes from, and the rows of a head if RoPE-permuted."""

    name: str
    info: TensorInfo
    head_rows: int | None


def convert_gguf(path: Path, folder: Path, progress: Callable[[int, int], None]) -> None:
    """Write `config.json` and `model.safetensors` (bfloat16, Hugging Face names) of the model in `path` to `folder`.

    Llama files keep the rows of q and k in llama.cpp's order for interleaved RoPE; they are put back into Hugging
    Face's order. `progress(done, total)` counts bytes written. `folder` must exist; what a failure leaves in it is
    incomplete. Raises GGUFError for a file that is damaged or of another architecture, OSError from writing.
    """
    source = GGUFFile.open(path)
    config = _config(source)
    plans = list(_plans(source, config))
    _check_complete(source, config, plans)
    _write_safetensors(source, plans, folder / "model.safetensors", progress)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _config(source: GGUFFile) -> dict[str, Any]:
    arch = source.metadata.get("general.architecture")
    if arch not in ARCHITECTURES:
        raise GGUFError(
            f"{source.path} holds a model of architecture {arch!r}; supported are {', '.join(ARCHITECTURES)}"
        )
    embedding = source.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise GGUFError(f"{source.path} has no token_embd.weight matrix; this is not a whole language model")
    need = _Needed(source)
    hidden_size, heads = need.integer("embedding_length"), need.integer("attention.head_count")
    head_dim = need.integer("attention.key_length", need.integer("rope.dimension_count", hidden_size // heads))
    config: dict[str, Any] = {
        "architectures": [ARCHITECTURES[str(arch)]],
        "model_type": arch,
        "hidden_size": hidden_size,
        "intermediate_size": need.integer("feed_forward_length"),
        "num_hidden_layers": need.integer("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": need.integer("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "rms_norm_eps": _shortest(need.number("attention.layer_norm_rms_epsilon")),
        "rope_theta": _shortest(need.number("rope.freq_base", 10000.0)),
        "max_position_embeddings": need.integer("context_length"),
        "vocab_size": embedding.shape[0],
        "tie_word_embeddings": "output.weight" not in source.tensors,
        "bos_token_id": source.metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": source.metadata.get("tokenizer.ggml.eos_token_id"),
        "dtype": "bfloat16",
    }
    factors = _rope_factors(source) if arch == "llama" else None
    config["rope_scaling"] = rope_scaling(source, str(arch), config["rope_theta"], head_dim, factors)
    return config


class _Needed:
    """Typed look-ups of `<architecture>.<key>` in the metadata."""

    def __init__(self, source: GGUFFile) -> None:
        self.source = source
        self.arch = source.metadata["general.architecture"]

    def number(self, key: str, default: float | None = None) -> float:
        value = self.source.metadata.get(f"{self.arch}.{key}", default)
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            raise GGUFError(f"{self.source.path} gives {self.arch}.{key} as {value!r}; expected a positive number")
        return value

    def integer(self, key: str, default: int | None = None) -> int:
        return int(self.number(key, default))


def _shortest(value: float) -> float:
    """The shortest decimal that is this float32, so that 1e-5 does not come back as 9.999999747378752e-06."""
    return float(str(np.float32(value)))


def _rope_factors(source: GGUFFile) -> npt.NDArray[np.float32] | None:
    info = source.tensors.get(ROPE_FREQS)
    if info is None:
        return None
    with source.path.open("rb") as file:
        return source.read_rows(file, info, 0, info.shape[0]).reshape(-1)


def _plans(source: GGUFFile, config: Mapping[str, Any]) -> Iterator[_Plan]:
    """What to write, in the file's order. Raises GGUFError naming the tensors that have no place in the model."""
    names = _names(config)
    ignored = {ROPE_FREQS} if config["model_type"] == "llama" else set()
    unknown = sorted(set(source.tensors) - set(names) - ignored)
    if unknown:
        raise GGUFError(
            f"{source.path} has {len(unknown)} tensors that a plain {config['model_type']} model has not "
            f"({_listed(unknown)}); this variant is not supported"
        )
    for name, info in source.tensors.items():
        if name in ignored:
            continue
        permuted = config["model_type"] == "llama" and name.endswith(PERMUTED)
        yield _Plan(names[name], info, config["head_dim"] if permuted else None)


def _names(config: Mapping[str, Any]) -> dict[str, str]:
    """GGUF name -> Hugging Face name of every tensor the model may have."""
    parts = BLOCK_NAMES | (QK_NORM_NAMES if config["model_type"] == "qwen3" else {})
    names = dict(TOP_NAMES)
    for layer in range(config["num_hidden_layers"]):
        for gguf_part, part in parts.items():
            names[f"blk.{layer}.{gguf_part}.weight"] = f"model.layers.{layer}.{part}.weight"
    return names


def _check_complete(source: GGUFFile, config: Mapping[str, Any], plans: list[_Plan]) -> None:
    found = {plan.name: plan.info.shape for plan in plans}
    expected = _shapes(config)
    missing = sorted(set(expected) - set(found))
    if missing:
        raise GGUFError(f"{source.path} lacks {len(missing)} tensors ({_listed(missing)}); fetch a whole file")
    for name, shape in expected.items():
        if found[name] != shape:
            raise GGUFError(f"{source.path}: {name} has the shape {list(found[name])}; expected {list(shape)}")


def _shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Hugging Face name -> shape of every tensor that must be there."""
    hidden, inner, dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    q_rows, kv_rows = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim
    by_part = {
        "attn_norm": (hidden,),
        "attn_q": (q_rows, hidden),
        "attn_k": (kv_rows, hidden),
        "attn_v": (kv_rows, hidden),
        "attn_output": (hidden, q_rows),
        "ffn_norm": (hidden,),
        "ffn_gate": (inner, hidden),
        "ffn_up": (inner, hidden),
        "ffn_down": (hidden, inner),
        "attn_q_norm": (dim,),
        "attn_k_norm": (dim,),
        "token_embd": (config["vocab_size"], hidden),
        "output_norm": (hidden,),
        "output": (config["vocab_size"], hidden),
    }
    names = _names(config)
    if config["tie_word_embeddings"]:
        del names["output.weight"]
    return {name: by_part[gguf_name.split(".")[-2]] for gguf_name, name in names.items()}


def _listed(names: list[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def _write_safetensors(source: GGUFFile, plans: list[_Plan], path: Path, progress: Callable[[int, int], None]) -> None:
    """Header first, then each tensor's bytes; the format is that of https://github.com/huggingface/safetensors."""
    header, total = _safetensors_header(plans)
    done = 0
    with source.path.open("rb") as gguf, path.open("wb") as out:
        out.write(header)
        progress(0, total)
        for plan in plans:
            for first, last in _chunks(plan):
                values = source.read_rows(gguf, plan.info, first, last)
                done += out.write(_to_bfloat16(_unpermuted(values, plan.head_rows)).tobytes())
                progress(done, total)
        out.flush()
        os.fsync(out.fileno())


def _safetensors_header(plans: list[_Plan]) -> tuple[bytes, int]:
    """The header's bytes with its length in front, and the number of bytes that follow it."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for plan in plans:
        start, end = end, end + 2 * int(np.prod(plan.info.shape))
        entries[plan.name] = {"dtype": "BF16", "shape": list(plan.info.shape), "data_offsets": [start, end]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % HEADER_ALIGNMENT)
    return struct.pack("<Q", len(text)) + text, end


def _chunks(plan: _Plan) -> Iterator[tuple[int, int]]:
    """Row ranges of about CHUNK_VALUES values; whole heads where the rows are permuted."""
    num_rows, width = plan.info.shape[0], int(np.prod(plan.info.shape[1:]))
    unit = plan.head_rows or 1
    step = max(1, CHUNK_VALUES // (unit * width)) * unit
    for first in range(0, num_rows, step):
        yield first, min(first + step, num_rows)


def _unpermuted(values: npt.NDArray[np.float32], head_rows: int | None) -> npt.NDArray[np.float32]:
    """Rows `[x0, y0, x1, y1, ...]` of each head back to `[x0, x1, ..., y0, y1, ...]`."""
    if head_rows is None:
        return values
    pairs = values.reshape(-1, head_rows // 2, 2, values.shape[-1])
    return pairs.swapaxes(1, 2).reshape(values.shape)


def _to_bfloat16(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """bfloat16 bit patterns, rounded to nearest even as torch does; `values` are finite."""
    bits = np.ascontiguousarray(values, dtype="<f4").view("<u4")
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return rounded.astype("<u2")
