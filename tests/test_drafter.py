"""The drafter: cached context equals recomputed context, nothing leaks from later rows, windows are honoured."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from backends.attention import Rule, Sdpa
from backends.config import CheckpointError, DFlashConfig, DrafterConfig
from backends.dflash import DFlashDrafter
from backends.engine import Engine
from backends.kv_cache import Span
from tests.tiny import KINDS, VOCAB, drafter_dict, make_drafter, make_engine, make_target

IDS = torch.randint(0, VOCAB, (40,), generator=torch.Generator().manual_seed(8))


@pytest.fixture(params=KINDS)
def engine(request: pytest.FixtureRequest) -> Engine:
    return make_engine(make_target(seed=3), make_drafter(seed=4, **KINDS[request.param]), max_len=64)


def draft(engine: Engine, start: int) -> torch.Tensor:
    return engine.draft(IDS[start : start + 1], [start])[0].clone()


def naive_block(engine: Engine, start: int) -> torch.Tensor:
    """Block logits from the definition (fact sheet 1.1): no cache, one row at a time, masks from positions."""
    drafter, target = engine.drafter, engine.target
    assert isinstance(drafter, DFlashDrafter)
    hidden: dict[int, torch.Tensor] = {}
    handles = [
        layer.register_forward_hook(lambda _m, _a, out, i=i: hidden.__setitem__(i, out))
        for i, layer in enumerate(target.model.layers)
    ]
    make_engine(target).prefill(IDS[:start], 0)
    for handle in handles:
        handle.remove()
    taps = torch.cat([hidden[i] for i in drafter.config.target_layer_ids], -1)
    feature = drafter.hidden_norm(drafter.fc(taps))
    x = target.embed(drafter.block_ids(IDS[start : start + 1])) * drafter.config.input_embedding_scale
    size = drafter.config.block_size
    positions = torch.arange(start + size)
    cos, sin = engine.drafter_rope.at(positions[None])
    for index, layer in enumerate(drafter.layers):
        normed, attention = layer.input_layernorm(x), layer.self_attn
        rows = torch.cat((feature, normed), 1)
        k, v = attention.rotated_kv(attention.k_proj(rows), attention.v_proj(rows), cos, sin)
        q_at, kv_at = positions[-size:, None], positions[None, :]
        seen = torch.ones(size, start + size, dtype=torch.bool)
        if drafter.config.causal(index):
            seen &= kv_at <= q_at
        if window := drafter.config.window(index):
            seen &= (q_at - kv_at).abs() < window

        def attend(_layer: int, q: Any, _k: Any, _v: Any, k: Any = k, v: Any = v, seen: Any = seen) -> torch.Tensor:
            group = q.shape[1] // k.shape[1]
            scores = q @ k.repeat_interleave(group, 1).mT / q.shape[-1] ** 0.5
            return scores.masked_fill(~seen, -torch.inf).softmax(-1) @ v.repeat_interleave(group, 1)

        x = x + attention(index, normed, cos[:, -size:], sin[:, -size:], attend)
        x = x + layer.mlp(layer.post_attention_layernorm(x))
    return drafter.scale_logits(target.lm_head(drafter.norm(x)[:, 1:]))[0]


@torch.no_grad()
@pytest.mark.parametrize("start", [1, 5, 20, 33])
def test_cached_block_equals_the_definition(engine: Engine, start: int) -> None:
    expected = naive_block(engine, start)
    engine.prefill(IDS[:start], 0)
    torch.testing.assert_close(draft(engine, start), expected, atol=1e-4, rtol=1e-4)


def test_context_written_by_verify_equals_context_written_by_prefill(engine: Engine) -> None:
    engine.prefill(IDS[:20], 0)
    at_once = draft(engine, 20)
    engine.prefill(IDS[:9], 0)
    block = IDS[9:15].clone()
    block[3:] = (block[3:] + 1) % VOCAB  # three rejected rows, whose stale context must be overwritten
    draft(engine, 9)
    engine.verify(block[None], [9])
    for at in (12, 14):
        draft(engine, at)
        engine.verify(IDS[None, at : at + 6], [at])
    torch.testing.assert_close(draft(engine, 20), at_once, atol=1e-5, rtol=1e-5)


def test_rows_at_and_after_the_anchor_do_not_leak(engine: Engine) -> None:
    engine.prefill(IDS[:15], 0)
    clean = draft(engine, 15)
    engine.prefill(IDS, 0)  # writes context of the anchor's own row and of everything after it
    torch.testing.assert_close(draft(engine, 15), clean, atol=1e-5, rtol=1e-5)


def test_rows_of_a_batch_do_not_see_each_other() -> None:
    target, drafter = make_target(seed=3), make_drafter(seed=4)
    both, alone = make_engine(target, drafter, batch_size=2), make_engine(target, drafter)
    both.prefill(IDS[:30], 0, 0)
    both.prefill(IDS[5:12], 0, 1)
    got = both.draft(torch.stack((IDS[30], IDS[12])), [30, 7]).clone()
    for row, (ids, anchor) in enumerate(((IDS[:30], IDS[30]), (IDS[5:12], IDS[12]))):
        alone.prefill(ids, 0)
        torch.testing.assert_close(got[row], alone.draft(anchor[None], [len(ids)])[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("rule", [Rule(True), Rule(False), Rule(True, 4), Rule(False, 4), Rule(True, 100)], ids=str)
@pytest.mark.parametrize("start", [[0], [6], [2, 9]], ids=str)
@pytest.mark.parametrize("num_rows", [1, 5])
def test_masks_follow_the_rule(rule: Rule, start: list[int], num_rows: int) -> None:
    """Whatever short cut a mask takes, each query sees exactly the rows the rule names."""
    span = Span(start, num_rows, torch.device("cpu"))
    mask = Sdpa().mask(rule, span, torch.float32)
    values = torch.eye(span.length).expand(len(start), 1, -1, -1)  # the output is then the attention weights
    zeros = torch.zeros(len(start), 1, num_rows, 8)
    weights = Sdpa()(zeros, torch.zeros(len(start), 1, span.length, 8), values, mask)
    for row, first in enumerate(start):
        for k in range(num_rows):
            q = first + k
            seen = {kv for kv in range(first + num_rows) if kv <= q or not rule.causal}
            seen = {kv for kv in seen if rule.window is None or abs(q - kv) < rule.window}
            assert set(weights[row, 0, k].nonzero().flatten().tolist()) == seen


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dflash_config": {"target_layer_ids": [1]}}, "no 'mask_token_id'"),
        ({"dflash_config": {"mask_token_id": 3}}, "no 'target_layer_ids'"),
        ({"block_size": None}, "no 'block_size'"),
        ({"num_target_layers": None}, "no 'num_target_layers'"),
        ({"layer_types": ["sliding_attention"] * 2}, "sliding_window is None"),
        ({"layer_types": ["full_attention"]}, "expected 2 of"),
        ({"speculators_model_type": "dflash"}, r"speculators library \(dflash\)"),
        ({"conv_kernel_size": 2}, "successor of DFlash"),
        ({"selector_rank": 256}, "successor of DFlash"),
        ({"markov_rank": 256}, "successor of DFlash"),
        ({"hidden_act": "gelu_pytorch_tanh"}, "hidden_act to 'gelu_pytorch_tanh'"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "'yarn'; supported are"),
    ],
)
def test_what_a_drafter_must_say_is_never_guessed(change: dict[str, Any], words: str) -> None:
    with pytest.raises(CheckpointError, match=words):
        DrafterConfig.from_dict(drafter_dict(**change))


def test_layer_types_that_are_left_out_follow_the_window_switch() -> None:
    config = drafter_dict(use_sliding_window=True, max_window_layers=1, sliding_window=7)
    del config["layer_types"]
    assert DFlashConfig.from_dict(config).layer_types == ("full_attention", "sliding_attention")
    config["use_sliding_window"] = False
    assert DFlashConfig.from_dict(config).layer_types == ("full_attention", "full_attention")


def test_a_head_size_that_is_left_out_is_qwen3s() -> None:
    config = drafter_dict()
    del config["head_dim"]
    assert DrafterConfig.from_dict(config).head_dim == 128


def test_a_target_is_not_a_drafter() -> None:
    config = drafter_dict()
    del config["dflash_config"]
    with pytest.raises(CheckpointError, match="not a DFlash drafter"):
        DrafterConfig.from_dict(config)
