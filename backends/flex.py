"""Flex Attention (arXiv 2412.05496): block masks made on the device, so that only live blocks of the cache are read.

Run on CPUs only so far; the CUDA part was written without a GPU at hand.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from backends.attention import Rule
from backends.base import BackendUnavailable
from backends.compiled import CompiledEngine
from backends.drafter import Drafter
from backends.engine import Engine
from backends.kv_cache import Span
from backends.target import Target

BLOCK = 128  # rows and columns of a mask's block; what the kernels are tuned for
PREFILL_ROWS = (128, 512)  # a prefill pass is padded to one of these, so that few kernels are compiled
UNCOMPILED: Callable[..., Tensor] = flex_attention
"""A slow reference that needs no compiler; inside compiled code it is what the kernel is made from."""
LEAST_HEAD_DIM = 16  # of the CUDA kernels


def block_mask(rule: Rule, positions: Tensor, num_rows: int) -> BlockMask:
    """The mask of queries at `positions` [B, T] over `num_rows` cache rows. Nothing is read back from the device.

    T is at most one block or whole blocks. Blocks that no query sees are not read at all, and in those that every
    query sees no positions are compared.
    """

    def visible(batch: Tensor, _head: Tensor, q: Tensor, kv: Tensor) -> Tensor:
        return rule.visible(positions[batch, q], kv, positions[batch, -1] + 1)

    batch_size, num_queries = positions.shape
    tile, num_blocks = min(num_queries, BLOCK), -(-num_rows // BLOCK)
    table = rule.table(positions, num_blocks * BLOCK)
    tiles = table.reshape(batch_size, 1, num_queries // tile, tile, num_blocks, BLOCK)
    seen, whole = tiles.any(-1).any(3), tiles.all(-1).all(3)
    return BlockMask.from_kv_blocks(
        *_listed(seen & ~whole),
        *_listed(whole),
        BLOCK_SIZE=(BLOCK, BLOCK),
        mask_mod=visible,
        seq_lengths=(num_queries, num_rows),
        compute_q_blocks=False,
    )


def _listed(chosen: Tensor) -> tuple[Tensor, Tensor]:
    """chosen [..., n] bool -> how many are, and their indices before the others' [..., n]; both int32."""
    return chosen.sum(-1, dtype=torch.int32), chosen.int().argsort(dim=-1, descending=True, stable=True).int()


class FlexAttention:
    """The attention function of the flex backend: every pass is given the whole cache, and its mask says what is read.

    So neither the length of the text nor that of the cache's live part is in any shape.
    """

    whole_cache = True

    def __init__(self, block_size: int, kernel: Callable[..., Tensor] | None = None) -> None:
        """`kernel`: UNCOMPILED, or by default its compiled form."""
        self.sizes = sorted({min(block_size, BLOCK), *PREFILL_ROWS})
        self.kernel: Callable[..., Tensor] = kernel or torch.compile(UNCOMPILED, dynamic=False, fullgraph=True)

    def mask(self, rule: Rule, span: Span, dtype: torch.dtype, group: int = 1) -> BlockMask:  # noqa: ARG002
        """The block mask of a pass, its queries padded by copies of the last one."""
        positions = span.positions
        padding = next(size for size in self.sizes if size >= span.num_rows) - span.num_rows
        if padding:
            positions = torch.cat((positions, positions[:, -1:].expand(-1, padding)), 1)
        return block_mask(rule, positions, span.length)

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, mask: object) -> Tensor:
        assert isinstance(mask, BlockMask)
        num_rows = q.shape[2]
        q = F.pad(q, (0, 0, 0, mask.seq_lengths[0] - num_rows)).contiguous()
        kernel = UNCOMPILED if torch.compiler.is_compiling() else self.kernel
        return kernel(q, k, v, block_mask=mask, enable_gqa=q.shape[1] != k.shape[1])[:, :, :num_rows]


class FlexEngine(CompiledEngine):
    """A compiled engine with Flex Attention in every pass, prefill included."""

    most_layers = 1  # each layer of a graph has its own copy of the kernel, which takes long to compile

    def shapes(self) -> list[tuple[str, int, int]]:
        """As before, and the padded prefill passes that fit the context."""
        assert isinstance(self.attention, FlexAttention)
        sizes = [0, *(min(size, self.max_len) for size in self.attention.sizes)]
        prefills = [size for before, size in pairwise(sizes) if size > before]
        return super().shapes() + [("prefill", size, self.num_rows) for size in prefills]

    def _warm(self, kind: str, num_rows: int, length: int) -> None:
        if kind == "prefill":
            self.prefill(torch.zeros(num_rows, dtype=torch.long, device=self.device), length - num_rows)
        else:
            super()._warm(kind, num_rows, length)


def require_flex(target: Target, drafter: Drafter | None) -> None:
    """Raises BackendUnavailable, with the reason, where the kernels cannot run this pair on its device."""
    weight = target.model.embed_tokens.weight
    device, why = weight.device.type, None
    head_dim = min(model.config.head_dim for model in (target, drafter) if model is not None)
    if device == "cpu" and (sys.platform == "darwin" or torch.backends.cpu.get_cpu_capability() == "DEFAULT"):
        why = "Flex Attention on a CPU needs one with AVX2 and Linux"
    elif weight.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        why = f"Flex Attention knows float32, bfloat16 and float16, not {weight.dtype}"
    elif device == "cuda" and head_dim < LEAST_HEAD_DIM:
        why = f"Flex Attention needs heads of at least {LEAST_HEAD_DIM} channels on a GPU, this pair has {head_dim}"
    if why:
        raise BackendUnavailable(f"the flex backend cannot run here: {why}; use --backend eager")


def create(
    target: Target,
    drafter: Drafter | None,
    *,
    max_len: int,
    batch_size: int,
    before: Engine | None = None,
    artefacts: Path | None = None,
    widths: Sequence[int] | None = None,
) -> Engine:
    """An engine with compiled Flex Attention, on a CPU or with CUDA. Raises BackendUnavailable."""
    require_flex(target, drafter)
    attention = FlexAttention(drafter.config.block_size if drafter is not None else 1)
    return FlexEngine(
        target,
        drafter,
        attention,
        name="flex",
        max_len=max_len,
        batch_size=batch_size,
        before=before,
        artefacts=artefacts,
        widths=widths,
    )
