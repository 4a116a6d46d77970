"""Attention of a training row: one rule (`masks.sees`), applied by dense masks or by Flex Attention."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection
from typing import Protocol

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from backends.attention import Rule
from backends.dflash import DFlashDrafter
from dflash_cli.train.blocks import Row, make_row
from dflash_cli.train.documents import Document
from dflash_cli.train.masks import Places, block_places, context_places, dense_mask, sees

Pair = tuple[Tensor, Tensor]
"""K and V, each [1, K, n, D]."""


class RowAttention(Protocol):
    """Attention of the layers of a row's pass. Made once a row."""

    def __call__(self, rule: Rule, q: Tensor, context: Pair, own: Pair) -> Tensor:
        """q [1, H, A * b, D], K/V of the context's S rows and of the blocks' A * b -> [1, H, A * b, D]."""


class ByDocument:
    """Dense masks, one document after the other: what grows with the square is a document, not the row."""

    def __init__(self, rules: Collection[Rule], row: Row, dtype: torch.dtype) -> None:
        block = row.inputs.shape[1]
        self.lengths, counts = zip(*row.sizes, strict=True)
        self.slots = [count * block for count in counts]
        parts = list(zip(block_places(row).split(self.slots), context_places(row).split(self.lengths), strict=True))
        self.masks = {rule: [dense_mask(rule, *part, block, dtype) for part in parts] for rule in set(rules)}

    def __call__(self, rule: Rule, q: Tensor, context: Pair, own: Pair) -> Tensor:
        """See RowAttention."""
        parts = [each.split(self.slots, 2) for each in (q, *own)]
        contexts = [each.split(list(self.lengths), 2) for each in context]
        seen = zip(*parts, *contexts, self.masks[rule], strict=True)
        return torch.cat(
            [
                masked(q, torch.cat((context_k, k), 2), torch.cat((context_v, v), 2), mask)
                for q, k, v, context_k, context_v, mask in seen
            ],
            2,
        )


def masked(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """q [1, H, T, D], k and v [1, K, S, D], mask [1, 1, T, S] -> [1, H, T, D], with a gradient."""
    group = q.shape[1] // k.shape[1]
    if group > 1:  # fused kernels take no mask with grouped heads
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    return F.scaled_dot_product_attention(q, k, v, mask)


class Flex:
    """Flex Attention (arXiv 2412.05496) over the whole row: blocks of the mask that nobody sees are not computed."""

    def __init__(
        self, rules: Collection[Rule], row: Row, dtype: torch.dtype, kernel: Callable[..., Tensor] | None = None
    ) -> None:
        """`kernel`: by default the compiled one."""
        del dtype
        self.kernel = kernel or compiled_flex()
        self.masks = {rule: flex_mask(rule, row) for rule in set(rules)}

    def __call__(self, rule: Rule, q: Tensor, context: Pair, own: Pair) -> Tensor:
        """See RowAttention."""
        k, v = (torch.cat(pair, 2) for pair in zip(context, own, strict=True))
        return self.kernel(q, k, v, block_mask=self.masks[rule], enable_gqa=q.shape[1] != k.shape[1])


def flex_mask(rule: Rule, row: Row) -> BlockMask:
    """The row's mask, made on its device."""
    q, context = block_places(row), context_places(row)
    kv = Places(*(torch.cat((getattr(context, name), getattr(q, name))) for name in vars(q)))
    block = row.inputs.shape[1]

    def visible(_batch: Tensor, _head: Tensor, asking: Tensor, asked: Tensor) -> Tensor:
        return sees(rule, _at(q, asking), _at(kv, asked), block)

    return create_block_mask(visible, None, None, len(q.position), len(kv.position), device=row.ids.device)


def _at(places: Places, index: Tensor) -> Places:
    return Places(*(each[index] for each in vars(places).values()))


TRIED_ROWS = 100
_compiled: list[Callable[..., Tensor]] = []


def compiled_flex() -> Callable[..., Tensor]:
    """The kernel for any length, compiled on first use and kept."""
    if not _compiled:
        _compiled.append(torch.compile(flex_attention, dynamic=True))
    return _compiled[0]


def attention_of(drafter: DFlashDrafter, like: Tensor, tell: Callable[[str], None]) -> type[ByDocument] | type[Flex]:
    """What suits the device and precision of `like`: Flex where it has a backward pass and can be compiled, else dense
    masks. `tell` says where it cannot."""
    if like.device.type != "cuda":
        return ByDocument
    try:
        try_flex(drafter, like)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # whatever a compiler or a driver finds missing
        lines = (line.strip() for line in str(error).splitlines())
        why = next(filter(None, lines), type(error).__name__)
        tell(f"warning: Flex Attention cannot be compiled here ({why[:200]}); dense masks take more time and memory")
        return ByDocument
    return Flex


def try_flex(drafter: DFlashDrafter, like: Tensor) -> None:
    """Both passes over a small row with this drafter's heads: what is compiled serves all later rows."""
    config = drafter.config
    document = Document(array("i", range(2 * TRIED_ROWS)), TRIED_ROWS, "")
    row = make_row([document], [torch.arange(TRIED_ROWS, TRIED_ROWS + 8)], config.block_size, 0).to(like.device)

    def some(heads: int, rows: int) -> Tensor:
        return like.new_zeros(1, heads, rows, config.head_dim).requires_grad_()

    rows = row.inputs.numel()
    q, own, context = (
        some(config.num_heads, rows),
        some(config.num_kv_heads, rows),
        some(config.num_kv_heads, len(row.ids)),
    )
    attention = Flex(drafter.rules, row, like.dtype)
    for rule in set(drafter.rules):
        attention(rule, q, (context, context), (own, own)).sum().backward()
