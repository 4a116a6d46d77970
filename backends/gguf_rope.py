"""RoPE scaling of a GGUF file, as Hugging Face's `rope_scaling`.

llama.cpp stores Llama 3's scaling as one factor a frequency (`rope_freqs.weight`) and drops the four numbers they came
from. Ignoring them would give wrong logits, so the numbers are found again and the factors compared.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from backends.gguf_file import GGUFError, GGUFFile

LLAMA3_FACTORS = (8.0, 32.0)  # Llama 3.1 and 3.3; Llama 3.2
LLAMA3_LOW, LLAMA3_HIGH, LLAMA3_ORIGINAL = 1.0, 4.0, 8192
TOLERANCE = 1e-4


def rope_scaling(
    source: GGUFFile, arch: str, theta: float, head_dim: int, factors: npt.NDArray[np.float32] | None
) -> dict[str, Any] | None:
    """The `rope_scaling` entry for config.json, or None where the file has no scaling.

    `factors` are the file's `rope_freqs.weight`, `[head_dim / 2]`. Raises GGUFError for a kind of scaling that is not
    supported and for factors that Llama 3's formula does not give.
    """
    declared = _declared(source, arch)
    if factors is not None and not np.allclose(factors, 1.0, rtol=0, atol=TOLERANCE):
        return _llama3(source, theta, head_dim, factors, declared)
    kind = declared.get("type", "none")
    if kind == "none":
        return None
    if kind == "linear":
        return {"rope_type": "linear", "factor": float(declared.get("factor", 1.0))}
    raise GGUFError(f"{source.path} asks for RoPE scaling {kind!r}; supported are linear and Llama 3's")


def llama3_factors(theta: float, head_dim: int, scaling: dict[str, Any]) -> npt.NDArray[np.float64]:
    """By what Llama 3's rule divides each frequency, `[head_dim / 2]` (transformers, `_compute_llama3_parameters`)."""
    original = scaling["original_max_position_embeddings"]
    low, high, factor = scaling["low_freq_factor"], scaling["high_freq_factor"], scaling["factor"]
    frequencies = theta ** -(np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    turns = original * frequencies / (2 * math.pi)
    kept = np.clip((turns - low) / (high - low), 0.0, 1.0)
    result: npt.NDArray[np.float64] = 1.0 / ((1.0 - kept) / factor + kept)
    return result


def _declared(source: GGUFFile, arch: str) -> dict[str, Any]:
    prefix = f"{arch}.rope.scaling."
    return {key[len(prefix) :]: value for key, value in source.metadata.items() if key.startswith(prefix)}


def _llama3(
    source: GGUFFile, theta: float, head_dim: int, factors: npt.NDArray[np.float32], declared: dict[str, Any]
) -> dict[str, Any]:
    candidates = (float(declared["factor"]),) if "factor" in declared else LLAMA3_FACTORS
    for factor in candidates:
        scaling = {
            "rope_type": "llama3",
            "factor": factor,
            "low_freq_factor": float(declared.get("low_freq_factor", LLAMA3_LOW)),
            "high_freq_factor": float(declared.get("high_freq_factor", LLAMA3_HIGH)),
            "original_max_position_embeddings": int(declared.get("original_context_length", LLAMA3_ORIGINAL)),
        }
        expected = llama3_factors(theta, head_dim, scaling)
        if factors.shape == expected.shape and np.allclose(factors, expected, rtol=TOLERANCE, atol=0):
            return scaling
    raise GGUFError(
        f"{source.path} rescales its RoPE frequencies (rope_freqs.weight) in a way that is not Llama 3's with factor "
        f"{' or '.join(f'{c:g}' for c in candidates)}; use the model's safetensors checkpoint"
    )
