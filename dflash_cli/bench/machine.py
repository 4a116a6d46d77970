"""What a benchmark ran on."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import torch

from dflash_cli import __version__
from dflash_cli.stats import counted


def machine(device: str) -> dict[str, Any]:
    """The `machine` object of the JSON output."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    facts = {
        "device": device,
        "cpu": _cpu_name(),
        "cores": cores,
        "threads": torch.get_num_threads(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "dflash": __version__,
        "load_average": _load(),
    }
    if device.startswith("cuda"):
        gpu = torch.cuda.get_device_properties(device)
        facts |= {"gpu": gpu.name, "gpu_memory_gb": round(gpu.total_memory / 1e9, 1), "cuda": torch.version.cuda}
    return facts


def in_words(facts: dict[str, Any]) -> str:
    """One line for people."""
    what = facts.get("gpu") or f"{facts['cpu']}, {counted(facts['threads'], 'thread')}"
    return f"{what}; torch {facts['torch']}"


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine()


def _load() -> float | None:
    """Processes that wanted to run in the last minute, before the benchmark began: more than none disturb it."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None
