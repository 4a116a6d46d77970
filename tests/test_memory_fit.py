"""What is said and advised where a pair does not fit the free memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backends.config import TargetConfig
from dflash_cli.errors import DFlashError
from dflash_cli.memory import MemoryPlan, plan_memory
from dflash_cli.memory_fit import NotEnoughMemory, check_fits
from tests.test_memory import GB, LARGE, large_plan
from tests.tiny import target_dict


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
    with pytest.raises(DFlashError, match=rf"--context {largest}, or --quantize int8, or a smaller model") as caught:
        check_fits(large_plan(), free, device="cuda")
    text = str(caught.value)
    assert text.startswith("not enough memory on cuda: 17.9 GB needed (weights 16.4 GB, drafter 0 MB, KV cache 1.2 GB")
    assert "17.0 GB free" in text


def test_advice_is_only_what_helps() -> None:
    def advice(plan: MemoryPlan, free: int) -> str:
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


def advised(plan: MemoryPlan, free: int) -> list[str]:
    with pytest.raises(NotEnoughMemory) as caught:
        check_fits(plan, free)
    assert (caught.value.needed, caught.value.free) == (plan.needed, free)
    return str(caught.value).partition(" free. Use ")[2].split(", or ")


def batch_plan(batch: int, context: int = 8192) -> MemoryPlan:
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


def test_what_is_advised_does_not_need_more_to_load() -> None:
    """Weights that are stored in fp32 are converted for bf16, which takes as much as fp32 itself."""
    target = TargetConfig.from_dict(target_dict(**LARGE))
    for converted, helps in ((True, True), (False, False)):
        plan = plan_memory(target, None, dtype_bytes=4, context=64, converted=(converted, False))
        assert ("--dtype bfloat16" in advised(plan, plan.weights - 1)) is helps


def test_fewer_bits_are_advised_where_they_help() -> None:
    plan = large_plan()
    assert "--quantize int8" in advised(plan, 12 * GB)
    assert "--quantize int4" in advised(plan, 10 * GB)
    assert not any("--quantize" in each for each in advised(plan, 6 * GB))
    int8 = plan.in_fewer_bits
    assert int8 is not None
    assert advised(int8, 10 * GB)[-2] == "--quantize int4"
    assert not any("--dtype" in each for each in advised(int8, 10 * GB))
