"""Check and time everything on a GPU in one call: `python -m tests.gpu_check REPORT.json`. A command, not a test.

Backends are built, compared with eager, checked for lossless text and for recompiles, and timed on random weights of
a real shape, as are CUDA graphs made in two ways; gradients of a training step are compared, then goals. Each stage
that fails is reported and the others go on. The report is written before and after every stage.
On a CPU, as a dry run: `--device cpu --shape tiny --dtype float32`.
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

from backends.base import Backend
from dflash_cli.bench.entrants import Weights
from dflash_cli.bench.limit import Limit
from dflash_cli.bench.machine import machine
from dflash_cli.bench.synthetic import synthetic_weights
from dflash_cli.doctor_machine import measure_bandwidth
from tests.gpu_graphs import REDUCE_OVERHEAD, num_skips
from tests.gpu_parity import lossless, make, parity, training_gradients
from tests.gpu_times import CONTEXTS, Options, goals, graphs, latencies, pass_times, simulate

SPACE = 256  # cache rows past the longest context


@dataclass
class Report:
    """What was found, written before and after every stage."""

    path: Path
    values: dict[str, Any] = field(default_factory=dict)

    def stage(self, name: str, function: Callable[[], Any], *, keep: bool = True) -> Any:
        """Run a stage; its result, or None where it failed, which the report then says. `keep`: report the result."""
        begun = time.perf_counter()
        self._write(name, {"error": "the script ended in the middle of this stage"})
        value, error = None, None
        try:
            value = function()
            self._write(name, {"seconds": _since(begun), "value": value if keep else None})
            _tidy()
        except Exception as err:
            error = "".join(traceback.format_exception(err))
            self._write(name, {"seconds": _since(begun), "error": error})
        sys.stderr.write(f"{name}: {f'{_since(begun)} s' if error is None else error}\n")
        return value if error is None else None

    def _write(self, name: str, found: dict[str, Any]) -> None:
        self.values[name] = found
        self.path.write_text(json.dumps(self.values, indent=2) + "\n", encoding="utf-8")

    @property
    def failed(self) -> list[str]:
        """Stages that raised, and checks that did not hold."""
        raised = [name for name, each in self.values.items() if "error" in each]
        checks = [(name, each.get("value")) for name, each in self.values.items()]
        return raised + [name for name, value in checks if isinstance(value, dict) and value.get("holds") is False]


def _since(begun: float) -> float:
    return round(time.perf_counter() - begun, 1)


def _tidy() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def check(options: Options) -> Report:
    """All stages."""
    report = Report(options.report)
    report.stage("options", lambda: {**asdict(options), "report": str(options.report)})
    report.stage("machine", lambda: machine(options.device))
    bandwidth = report.stage("bandwidth", lambda: measure_bandwidth(options.device))
    for name in options.backends:
        report.stage(f"lossless {name}", lambda name=name: lossless(name, options.torch_device, 100))
    if options.device.startswith("cuda"):  # the kernel has no backward pass elsewhere
        report.stage("training gradients", lambda: training_gradients(options.torch_device))
    times, limit, block = _on_weights(options, report, bandwidth)
    rows: list[dict[str, Any]] = []
    for name in options.backends:
        bench = report.stage(f"simulated {name}", lambda name=name: simulate(options, name))
        rows += bench["rows"] if bench else []
    for name in options.backends if options.latencies else ():
        report.stage(f"draft latency {name}", lambda name=name: latencies(options, name))
    if times and limit:
        report.stage("goals", lambda: goals(options, times, limit, rows, block))
    return report


def _on_weights(
    options: Options, report: Report, bandwidth: float | None
) -> tuple[dict[str, Any] | None, Limit | None, int]:
    """The stages on weights of the shape, which are let go at the end: times, the limit, and the size of a block."""
    max_len = max(options.contexts) + SPACE
    weights: Weights | None = report.stage(
        "weights", lambda: synthetic_weights(options.shape, options.torch_dtype, options.torch_device, max_len),
        keep=False,
    )  # fmt: skip
    if weights is None or weights.drafter is None:
        return None, None, 0
    limit = None
    if bandwidth:
        limit = Limit(weights.target.config, weights.drafter.config, options.torch_dtype.itemsize, bandwidth)
        report.stage("limit", limit.as_dict)
    fast, plain = _built(options, report, weights, max_len)
    report.stage("parity", lambda: parity(fast, options.contexts))
    times = report.stage("times", lambda: pass_times(options, plain, fast))
    report.stage("recompiles", lambda: {
        "holds": all(each.recompiles == 0 for each in (*fast.values(), *plain.values())),
        **{name: each.recompiles for name, each in fast.items()},
    })  # fmt: skip
    if times and REDUCE_OVERHEAD in fast:
        report.stage("graphs", lambda: graphs(times, num_skips()))
    return times, limit, weights.drafter.config.block_size


def _built(
    options: Options, report: Report, weights: Weights, max_len: int
) -> tuple[dict[str, Backend], dict[str, Backend]]:
    """Each backend warmed up, with the drafter and without, by name; eager first, since others are compared with it."""
    fast: dict[str, Backend] = {}
    plain: dict[str, Backend] = {}

    def build(name: str) -> dict[str, Any]:
        pair = make(name, weights, max_len), make(name, weights, max_len, drafting=False)
        for backend in pair:
            backend.warm_up()
        fast[name], plain[name] = pair
        return {"recompiles": [each.recompiles for each in pair]}

    other = (REDUCE_OVERHEAD,) if "compile" in options.backends else ()
    for name in dict.fromkeys(("eager", *options.backends, *other)):
        report.stage(f"build {name}", lambda name=name: build(name))
    return fast, plain


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
    parser.add_argument("--no-latencies", dest="latencies", action="store_false", help="no draft times by depth")
    report = check(Options(**vars(parser.parse_args(arguments))))
    for name in report.failed:
        sys.stderr.write(f"FAILED: {name}\n")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
