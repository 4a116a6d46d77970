"""Whether a pair fits the memory that is free, and what to do where it does not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dflash_cli.errors import DFlashError
from dflash_cli.fetch_progress import megabytes
from dflash_cli.memory import MemoryPlan

USEFUL_CONTEXT = 256  # a smaller one is not worth advising


class NotEnoughMemory(DFlashError):  # noqa: N818
    """What is wanted does not fit; `needed` and `free` in bytes."""

    def __init__(self, message: str, needed: int, free: int) -> None:
        super().__init__(message)
        self.needed, self.free = needed, free


def check_fits(plan: MemoryPlan, free: int | None, *, device: str = "cpu") -> None:
    """Raises NotEnoughMemory, with each part and what would fit, where `free` (None: unknown) is less than needed."""
    if free is None or plan.needed <= free:
        return
    rows = f" in each of {plan.batch} rows" if plan.batch > 1 else ""
    parts = [
        f"weights {megabytes(plan.weights)}",
        f"drafter {megabytes(plan.drafter)}",
        f"KV cache {megabytes(plan.kv_target + plan.kv_drafter)} for a context of {plan.context}{rows}",
        f"working space {megabytes(plan.workspace)}",
    ]
    if plan.needed > plan.total:
        parts = [*parts[:2], f"and {megabytes(plan.loading)} more while they are converted"]
    raise NotEnoughMemory(
        f"not enough memory on {device}: {megabytes(plan.needed)} needed ({', '.join(parts)}), {megabytes(free)} free. "
        f"Use {', or '.join(_advice(plan, free))}",
        plan.needed,
        free,
    )


def _advice(plan: MemoryPlan, free: int) -> list[str]:
    """What would make it fit, each by itself, and a smaller model at last."""
    advice: list[str] = []
    if plan.weights + plan.drafter + plan.loading <= free:
        advice += _smaller_cache(plan, free)
    halved = replace(
        plan, weights=plan.weights // 2, drafter=plan.drafter // 2, kv_target=plan.kv_target // 2,
        kv_drafter=plan.kv_drafter // 2, loading=plan.loading_halved,
    )  # fmt: skip
    if plan.dtype_bytes == 4 and plan.quantize == "none" and halved.needed <= free:
        advice.append("--dtype bfloat16")
    fewer = plan.in_fewer_bits
    while fewer is not None and fewer.needed > free:
        fewer = fewer.in_fewer_bits
    if fewer is not None:
        advice.append(f"--quantize {fewer.quantize}")
    if plan.drafter and replace(plan, drafter=0, kv_drafter=0).needed <= free:
        advice.append("--draft none (slower)")
    return [*advice, "a smaller model (`dflash models` lists some)"]


def _smaller_cache(plan: MemoryPlan, free: int) -> Iterator[str]:
    """Fewer rows, a smaller context, or both where one of them is not enough."""
    batch, context = plan.largest_batch(free), plan.largest_context(free)
    if 1 <= batch < plan.batch:
        yield f"--batch {batch}"
    if USEFUL_CONTEXT <= context < plan.context:
        yield f"--context {context}"
    elif batch < 1 < plan.batch and (context := plan.single_row().largest_context(free)) >= USEFUL_CONTEXT:
        yield f"--batch 1 with --context {context}"
