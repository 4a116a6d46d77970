"""Check and time everything on a GPU in one call: `python -m tests.gpu_check REPORT.json`. A command, not a test.

Backends are built, compared with eager, checked for lossless text and for recompiles, and timed on random weights of
a real shape; then goals are compared. Each stage that fails is reported and the others go on. The report is written
after every stage. On a CPU, as a dry run: `--device cpu --shape tiny --dtype float32`.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from backends import BACKENDS, create_backend
from backends.base import Backend
from backends.self_test import TOLERANCE
from dflash_cli.bench.bench import Bench, Source
from dflash_cli.bench.draft_latency import draft_latency
from dflash_cli.bench.entrants import Weights
from dflash_cli.bench.limit import Limit
from dflash_cli.bench.machine import machine
from dflash_cli.bench.plan import Plan
from dflash_cli.bench.synthetic import synthetic_weights
from dflash_cli.bench.timing import Timed, time_calls
from dflash_cli.config import Config
from dflash_cli.doctor_machine import measure_bandwidth
from dflash_cli.events import BlockVerified, Prefilled
from dflash_cli.speculative import Decoder, Request

CONTEXTS = (200, 4000)
TAUS = (4.2, 6.5, 7.87)
WRONG_EVERY = 5  # of the guided drafts of the check for lossless text


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

    @property
    def torch_dtype(self) -> torch.dtype:
        dtype: torch.dtype = getattr(torch, self.dtype)
        return dtype


@dataclass
class Report:
    """What was found, written after every stage."""

    path: Path
    values: dict[str, Any] = field(default_factory=dict)

    def stage(self, name: str, function: Callable[[], Any]) -> Any:
        """Run a stage; its result, or None where it failed, which the report then says."""
        begun = time.perf_counter()
        value, error = None, None
        try:
            value = function()
        except Exception as err:
            error = "".join(traceback.format_exception(err))
        seconds = round(time.perf_counter() - begun, 1)
        self.values[name] = {"seconds": seconds, "value": value} if error is None else {"error": error}
        self.path.write_text(json.dumps(self.values, indent=2) + "\n", encoding="utf-8")
        sys.stderr.write(f"{name}: {f'{seconds} s' if error is None else error}\n")
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        return value

    @property
    def failed(self) -> list[str]:
        """Stages that raised, and checks that did not hold."""
        raised = [name for name, each in self.values.items() if "error" in each]
        checks = [(name, each.get("value")) for name, each in self.values.items()]
        return raised + [name for name, value in checks if isinstance(value, dict) and value.get("holds") is False]


class Guided:
    """A backend whose drafts are the text that plain decoding gave, with an error now and then."""

    def __init__(self, backend: Backend, text: Sequence[int]) -> None:
        self.backend, self.text = backend, torch.tensor(text, device=backend.device)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.backend, name)

    def draft(self, anchors: Tensor, start: Sequence[int]) -> Tensor:
        logits = self.backend.draft(anchors, start).clone()
        places = torch.arange(1, self.backend.block_size, device=anchors.device) + start[0]
        ids = self.text[places.clamp(max=len(self.text) - 1)]
        ids = torch.where(places % WRONG_EVERY == 0, (ids + 1) % logits.shape[-1], ids)
        return torch.zeros_like(logits).scatter_(-1, ids.view(1, -1, 1), 1.0)


def answer(decoder: Decoder, prompt: list[int], tokens: int) -> tuple[list[int], int]:
    """The ids of a greedy answer, and how many verify passes it took."""
    events = list(decoder.generate(Request(prompt, max_new_tokens=tokens)))
    ids = [each for e in events if isinstance(e, Prefilled | BlockVerified) for each in e.new_ids]
    return ids, sum(isinstance(e, BlockVerified) for e in events)


def some_ids(count: int, vocab: int, seed: int = 0) -> list[int]:
    ids: list[int] = torch.randint(0, vocab, (count,), generator=torch.Generator().manual_seed(seed)).tolist()
    return ids


def make(name: str, weights: Weights, max_len: int, *, drafting: bool = True) -> Backend:
    return create_backend(name, weights.target, weights.drafter if drafting else None, max_len=max_len)


def lossless(name: str, device: torch.device, tokens: int) -> dict[str, Any]:
    """Speculative greedy = eager's plain greedy in fp32, token for token, with guided and with the drafter's drafts."""
    weights = synthetic_weights("tiny", torch.float32, device, 512)
    prompt = some_ids(50, weights.target.config.vocab_size)
    plain, _ = answer(Decoder(make("eager", weights, 512, drafting=False), 1), prompt, tokens)
    backend = make(name, weights, 512)
    backend.warm_up()
    own, own_passes = answer(Decoder(backend), prompt, tokens)
    guided: Any = Guided(backend, prompt + plain)
    told, passes = answer(Decoder(guided), prompt, tokens)
    holds = own == plain and told == plain and passes < own_passes and backend.recompiles == 0
    return {
        "holds": holds, "own_drafts": own == plain, "guided_drafts": told == plain, "passes": [own_passes, passes],
        "recompiles": backend.recompiles,
    }  # fmt: skip


def parity(backends: dict[str, Backend], contexts: Sequence[int]) -> dict[str, Any]:
    """The largest difference of logits from eager's, over the largest logit, and how often the argmax is the same."""
    eager = backends["eager"]
    vocab = eager.target.config.vocab_size  # type: ignore[attr-defined]
    found: dict[str, Any] = {"holds": True}
    for context in contexts:
        ids = torch.tensor(some_ids(context, vocab), device=eager.device)
        block = torch.tensor([some_ids(eager.block_size, vocab, 1)], device=eager.device)
        expected: dict[str, Tensor] = {}
        for name, backend in backends.items():
            backend.prefill(ids, 0)
            got = {
                "draft": backend.draft(block[:, 0], [context]).float().clone(),
                "verify": backend.verify(block, [context]).float().clone(),
                "plain": backend.verify(block[:, :1], [context]).float().clone(),
            }
            expected = expected or got
            for kind, logits in got.items():
                error = float((logits - expected[kind]).abs().max() / expected[kind].abs().max())
                same = float((logits.argmax(-1) == expected[kind].argmax(-1)).float().mean())
                found[f"{name} {kind} at {context}"] = {"error": error, "same_argmax": same}
                found["holds"] &= error <= TOLERANCE[eager.dtype]
    return found


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
        timed: dict[str, Timed] = time_calls(calls, torch.device(options.device), options.rounds)
        found[str(context)] = {name: each.as_dict() for name, each in timed.items()}
    return found


