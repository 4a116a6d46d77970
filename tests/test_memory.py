"""The memory estimate against real modules and caches, free memory, and the advice where it does not fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from backends.config import DrafterConfig, TargetConfig
from backends.drafter import Drafter
from dflash_cli import memory
from dflash_cli.errors import DFlashError
from dflash_cli.memory import (
    NotEnoughMemory,
    check_fits,
    drafter_parameters,
    plan_memory,
    target_parameters,
)
from tests.tiny import NO_CONTEXT, drafter_dict, make_drafter, make_eagle, make_engine, make_target, target_dict

GB = 10**9
LARGE: dict[str, Any] = {
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
}
LARGE |= {"num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936}


def large_plan(dtype_bytes: int = 2, context: int = 8192, drafter: bool = False) -> memory.MemoryPlan:
    """An 8B target, as Qwen3-8B, with a drafter of five layers."""
    shape = {
        **LARGE,
        "num_hidden_layers": 5,
        "dflash_config": {"mask_token_id": 1, "target_layer_ids": [1, 2, 3, 4, 5]},
    }
    shape["layer_types"] = ["full_attention"] * 5
    draft = DrafterConfig.from_dict(drafter_dict(**shape)) if drafter else None
    target = TargetConfig.from_dict(target_dict(**LARGE))
    return plan_memory(target, draft, dtype_bytes=dtype_bytes, context=context, device="cuda")


@pytest.mark.parametrize("kind", ["qwen3", "llama"])
@pytest.mark.parametrize("bias", [False, True])
def test_parameters_are_those_of_the_module(kind: str, bias: bool) -> None:
    target = make_target(kind, attention_bias=bias)
    assert target_parameters(target.config) == sum(p.numel() for p in target.parameters())
    for drafter in (make_drafter(), make_drafter(**NO_CONTEXT), make_eagle()):
        assert drafter_parameters(drafter.config) == sum(p.numel() for p in drafter.parameters())


@pytest.mark.parametrize("drafter", [make_drafter(), make_eagle()])
def test_caches_are_those_of_the_engine(drafter: Drafter) -> None:
    engine = make_engine(make_target(), drafter, max_len=64, batch_size=3)
    plan = plan_memory(engine.target.config, drafter.config, dtype_bytes=4, context=64, batch=3)
    for cache, planned in ((engine.target_cache, plan.kv_target), (engine.drafter_cache, plan.kv_drafter)):
        assert cache is not None
        assert planned == sum(buffer.nbytes for buffer in cache.buffers)


def test_a_known_model_comes_out_as_it_is() -> None:
    plan = large_plan()
    assert 16.3 * GB < plan.weights < 16.5 * GB  # Qwen3-8B: 8.19 B parameters
    assert plan.drafter == plan.kv_drafter == 0
    assert plan.total == plan.weights + plan.kv_target + plan.workspace
    assert large_plan(drafter=True).drafter > 2 * GB


def test_more_of_anything_takes_more() -> None:
    config = TargetConfig.from_dict(target_dict())
    base = plan_memory(config, None, dtype_bytes=2, context=1024)
    assert plan_memory(config, None, dtype_bytes=4, context=1024).weights == 2 * base.weights
    assert plan_memory(config, None, dtype_bytes=2, context=1025).total == base.total + base.per_position
    assert plan_memory(config, None, dtype_bytes=2, context=1024, batch=4).kv_target == 4 * base.kv_target


def test_a_tied_head_is_copied_for_bf16_on_the_cpu() -> None:
    config = TargetConfig.from_dict(target_dict("llama"))
    on = {
        device: plan_memory(config, None, dtype_bytes=2, context=64, device=device).weights for device in ("cpu", "mps")
    }
    assert on["cpu"] - on["mps"] == config.vocab_size * config.hidden_size * 2


@pytest.mark.parametrize("kind", ["qwen3", "llama"])
def test_quantised_weights_take_less_and_are_converted_one_by_one(kind: str) -> None:
    config = TargetConfig.from_dict(target_dict(kind, **LARGE))
    plans = [
        plan_memory(config, None, dtype_bytes=2, context=64, converted=(True, False), quantize=method)
        for method in ("none", "int8", "int4")
    ]
    embedding = config.vocab_size * config.hidden_size * 2
    whole, int8, int4 = (plan.weights - embedding for plan in plans)
    assert 0.5 < int8 / whole < 0.51
    assert 0.31 < int4 / whole < 0.36  # the head is kept in int8
    assert [plan.loading > 0 for plan in plans] == [True, False, False]


def test_what_fits_or_is_unknown_passes() -> None:
    plan = large_plan()
    check_fits(plan, plan.total)
    check_fits(plan, None)
    with pytest.raises(DFlashError):
        check_fits(plan, plan.total - 1)


def test_the_advised_context_is_the_largest_that_fits() -> None:
    free = 17 * GB
    largest = large_plan().largest_context(free)
    check_fits(large_plan(context=largest), free)
    with pytest.raises(DFlashError):
        check_fits(large_plan(context=largest + 1), free)
    with pytest.raises(DFlashError, match=rf"--context {largest}, or a smaller model") as caught:
        check_fits(large_plan(), free, device="cuda")
    text = str(caught.value)
    assert text.startswith("not enough memory on cuda: 17.9 GB needed (weights 16.4 GB, drafter 0 MB, KV cache 1.2 GB")
    assert "17.0 GB free" in text


def test_advice_is_only_what_helps() -> None:
    def advice(plan: memory.MemoryPlan, free: int) -> str:
        with pytest.raises(DFlashError) as caught:
            check_fits(plan, free)
        return str(caught.value).partition(" free. ")[2]

    assert advice(large_plan(), 4 * GB) == "Use a smaller model (`dflash models` lists some)"
    assert "--dtype bfloat16" in advice(large_plan(dtype_bytes=4), 20 * GB)
    assert "--dtype" not in advice(large_plan(dtype_bytes=4), 10 * GB)
    with_drafter = large_plan(drafter=True)
    assert "--draft none" in advice(with_drafter, with_drafter.total - GB)
    assert "--draft" not in advice(with_drafter, with_drafter.weights - GB)
    tiny_context = replace(with_drafter, context=100)
    assert "--context" not in advice(tiny_context, with_drafter.weights)


def advised(plan: memory.MemoryPlan, free: int) -> list[str]:
    with pytest.raises(NotEnoughMemory) as caught:
        check_fits(plan, free)
    assert (caught.value.needed, caught.value.free) == (plan.needed, free)
    return str(caught.value).partition(" free. Use ")[2].split(", or ")


def batch_plan(batch: int, context: int = 8192) -> memory.MemoryPlan:
    return plan_memory(TargetConfig.from_dict(target_dict(**LARGE)), None, dtype_bytes=2, context=context, batch=batch)


def test_a_smaller_batch_is_advised_where_that_is_the_cause() -> None:
    free = batch_plan(5).total
    assert batch_plan(16).largest_batch(free) == 5
    assert batch_plan(16).largest_batch(free - 1) == 4
    assert advised(batch_plan(16), free)[0] == "--batch 5"
    context = batch_plan(16).largest_context(free)
    assert advised(batch_plan(16), free)[1] == f"--context {context}"
    check_fits(batch_plan(16, context), free)
    assert not any("--batch" in each for each in advised(batch_plan(1), free - 5 * GB))


def test_both_are_advised_where_one_is_not_enough() -> None:
    free = batch_plan(1, 1024).total
    plan = batch_plan(64)
    assert plan.largest_batch(free) < 1
    assert advised(plan, free)[0] == "--batch 1 with --context 1024"
    assert plan.single_row().total == batch_plan(1).total
    assert plan.single_row().per_position == batch_plan(1).per_position
    assert advised(plan, batch_plan(1, 100).total) == ["a smaller model (`dflash models` lists some)"]


def test_converting_to_packed_weights_takes_them_twice() -> None:
    target, drafter = TargetConfig.from_dict(target_dict(**LARGE)), make_drafter().config

    def plan(converted: tuple[bool, bool], **changes: Any) -> memory.MemoryPlan:
        return plan_memory(target, drafter, **{"dtype_bytes": 2, "context": 64, "converted": converted} | changes)

    base = plan((False, False))
    assert base.loading == 0
    assert base.needed == base.total
    both = plan((True, True))
    assert both.total == base.total
    assert both.needed == 2 * base.weights + base.drafter
    assert plan((False, True)).loading == base.drafter
    assert plan((True, True), device="cuda").loading == 0
    assert plan((True, True), dtype_bytes=4).loading == 0
    assert plan((True, True), loaded=(True, True)).needed == base.total - base.weights - base.drafter
    with pytest.raises(NotEnoughMemory, match=r"as much again as 16\.4 GB of them while they are converted"):
        check_fits(both, base.total)


def test_what_is_advised_does_not_need_more_to_load() -> None:
    """Weights that are stored in fp32 are converted for bf16, which takes as much as fp32 itself."""
    target = TargetConfig.from_dict(target_dict(**LARGE))
    for converted, helps in ((True, True), (False, False)):
        plan = plan_memory(target, None, dtype_bytes=4, context=64, converted=(converted, False))
        assert ("--dtype bfloat16" in advised(plan, plan.weights - 1)) is helps
