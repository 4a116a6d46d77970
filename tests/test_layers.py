"""The parts that target and drafter share."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from backends.base import likeliest
from backends.layers import RMSNorm


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("scale", [0.0, 1e-3, 1.0, 300.0])
@torch.inference_mode()
def test_the_norm_is_that_of_torch_in_every_precision(dtype: torch.dtype, scale: float) -> None:
    torch.manual_seed(0)
    norm = RMSNorm(24, 1e-5).to(dtype)
    norm.weight.copy_(torch.randn(24))
    x = (torch.randn(2, 3, 24) * scale).to(dtype)
    got = norm(x)
    assert got.dtype == dtype
    exact = F.rms_norm(x.double(), (24,), norm.weight.double(), 1e-5)
    torch.testing.assert_close(got, exact.to(dtype), rtol=2 * torch.finfo(dtype).eps, atol=1e-6)


def test_the_norm_in_half_precision_can_be_trained() -> None:
    norm = RMSNorm(8, 1e-5).bfloat16()
    norm(torch.randn(2, 8, dtype=torch.bfloat16)).sum().backward()
    assert norm.weight.grad is not None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_of_several_likeliest_the_first_is_taken(dtype: torch.dtype) -> None:
    logits = torch.randint(0, 5, (4, 3, 1000), generator=torch.Generator().manual_seed(0)).to(dtype)
    expected = [[row.tolist().index(row.max()) for row in rows] for rows in logits]
    assert likeliest(logits).tolist() == expected
