"""Devices, their memory, and how fast it is: decoding reads every weight once a pass, so bandwidth is its limit."""

from __future__ import annotations

import os
import platform
import statistics
import time
from typing import TYPE_CHECKING

from dflash_cli.doctor_report import FATAL, OK, WARNING, Check
from dflash_cli.fetch_progress import megabytes
from dflash_cli.free_memory import free_memory

if TYPE_CHECKING:
    import torch

BUFFER_BYTES = {"cpu": 64 << 20, "cuda": 256 << 20, "mps": 128 << 20}
MEASURE_SECONDS = 0.3
FEWEST_COPIES = 3


def check_machine(*, offline: bool) -> list[Check]:
    """Devices with their memory and bandwidth, and the model that is used where none is named."""
    try:
        import torch
    except (ImportError, OSError) as err:
        return [
            Check("device", FATAL, f"torch cannot be imported ({err})", "install torch again (`pip install torch`)")
        ]
    names = ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
    if torch.backends.mps.is_available():
        names.append("mps")
    checks = []
    for name in names:
        checks.append(_device(name))
        checks.append(_bandwidth(name))
    return [*checks, _default_model(names, offline=offline)]


def _device(name: str) -> Check:
    import torch

    free = free_memory(name)
    room = "free memory unknown" if free is None else f"{megabytes(free)} free"
    if name.startswith("cuda"):
        facts = torch.cuda.get_device_properties(name)
        return Check(name, OK, f"{facts.name}, {room} of {megabytes(facts.total_memory)}")
    if name == "mps":
        return Check(name, OK, f"Apple GPU, {room}")
    import psutil  # type: ignore[import-untyped]

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    total = megabytes(psutil.virtual_memory().total)
    return Check(name, OK, f"{platform.machine()}, {cores} cores, {torch.get_num_threads()} threads, {room} of {total}")


def _bandwidth(name: str) -> Check:
    title = f"{name} bandwidth"
    try:
        return Check(title, OK, f"{measure_bandwidth(name) / 1e9:.1f} GB/s (copy)")
    except RuntimeError as err:  # out of memory, a driver that does not fit
        return Check(title, WARNING, f"could not be measured ({err})", "free some memory, or check the driver")


def measure_bandwidth(name: str) -> float:
    """Bytes read and written a second while a buffer larger than the caches is copied: the median of a few copies."""
    import torch

    device = torch.device(name)
    source = torch.ones(BUFFER_BYTES[device.type], dtype=torch.uint8, device=device)
    copy = torch.empty_like(source)
    rates: list[float] = []
    _timed_copy(source, copy)  # touches the pages and warms up
    end = time.perf_counter() + MEASURE_SECONDS
    while len(rates) < FEWEST_COPIES or time.perf_counter() < end:
        rates.append(2 * source.numel() / _timed_copy(source, copy))
    return statistics.median(rates)


def _timed_copy(source: torch.Tensor, copy: torch.Tensor) -> float:
    import torch

    started = time.perf_counter()
    copy.copy_(source)
    if source.device.type == "cuda":
        torch.cuda.synchronize(source.device)
    elif source.device.type == "mps":
        torch.mps.synchronize()
    return time.perf_counter() - started


def _default_model(devices: list[str], *, offline: bool) -> Check:
    from dflash_cli.fetch import cached
    from dflash_cli.models import PAIRS, default_alias

    gpu_free = free_memory("cuda:0") if "cuda:0" in devices else None
    alias = default_alias(gpu_free is not None, gpu_free or 0)
    if cached(PAIRS[alias].target) is not None:
        return Check("default model", OK, f"{alias}, cached")
    if offline:
        return Check("default model", WARNING, f"{alias}, not cached", "run once without --offline to fetch it")
    return Check("default model", OK, f"{alias}, fetched on first use")
