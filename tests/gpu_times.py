"""What `gpu_check` times: passes, CUDA graphs made in two ways, simulated answers; and the goals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from backends import BACKENDS
from backends.base import Backend
from dflash_cli.bench.bench import Bench, Source
from dflash_cli.bench.draft_latency import draft_latency
from dflash_cli.bench.limit import Limit
from dflash_cli.bench.plan import Plan
from dflash_cli.bench.timing import Timed, time_calls
from dflash_cli.config import Config
from tests.gpu_graphs import REDUCE_OVERHEAD
from tests.gpu_parity import some_ids

CONTEXTS = (200, 4000)
TAUS = (4.2, 6.5, 7.87)


@dataclass
class Options:
    """What is checked, and where the report goes."""

    report: Path
    shape: str = "qwen3-8b"
    device: str = "cuda"
    dtype: str = "bfloat16"
    backends: tuple[str, ...] = tuple(BACKENDS)
    contexts: tuple[int, ...] = CONTEXTS
    tokens: int = 256
    rounds: int = 20
    latencies: bool = True
    """Also draft times by depth, which compile a backend many times."""

    @property
    def torch_dtype(self) -> torch.dtype:
        dtype: torch.dtype = getattr(torch, self.dtype)
        return dtype

    @property
    def torch_device(self) -> torch.device:
        return torch.device(self.device)


def pass_times(options: Options, plain: dict[str, Backend], fast: dict[str, Backend]) -> dict[str, Any]:
    """Milliseconds of a plain step, a draft and verify passes, by turns, by backend and length of the context."""
    found: dict[str, Any] = {}
    for context in options.contexts:
        calls: dict[str, Callable[[], Tensor]] = {}
        for name, backend in fast.items():
            prompt = torch.tensor(some_ids(context, 500), device=backend.device)
            for each in (backend, plain[name]):
                each.prefill(prompt, 0)
            block = torch.zeros(1, backend.block_size, dtype=torch.long, device=backend.device)
            at = [context]
            step = plain[name]
            calls[f"{name} plain step"] = lambda step=step, block=block, at=at: step.verify(block[:, :1], at)
            calls[f"{name} draft"] = lambda each=backend, block=block, at=at: each.draft(block[:, 0], at)
            for width in sorted({8, backend.block_size} & set(range(backend.block_size + 1))):
                calls[f"{name} verify {width}"] = lambda each=backend, ids=block[:, :width], at=at: each.verify(ids, at)
        timed: dict[str, Timed] = time_calls(calls, options.torch_device, options.rounds)
        found[str(context)] = {name: each.as_dict() for name, each in timed.items()}
    return found


def graphs(times: dict[str, Any], skips: int) -> dict[str, Any]:
    """Which CUDA graphs are the faster: those recorded by hand, or torch.compile's own; by length and pass.

    `skips`: how often torch.compile made none. On a CPU there are neither, and the two differ by noise alone.
    """
    found: dict[str, Any] = {"skipped_by_torch": skips}
    for context, by_pass in times.items():
        for name, timed in by_pass.items():
            backend, _, what = name.partition(" ")
            recorded = by_pass.get(f"compile {what}")
            if backend == REDUCE_OVERHEAD and recorded is not None:
                ms = {"compile": recorded["ms"], REDUCE_OVERHEAD: timed["ms"]}
                found[f"{what} at {context}"] = {**ms, "faster": min(ms, key=lambda each: ms[each])}
    return found


def simulate(options: Options, name: str) -> dict[str, Any]:
    """`dflash bench --synthetic` with one backend."""
    config = Config(device=options.device, dtype=options.dtype, quiet=True)
    plan = Plan(
        backends=(name,), dtypes=(options.dtype,), contexts=options.contexts[:1], rounds=3, samples=1,
        max_new_tokens=options.tokens,
    )  # fmt: skip
    return Bench(config, plan, Source(synthetic=options.shape, taus=TAUS)).run().as_dict()


def latencies(options: Options, name: str) -> list[dict[str, Any]]:
    """`dflash bench --draft-latency` with one backend."""
    found = draft_latency(
        options.shape, (name,), options.torch_dtype, options.torch_device, options.contexts[0], options.rounds
    )  # fmt: skip
    return [each.as_dict() for each in found]


def goals(
    options: Options, times: dict[str, Any], limit: Limit, rows: Sequence[dict[str, Any]], block: int
) -> dict[str, Any]:
    """What the project wants to reach on an H200 with Qwen3-8B shapes, and what each backend that was timed does.

    `rows`: those of simulated answers; what needs a row that is not there is not judged.
    """
    near, far = (times[str(options.contexts[at])] for at in (0, -1))
    found = {}
    for name in options.backends:
        if f"{name} draft" not in near:
            continue
        ms = {what: near[f"{name} {what}"]["ms"] for what in ("plain step", "draft", f"verify {block}")}
        verify = ms[f"verify {block}"]
        row = next((each for each in rows if (each["backend"], each["simulated_tau"]) == (name, max(TAUS))), {})
        reached = {
            "plain step, share of the limit": (limit.step_ms(options.contexts[0]) / ms["plain step"], ">=", 0.85),
            "draft ms": (ms["draft"], "<=", 1.5),
            "verify over a plain step": (verify / ms["plain step"], "<=", 1.15),
            "far context over near": (far[f"{name} verify {block}"]["ms"] / verify, "<=", 1.6),
            "overhead ms": (row.get("overhead_ms"), "<=", 0.2),
            "speed-up at the highest simulated tau": (row.get("speedup"), ">=", 6.2),
        }
        found[name] = {
            what: {
                "found": value, "wanted": f"{sign} {bound}",
                "met": None if value is None else (value >= bound if sign == ">=" else value <= bound),
            }
            for what, (value, sign, bound) in reached.items()
        }  # fmt: skip
    return found
