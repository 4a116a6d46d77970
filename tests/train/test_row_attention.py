"""Which attention a row gets: Flex where it can be compiled, and elsewhere dense masks with one line that says why."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention.flex_attention import flex_attention

from dflash_cli.train import row_attention
from dflash_cli.train.row_attention import ByDocument, Flex, attention_of, try_flex
from tests.tiny import KINDS, make_drafter

ON_GPU: Any = SimpleNamespace(device=torch.device("cuda"))  # as much of a tensor as is looked at


def fail_with(error: Exception) -> Any:
    def fail(*_: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (
            RuntimeError("\n Cannot find a working triton installation.\nMore"),
            "Cannot find a working triton installation.",
        ),
        (AssertionError(), "AssertionError"),
        (OSError("x" * 900), "x" * 200),
    ],
)
def test_dense_masks_where_it_cannot_be_compiled(monkeypatch: pytest.MonkeyPatch, error: Exception, why: str) -> None:
    told: list[str] = []
    monkeypatch.setattr(row_attention, "try_flex", fail_with(error))
    assert attention_of(make_drafter(), ON_GPU, told.append) is ByDocument
    assert told == [f"warning: Flex Attention cannot be compiled here ({why}); dense masks take more time and memory"]


def test_flex_where_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(row_attention, "try_flex", lambda *_: None)
    assert attention_of(make_drafter(), ON_GPU, told.append) is Flex
    monkeypatch.setattr(row_attention, "try_flex", fail_with(AssertionError()))
    assert attention_of(make_drafter(), torch.zeros(1), told.append) is ByDocument  # as always on a CPU
    assert told == []


def test_a_full_gpu_is_no_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dense masks would take more memory still."""
    monkeypatch.setattr(row_attention, "try_flex", fail_with(torch.OutOfMemoryError("full")))
    with pytest.raises(torch.OutOfMemoryError):
        attention_of(make_drafter(), ON_GPU, print)


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_tried_with_the_drafters_heads_and_rules(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    asked: list[Any] = []

    def kernel(q: Tensor, k: Tensor, v: Tensor, *, block_mask: Any, enable_gqa: bool) -> Tensor:
        assert block_mask.shape[-2:] == (q.shape[2], k.shape[2])
        asked.append((q.shape[1], k.shape[1], q.shape[3], q.dtype))
        return functional.scaled_dot_product_attention(q, k, v, enable_gqa=enable_gqa)

    monkeypatch.setattr(row_attention, "compiled_flex", lambda: kernel)
    drafter = make_drafter(**KINDS[kind])
    try_flex(drafter, torch.zeros(1, dtype=torch.float64))
    heads = (drafter.config.num_heads, drafter.config.num_kv_heads, drafter.config.head_dim, torch.float64)
    assert asked == [heads] * len(set(drafter.rules))


def test_a_missing_backward_pass_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Flex Attention has none on a CPU."""
    monkeypatch.setattr(row_attention, "compiled_flex", lambda: flex_attention)
    with pytest.raises(NotImplementedError, match="backward"):
        try_flex(make_drafter(), torch.zeros(1))
