"""Masks, folded heads and cache writes: every short cut sees what the rule says, and junk stays junk."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from backends.attention import AFTER, AFTER_ROWS, Rule, Sdpa
from backends.kv_cache import FixedSpan, Span, StaticCache

CPU = torch.device("cpu")
RULES = [Rule(True), Rule(False), Rule(True, 4), Rule(False, 4)]


def by_definition(q: Tensor, k: Tensor, v: Tensor, rule: Rule, start: list[int]) -> Tensor:
    """Attention one query at a time."""
    out, group = torch.zeros_like(q), q.shape[1] // k.shape[1]
    end = [first + q.shape[2] for first in start]
    for row, first in enumerate(start):
        for head in range(q.shape[1]):
            for t in range(q.shape[2]):
                at = first + t
                seen = [s for s in range(end[row]) if s <= at or not rule.causal]
                seen = [s for s in seen if rule.window is None or abs(at - s) < rule.window]
                keys, values = k[row, head // group, seen], v[row, head // group, seen]
                out[row, head, t] = (q[row, head, t] @ keys.T / q.shape[3] ** 0.5).softmax(-1) @ values
    return out


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("start", [[0], [7], [7, 7], [9, 2]], ids=str)
@pytest.mark.parametrize("num_rows", [1, 5])
@pytest.mark.parametrize("group", [1, 3])
@pytest.mark.parametrize("length", ["live", "more"])
def test_folded_heads_equal_the_definition(
    rule: Rule, start: list[int], num_rows: int, group: int, length: str
) -> None:
    torch.manual_seed(0)
    cache_rows = 20
    span = Span(start, num_rows, CPU, length=cache_rows if length == "more" else None)
    q = torch.randn(len(start), 2 * group, num_rows, 8)
    k, v = torch.randn(2, len(start), 2, span.length, 8)
    got = Sdpa()(q, k, v, Sdpa().mask(rule, span, torch.float32, group))
    torch.testing.assert_close(got, by_definition(q, k, v, rule, start))


@pytest.mark.parametrize("group", [1, 3])
@pytest.mark.parametrize("start", [[1], [100], [30, 30]], ids=str)
def test_many_rows_after_others_need_no_mask(start: list[int], group: int) -> None:
    torch.manual_seed(0)
    span = Span(start, AFTER_ROWS, CPU)
    q = torch.randn(len(start), 2 * group, AFTER_ROWS, 8)
    k, v = torch.randn(2, len(start), 2, span.length, 8)
    assert Sdpa().mask(Rule(True), span, torch.float32, group) == AFTER
    torch.testing.assert_close(Sdpa()(q, k, v, AFTER), by_definition(q, k, v, Rule(True), start))


@pytest.mark.parametrize(
    ("rule", "start", "num_rows", "length"),
    [
        (Rule(True), [9], AFTER_ROWS - 1, None),
        (Rule(True, 80), [90], AFTER_ROWS, None),
        (Rule(True), [9, 2], AFTER_ROWS, None),
        (Rule(True), [9], AFTER_ROWS, 200),
    ],
    ids=str,
)
def test_all_others_have_one(rule: Rule, start: list[int], num_rows: int, length: int | None) -> None:
    mask = Sdpa().mask(rule, Span(start, num_rows, CPU, length=length), torch.float32)
    assert isinstance(mask, Tensor)


@pytest.mark.parametrize("start", [[4, 4], [4, 9]], ids=str)
def test_spans_of_the_host_and_of_the_device_write_the_same_rows(start: list[int]) -> None:
    rows = torch.randn(2, 2, 3, 4)
    caches = [StaticCache((2, 2, 16, 4), 1, torch.float32, CPU) for _ in range(2)]
    caches[0].write(0, Span(start, 3, CPU), rows, -rows)
    caches[1].write(0, FixedSpan(torch.tensor(start), 3, 16), rows, -rows)
    assert torch.equal(caches[0].k[0], caches[1].k[0])
    assert torch.equal(caches[0].v[0], caches[1].v[0])
    assert torch.equal(caches[0].k[0][1, :, start[1] : start[1] + 3], rows[1])


def test_an_overflow_in_half_precision_does_not_reach_other_rows() -> None:
    cache = StaticCache((1, 1, 8, 4), 1, torch.float16, CPU)
    cache.write(0, Span([0], 3, CPU), *torch.ones(2, 1, 1, 3, 4, dtype=torch.float16))
    junk = torch.tensor([torch.inf, -torch.inf, torch.nan, 1.0], dtype=torch.float16).expand(1, 1, 2, 4)
    cache.write(0, Span([3], 2, CPU), junk, junk)
    span = Span([2], 1, CPU, length=8)
    q = torch.ones(1, 1, 1, 4, dtype=torch.float16)
    got = Sdpa()(q, *cache.view(0, span), Sdpa().mask(Rule(True), span, torch.float16))
    assert torch.equal(got, torch.ones_like(q))


def test_rows_are_put_back_whatever_happens() -> None:
    cache = StaticCache((1, 1, 8, 4), 2, torch.float32, CPU)
    for layer in range(2):
        cache.write(layer, Span([0], 8, CPU), *torch.randn(2, 1, 1, 8, 4))
    before = [buffer.clone() for buffer in (*cache.k, *cache.v)]

    def interrupted() -> None:
        with cache.kept(2, 5):
            cache.write(1, Span([2], 3, CPU), *torch.zeros(2, 1, 1, 3, 4))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert all(torch.equal(*pair) for pair in zip(before, (*cache.k, *cache.v), strict=True))
