"""Tiny GGUF files with known weights and a small byte-level tokenizer, for the tests of conversion and fetching."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
from transformers.convert_slow_tokenizer import bytes_to_unicode

HIDDEN, INNER, LAYERS, HEADS, KV_HEADS, HEAD_DIM, CONTEXT = 16, 24, 2, 4, 2, 8, 64
CONTROL, USER_DEFINED = 3, 4
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"


def tokens() -> tuple[list[str], list[int], list[str]]:
    """Texts, types and merges: 4 control tokens, 1 user-defined, the 256 bytes and 3 merges."""
    merges = ["t h", "th e", "Ġ the"]
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|eot|>", "<think>"]
    texts = [*special, *bytes_to_unicode().values(), *("".join(m.split(" ")) for m in merges)]
    return texts, [CONTROL] * 4 + [USER_DEFINED] + [1] * (len(texts) - 5), merges


def weights(arch: str, *, tied: bool, seed: int = 0) -> dict[str, np.ndarray]:
    """Random float32 weights by Hugging Face name, each exactly a bfloat16."""
    rng = np.random.default_rng(seed)
    vocab = len(tokens()[0])
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocab, HIDDEN), "model.norm.weight": (HIDDEN,)}
    if not tied:
        shapes["lm_head.weight"] = (vocab, HIDDEN)
    for layer in range(LAYERS):
        block = f"model.layers.{layer}."
        shapes |= {
            block + "input_layernorm.weight": (HIDDEN,),
            block + "self_attn.q_proj.weight": (HEADS * HEAD_DIM, HIDDEN),
            block + "self_attn.k_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            block + "self_attn.v_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            block + "self_attn.o_proj.weight": (HIDDEN, HEADS * HEAD_DIM),
            block + "post_attention_layernorm.weight": (HIDDEN,),
            block + "mlp.gate_proj.weight": (INNER, HIDDEN),
            block + "mlp.up_proj.weight": (INNER, HIDDEN),
            block + "mlp.down_proj.weight": (HIDDEN, INNER),
        }
        if arch == "qwen3":
            shapes[block + "self_attn.q_norm.weight"] = shapes[block + "self_attn.k_norm.weight"] = (HEAD_DIM,)
    return {name: (rng.integers(-127, 128, size=shape) / 64).astype(np.float32) for name, shape in shapes.items()}


def gguf_name(name: str) -> str:
    """The name llama.cpp gives a Hugging Face tensor, from the package's own table."""
    known = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3, LAYERS)
    return str(known.get_name(name, try_suffixes=(".weight",)))


def permuted(value: np.ndarray, heads: int) -> np.ndarray:
    """Rows as llama.cpp's converter stores Llama's q and k."""
    halves = value.reshape(heads, 2, value.shape[0] // heads // 2, *value.shape[1:])
    return halves.swapaxes(1, 2).reshape(value.shape)


def write_gguf(
    path: Path,
    arch: str = "llama",
    *,
    tied: bool = True,
    extra: dict[str, np.ndarray] | None = None,
    metadata: dict[str, Any] | None = None,
    pre: str = "smollm",
    leave_out: str = "",
) -> dict[str, np.ndarray]:
    """Write a whole tiny GGUF file; returns its weights by Hugging Face name."""
    values = weights(arch, tied=tied)
    writer = gguf.GGUFWriter(path, arch)
    _add_shape(writer)
    _add_tokenizer(writer, pre)
    for key, value in (metadata or {}).items():
        add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
        add[type(value)](key, value)
    for name, value in values.items():
        heads = {"q_proj": HEADS, "k_proj": KV_HEADS}.get(name.split(".")[-2])
        stored = permuted(value, heads) if heads and arch == "llama" else value
        if gguf_name(name) != leave_out:
            writer.add_tensor(gguf_name(name), stored)
    for name, value in (extra or {}).items():
        writer.add_tensor(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return values


def _add_shape(writer: gguf.GGUFWriter) -> None:
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(500000.0)


def _add_tokenizer(writer: gguf.GGUFWriter, pre: str) -> None:
    texts, types, merges = tokens()
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(texts)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_eot_token_id(3)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template(TEMPLATE)
