"""The autoregressive drafter: cached rows equal recomputed ones, each draft follows the one before, nothing leaks."""

from __future__ import annotations

import pytest
import torch

from backends import create_backend
from backends.eagle import EagleDrafter
from backends.engine import Engine
from dflash_cli.request import Request
from dflash_cli.sampling import SamplingParams
from tests.tiny import VOCAB, make_eagle, make_engine, make_target, said_by

TARGET = make_target(seed=3)
DRAFTER = make_eagle(seed=4)
BLOCK = DRAFTER.config.block_size
IDS = torch.randint(0, VOCAB, (40,), generator=torch.Generator().manual_seed(8))


def engine(max_len: int = 64, batch_size: int = 1) -> Engine:
    return make_engine(TARGET, DRAFTER, max_len=max_len, batch_size=batch_size)


def draft(each: Engine, start: int) -> torch.Tensor:
    return each.draft(IDS[start : start + 1], [start])[0].clone()


def taps_of(ids: torch.Tensor) -> torch.Tensor:
    """[1, n, taps * C] from Hugging Face's point of view: hidden states after the tapped layers."""
    hidden: dict[int, torch.Tensor] = {}
    handles = [
        layer.register_forward_hook(lambda _m, _a, out, i=i: hidden.__setitem__(i, out))
        for i, layer in enumerate(TARGET.model.layers)
    ]
    make_engine(TARGET).prefill(ids, 0)
    for handle in handles:
        handle.remove()
    return torch.cat([hidden[i] for i in DRAFTER.config.target_layer_ids], -1)


def naive_chain(drafter: EagleDrafter, start: int) -> torch.Tensor:
    """A chain from the definition: every row recomputed for every draft, no cache, one layer written out."""
    features = drafter.fc(taps_of(IDS[:start]))
    layer, attention = drafter.midlayer, drafter.midlayer.self_attn
    before = torch.cat((torch.zeros_like(features[:, :1]), features), 1)  # row p has the feature of row p - 1
    ids, logits = IDS[: start + 1], []
    for _ in range(BLOCK - 1):
        rows = torch.cat((layer.input_layernorm(TARGET.embed(ids[None])), layer.hidden_norm(before)), -1)
        cos, sin = engine().drafter_rope.at(torch.arange(len(ids))[None])
        q = _rotated(attention.q_proj(rows).unflatten(-1, (attention.heads, -1)), cos, sin)
        k = _rotated(attention.k_proj(rows).unflatten(-1, (attention.kv_heads, -1)), cos, sin)
        v = attention.v_proj(rows).unflatten(-1, (attention.kv_heads, -1)).transpose(1, 2)
        group = attention.heads // attention.kv_heads
        scores = q[:, :, -1:] @ k.repeat_interleave(group, 1).mT / q.shape[-1] ** 0.5
        y = (scores.softmax(-1) @ v.repeat_interleave(group, 1)).transpose(1, 2).flatten(2)
        x = before[:, -1:] + attention.o_proj(y)
        x = x + layer.mlp(layer.post_attention_layernorm(x))
        logits.append(TARGET.lm_head(drafter.norm(x))[0, 0])
        ids = torch.cat((ids, logits[-1].argmax()[None]))
        before = torch.cat((before, x), 1)
    return torch.stack(logits)


def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    return (x * cos + torch.cat((x[..., half:], x[..., :half]), -1) * sin).transpose(1, 2)


@torch.no_grad()
@pytest.mark.parametrize("start", [1, 2, 9, 33])
def test_a_cached_chain_equals_the_definition(start: int) -> None:
    expected = naive_chain(DRAFTER, start)
    each = engine()
    each.prefill(IDS[:start], 0)
    torch.testing.assert_close(draft(each, start), expected, atol=1e-4, rtol=1e-4)
    assert len(expected.argmax(-1).unique()) > 1 or start == 9  # with these weights, that one repeats itself


def test_rows_written_by_verify_equal_rows_written_by_prefill() -> None:
    each = engine()
    each.prefill(IDS[:20], 0)
    at_once = draft(each, 20)
    each.prefill(IDS[:9], 0)
    block = IDS[9:15].clone()
    block[3:] = (block[3:] + 1) % VOCAB  # three rejected rows, whose stale rows must be overwritten
    draft(each, 9)
    each.verify(block[None], [9])
    for at in (12, 14):
        draft(each, at)
        each.verify(IDS[None, at : at + 6], [at])
    torch.testing.assert_close(draft(each, 20), at_once, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("shared", [1, 7, 14])
def test_a_prefix_that_is_there_already_needs_no_prefill(shared: int) -> None:
    each = engine()
    each.prefill(IDS[:15], 0)
    clean = draft(each, 15)
    each.prefill(IDS[20:], shared)
    each.prefill(IDS[shared:15], shared)
    torch.testing.assert_close(draft(each, 15), clean, atol=1e-5, rtol=1e-5)


def test_plain_decoding_lets_rows_wait() -> None:
    each, other = engine(), engine()
    assert each._defers
    other._defers = False
    for one in (each, other):
        one.prefill(IDS[:3], 0)
        for at in range(3, 9):
            one.verify(IDS[None, at : at + 1], [at])
    assert len(each._waiting) == 6
    torch.testing.assert_close(draft(each, 9), draft(other, 9), atol=1e-5, rtol=1e-5)


def test_rows_at_and_after_the_anchor_do_not_leak() -> None:
    each = engine()
    each.prefill(IDS[:15], 0)
    clean = draft(each, 15)
    each.prefill(IDS, 0)
    torch.testing.assert_close(draft(each, 15), clean, atol=1e-5, rtol=1e-5)


def test_rows_of_a_batch_do_not_see_each_other() -> None:
    both, alone = engine(batch_size=2), engine()
    both.prefill(IDS[:30], 0, 0)
    both.prefill(IDS[5:12], 0, 1)
    got = both.draft(torch.stack((IDS[30], IDS[12])), [30, 7]).clone()
    for row, (ids, anchor) in enumerate(((IDS[:30], IDS[30]), (IDS[5:12], IDS[12]))):
        alone.prefill(ids, 0)
        torch.testing.assert_close(got[row], alone.draft(anchor[None], [len(ids)])[0], atol=1e-5, rtol=1e-5)


def test_a_larger_cache_holds_what_the_smaller_one_did() -> None:
    each = engine()
    each.prefill(IDS[:15], 0)
    clean = draft(each, 15)
    assert each.drafter_cache is not None
    each.drafter_cache = each.drafter_cache.resized((1, 2, 200, 16))
    larger = create_backend("eager", TARGET, DRAFTER, max_len=64, cache_from=each)
    torch.testing.assert_close(larger.draft(IDS[15:16], [15])[0], clean)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_what_is_said_is_the_targets_own(temperature: float) -> None:
    request = Request(IDS[:5].tolist(), SamplingParams(temperature=temperature, seed=3), max_new_tokens=40)
    said = said_by(TARGET, DRAFTER, request)
    assert said == said_by(TARGET, None, request)
    assert len(said) >= 39
