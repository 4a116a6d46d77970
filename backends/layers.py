"""The parts that target and drafter share: RMSNorm, rotary embedding, attention projections, SwiGLU, a layer.

Shapes: B batch, T query rows, S cache rows, H query heads, K kv heads, D head dim, C hidden size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from backends.config import ModelConfig, RopeConfig
from backends.linears import Projections

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, q [B, H, T, D], k [B, K, T, D], v [B, K, T, D]) -> [B, H, T, D]: where new K/V go and what q may see."""


HALF = (torch.bfloat16, torch.float16)


class RMSNorm(nn.Module):
    """Root-mean-square norm over the last axis with a learned weight (arXiv 1910.07467)."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """x [..., size] -> [..., size]."""
        if (
            x.device.type == "cpu"
            and x.dtype in HALF
            and not (torch.is_grad_enabled() or torch.compiler.is_compiling())
        ):
            return self._in_place(x)
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)

    def _in_place(self, x: Tensor) -> Tensor:
        """The same with fewer passes over the rows: in half precision torch has no kernel of its own on a CPU."""
        y = x.float()
        size = torch.linalg.vector_norm(y, dim=-1, keepdim=True)
        scale = size.square_().mul_(1 / x.shape[-1]).add_(self.eps).rsqrt_()
        return y.mul_(scale).mul_(self.weight).to(x.dtype)


def rope_frequencies(rope: RopeConfig, head_dim: int) -> Tensor:
    """Inverse frequencies [D / 2], fp32, with linear or llama3 rescaling (Llama 3.1 model card's formula)."""
    inv_freq = 1.0 / rope.theta ** (torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim)
    if rope.kind == "linear":
        return inv_freq / rope.factor
    if rope.kind == "default":
        return inv_freq
    wavelength = 2 * math.pi / inv_freq
    span = rope.high_freq_factor - rope.low_freq_factor
    # 0 for long waves (fully rescaled), 1 for short ones (kept), a ramp between.
    keep = ((rope.original_max_position / wavelength - rope.low_freq_factor) / span).clamp(0.0, 1.0)
    return (1 - keep) * inv_freq / rope.factor + keep * inv_freq


class Rotary:
    """Tables of cos and signed sin by position (RoPE, arXiv 2104.09864, half-split pairing of Hugging Face)."""

    def __init__(self, rope: RopeConfig, head_dim: int, max_len: int, dtype: torch.dtype, device: torch.device) -> None:
        angles = torch.outer(torch.arange(max_len).float(), rope_frequencies(rope, head_dim))
        cos, sin = angles.cos(), angles.sin()
        self.cos = torch.cat((cos, cos), -1).to(device, dtype)
        self.sin = torch.cat((-sin, sin), -1).to(device, dtype)

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """positions [B, T] -> cos and signed sin, each [B, T, 1, D]."""
        return self.cos[positions].unsqueeze(2), self.sin[positions].unsqueeze(2)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate x [B, T, heads, D] by the angles of `Rotary.at`; the sign of rotate-half sits in `sin`."""
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)


class Attention(nn.Module):
    """Grouped-query attention's projections, optional per-head q/k norms and RoPE; `attend` does the rest."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = config.num_heads, config.num_kv_heads, config.head_dim
        bias, size = config.attention_bias, config.hidden_size
        self.q_proj = nn.Linear(size, self.heads * self.head_dim, bias=bias)
        self.k_proj = nn.Linear(size, self.kv_heads * self.head_dim, bias=bias)
        self.v_proj = nn.Linear(size, self.kv_heads * self.head_dim, bias=bias)
        self.o_proj = nn.Linear(self.heads * self.head_dim, size, bias=bias)
        self.q_norm = RMSNorm(self.head_dim, config.rms_norm_eps) if config.qk_norm else None
        self.k_norm = RMSNorm(self.head_dim, config.rms_norm_eps) if config.qk_norm else None
        self.qkv = Projections(self.q_proj, self.k_proj, self.v_proj)
        self.out = Projections(self.o_proj)

    def forward(self, layer: int, x: Tensor, cos: Tensor, sin: Tensor, attend: Attend) -> Tensor:
        """x [B, T, C] -> [B, T, C]."""
        q, k, v = self.qkv(x)
        q = q.unflatten(-1, (self.heads, self.head_dim))
        q = rotate(q if self.q_norm is None else self.q_norm(q), cos, sin)
        k, v = self.rotated_kv(k, v, cos, sin)
        y = attend(layer, q.transpose(1, 2), k, v)
        return self.out(y.transpose(1, 2).flatten(2))[0]

    def rotated_kv(self, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """k, v [B, T, K * D] -> normed and rotated K, and V, each [B, K, T, D]."""
        k, v = (t.unflatten(-1, (self.kv_heads, self.head_dim)) for t in (k, v))
        k = rotate(k if self.k_norm is None else self.k_norm(k), cos, sin)
        return k.transpose(1, 2), v.transpose(1, 2)


class SwiGLU(nn.Module):
    """Gated feed-forward layer, down(silu(gate(x)) * up(x)) (arXiv 2002.05202)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)
        self.gate_up = Projections(self.gate_proj, self.up_proj)
        self.down = Projections(self.down_proj)

    def forward(self, x: Tensor) -> Tensor:
        """x [B, T, C] -> [B, T, C]."""
        gate, up = self.gate_up(x)
        return self.down(F.silu(gate) * up)[0]


class DecoderLayer(nn.Module):
    """Pre-norm transformer layer. The target's layer and the drafter's are this one; only `attend` differs."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attn = Attention(config)
        self.mlp = SwiGLU(config)
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, layer: int, x: Tensor, cos: Tensor, sin: Tensor, attend: Attend) -> Tensor:
        """x [B, T, C] -> [B, T, C]."""
        x = x + self.self_attn(layer, self.input_layernorm(x), cos, sin, attend)
        y: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return y


RunLayers = Callable[[Iterable[nn.Module], Tensor, Tensor, Tensor, Attend], Iterator[Tensor]]
"""How a pass goes through a stack of layers: `run_layers`, or a compiled form of it."""


def run_layers(layers: Iterable[nn.Module], x: Tensor, cos: Tensor, sin: Tensor, attend: Attend) -> Iterator[Tensor]:
    """x [B, T, C] through every layer in turn -> the hidden states after each."""
    for layer, module in enumerate(layers):
        x = module(layer, x, cos, sin, attend)
        yield x
