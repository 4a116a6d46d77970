"""The memory estimate against real modules and caches."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from backends.config import DrafterConfig, TargetConfig
from backends.drafter import Drafter
from backends.quantize import quantise
from dflash_cli import memory
from dflash_cli.memory import drafter_parameters, plan_memory, target_parameters
from dflash_cli.memory_fit import NotEnoughMemory, check_fits
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
    with pytest.raises(NotEnoughMemory, match=r"and 16\.4 GB more while they are converted"):
        check_fits(both, base.total)


@pytest.mark.parametrize("method", ["int8", "int4"])
def test_a_quantised_matrix_made_whole_is_counted_where_no_packed_kernel_runs(method: str) -> None:
    def work(device: str, quantize: str, **sizes: int) -> int:
        sizes = {"context": 4096, "dtype_bytes": 2} | sizes
        return plan_memory(
            TargetConfig.from_dict(target_dict(**LARGE)), None, device=device, quantize=quantize, **sizes
        ).workspace

    head, wide = 151936 * 4096 * 2, 2 * 12288 * 4096 * 2
    assert work("cuda", method) - work("cuda", "none") == head  # which is in int8 in both
    # On a CPU a long prefill makes the layers' matrices whole, of int4 with the codes, twice; the head reads few rows.
    assert work("cpu", method) - work("cpu", "none") == wide * (3 if method == "int4" else 1)
    assert work("cpu", method, context=60) == work("cpu", "none", context=60)
    assert work("cpu", method, batch=65) - work("cpu", "none", batch=65) == head


class Largest(TorchDispatchMode):
    """Notes the largest tensor of any operation inside."""

    def __init__(self) -> None:
        super().__init__()
        self.nbytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor):
            self.nbytes = max(self.nbytes, out.untyped_storage().nbytes())
        return out


def test_the_largest_matrix_that_is_made_whole_is_the_one_that_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backends.quantize._has_int8_kernel", lambda _dtype: False)
    target = make_target(vocab_size=3000)
    quantise(target, "int8", torch.float32, torch.device("cpu"))
    engine = make_engine(target, None, max_len=20)
    with Largest() as largest:
        engine.prefill(torch.arange(4), 0)
    config = target.config
    plans = [
        plan_memory(config, None, dtype_bytes=4, context=20, device="mps", quantize=each) for each in ("none", "int8")
    ]
    assert largest.nbytes == plans[1].workspace - plans[0].workspace == 3000 * config.hidden_size * 4


def test_weights_that_are_filled_before_they_are_quantised_are_counted_whole() -> None:
    target = TargetConfig.from_dict(target_dict(**LARGE))
    sizes: dict[str, Any] = {"dtype_bytes": 2, "context": 64, "device": "cuda"}
    read, filled = (plan_memory(target, None, quantize="int4", is_filled=each, **sizes) for each in (False, True))
    whole = plan_memory(target, None, **sizes)
    assert read.needed == read.total < whole.weights
    assert filled.total == read.total
    assert filled.needed == whole.weights + 151936 * 4096 * 2  # and one matrix joined of its parts
    assert plan_memory(target, None, is_filled=True, **sizes).needed == whole.needed


def test_a_head_of_its_own_is_made_whole_where_rows_are_taken_from_it() -> None:
    target, drafter = TargetConfig.from_dict(target_dict(**LARGE)), make_drafter().config
    head = 151936 * 4096 * 4
    for quantize, loading in (("none", 0), ("int8", head)):
        plan = plan_memory(target, drafter, dtype_bytes=4, context=64, draft_ids=100, quantize=quantize)
        assert plan.loading == loading


def test_plans_in_fewer_bits_are_those_of_the_other_settings() -> None:
    plan = large_plan(drafter=True)
    int8 = plan.in_fewer_bits
    assert int8 is not None
    assert int8.in_fewer_bits is not None
    assert [plan.quantize, int8.quantize, int8.in_fewer_bits.quantize] == ["none", "int8", "int4"]
    assert plan.needed > int8.needed > int8.in_fewer_bits.needed
    assert int8.in_fewer_bits.in_fewer_bits is None
    loaded = plan_memory(TargetConfig.from_dict(target_dict()), None, dtype_bytes=2, context=64, loaded=(True, False))
    assert loaded.in_fewer_bits is None  # other weights would come on top
