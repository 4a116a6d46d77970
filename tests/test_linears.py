"""Fusing changes where weights lie, never what is computed."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from backends.linears import Projections, can_pack, fuse_for_inference
from tests.tiny import make_drafter, make_target


def linears(bias: bool, dtype: torch.dtype = torch.float32) -> list[nn.Linear]:
    torch.manual_seed(0)
    return [nn.Linear(32, size, bias=bias, dtype=dtype) for size in (48, 16, 16)]


@pytest.mark.parametrize("bias", [False, True])
@torch.no_grad()
def test_fused_equals_apart(bias: bool) -> None:
    parts = linears(bias)
    group, tail = Projections(*parts), Projections(*parts[1:])
    x = torch.randn(2, 3, 32)
    apart, apart_tail = group(x), tail(x)
    group.fuse()
    tail.fuse()
    for got, expected in zip((*group(x), *tail(x)), (*apart, *apart_tail), strict=True):
        torch.testing.assert_close(got, expected)


def test_fusing_keeps_one_copy() -> None:
    parts = linears(False)
    group, tail = Projections(*parts), Projections(*parts[1:])
    group.fuse()
    tail.fuse()
    assert group.weight is not None
    assert tail.weight is not None
    owner = group.weight.untyped_storage().data_ptr()
    assert {w.untyped_storage().data_ptr() for w in (tail.weight, *(p.weight for p in parts))} == {owner}


@pytest.mark.skipif(not can_pack(torch.zeros(1, dtype=torch.bfloat16)), reason="no packed bf16 kernels on this CPU")
@pytest.mark.parametrize("rows", [1, 8, 300])
@torch.no_grad()
def test_packed_equals_plain_bfloat16(rows: int) -> None:
    parts = linears(False, torch.bfloat16)
    group = Projections(*parts)
    x = torch.randn(1, rows, 32, dtype=torch.bfloat16)
    plain = group(x)
    group.fuse()
    assert group.packed
    for got, expected in zip(group(x), plain, strict=True):
        torch.testing.assert_close(got, expected, atol=2e-2, rtol=2e-2)


@pytest.mark.skipif(not can_pack(torch.zeros(1, dtype=torch.bfloat16)), reason="no packed bf16 kernels on this CPU")
def test_packing_keeps_the_embedding_and_drops_the_rest() -> None:
    target = make_target("llama").bfloat16()  # tied
    embedding = target.model.embed_tokens.weight.clone()
    fuse_for_inference(target)
    assert torch.equal(target.model.embed_tokens.weight, embedding)
    assert target.lm_head.weight.numel() == 0
    assert all(p.numel() == 0 for n, p in target.named_parameters() if "proj" in n)


def test_a_drafter_fuses_its_context_projections() -> None:
    drafter = make_drafter()
    fuse_for_inference(drafter)
    assert all(each.weight is not None for each in (*drafter.context_projections, drafter.fuse_taps))
    for attention, context in zip(drafter.attentions, drafter.context_projections, strict=True):
        places = [
            each.weight.untyped_storage().data_ptr() for each in (attention.qkv, context) if each.weight is not None
        ]
        assert places[0] == places[1]  # one copy of K and V