def simulate(options: Options) -> dict[str, Any]:
    """`dflash bench --synthetic` with all backends."""
    config = Config(device=options.device, dtype=options.dtype, quiet=True)
    plan = Plan(
        backends=options.backends, dtypes=(options.dtype,), contexts=options.contexts[:1], rounds=3, samples=1,
        max_new_tokens=options.tokens,
    )  # fmt: skip
    return Bench(config, plan, Source(synthetic=options.shape, taus=TAUS)).run().as_dict()


def goals(options: Options, times: dict[str, Any], limit: Limit, bench: dict[str, Any], block: int) -> dict[str, Any]:
    """What the project wants to reach on an H200 with Qwen3-8B shapes, and what each backend does."""
    near, far = str(options.contexts[0]), str(options.contexts[-1])
    rows = [each for each in bench["rows"] if each["simulated_tau"] == max(TAUS)]
    found = {}
    for name in options.backends:
        ms = {what: times[near][f"{name} {what}"]["ms"] for what in ("plain step", "draft", f"verify {block}")}
        verify = ms[f"verify {block}"]
        row = next((each for each in rows if each["backend"] == name), {})
        reached = {
            "plain step, share of the limit": (limit.step_ms(options.contexts[0]) / ms["plain step"], ">=", 0.85),
            "draft ms": (ms["draft"], "<=", 1.5),
            "verify over a plain step": (verify / ms["plain step"], "<=", 1.15),
            "far context over near": (times[far][f"{name} verify {block}"]["ms"] / verify, "<=", 1.6),
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


def check(options: Options) -> Report:
    """All stages."""
    report, device = Report(options.report), torch.device(options.device)
    report.stage("options", lambda: {**asdict(options), "report": str(options.report)})
    report.stage("machine", lambda: machine(options.device))
    bandwidth = report.stage("bandwidth", lambda: measure_bandwidth(options.device)) or 1.0
    for name in options.backends:
        report.stage(f"lossless {name}", lambda name=name: lossless(name, device, 100))
    times, limit, block = _on_weights(options, report, bandwidth)
    bench = report.stage("simulated", lambda: simulate(options))
    report.stage("draft latency", lambda: [
        each.as_dict()
        for each in draft_latency(
            options.shape, options.backends, options.torch_dtype, device, options.contexts[0], options.rounds
        )
    ])  # fmt: skip
    if times and bench and limit:
        report.stage("goals", lambda: goals(options, times, limit, bench, block))
    return report


def _on_weights(options: Options, report: Report, bandwidth: float) -> tuple[dict[str, Any] | None, Limit | None, int]:
    """The stages on weights of the shape; they are let go at the end."""
    device, max_len = torch.device(options.device), max(options.contexts) + 256
    weights = synthetic_weights(options.shape, options.torch_dtype, device, max_len)
    assert weights.drafter is not None
    limit = Limit(weights.target.config, weights.drafter.config, options.torch_dtype.itemsize, bandwidth)
    report.stage("limit", limit.as_dict)
    fast: dict[str, Backend] = {}
    plain: dict[str, Backend] = {}

    def build(name: str) -> dict[str, Any]:
        pair = make(name, weights, max_len), make(name, weights, max_len, drafting=False)
        for backend in pair:
            backend.warm_up()
        fast[name], plain[name] = pair
        return {"recompiles": [each.recompiles for each in pair]}

    for name in dict.fromkeys(("eager", *options.backends)):
        report.stage(f"build {name}", lambda name=name: build(name))
    report.stage("parity", lambda: parity(fast, options.contexts))
    times = report.stage("times", lambda: pass_times(options, plain, fast))
    report.stage("recompiles", lambda: {
        "holds": all(each.recompiles == 0 for each in (*fast.values(), *plain.values())),
        **{name: each.recompiles for name, each in fast.items()},
    })  # fmt: skip
    return times, limit, weights.drafter.config.block_size


def main(arguments: Sequence[str] | None = None) -> int:
    """1 where a stage failed or a check does not hold; goals that are missed are only reported."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path)
    for name in ("shape", "device", "dtype"):
        parser.add_argument(f"--{name}", default=getattr(Options, name))
    parser.add_argument("--backends", type=lambda text: tuple(text.split(",")), default=Options.backends)
    parser.add_argument("--contexts", type=lambda text: tuple(map(int, text.split(","))), default=CONTEXTS)
    parser.add_argument("--tokens", type=int, default=Options.tokens)
    parser.add_argument("--rounds", type=int, default=Options.rounds)
    report = check(Options(**vars(parser.parse_args(arguments))))
    for name in report.failed:
        sys.stderr.write(f"FAILED: {name}\n")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
