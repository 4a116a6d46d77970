"""Devices, their memory, and how fast it is: decoding reads every weight once a pass, so bandwidth is its limit."""

from __future__ import annotations

import os
import platform
import statistics
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from dflash_cli.doctor_report import FATAL, OK, WARNING, Check
from dflash_cli.fetch_progress import megabytes
from dflash_cli.free_memory import free_memory

if TYPE_CHECKING:
    import torch

    from backends.base import Clock

LEAST_BYTES = {"cpu": 256 << 20, "cuda": 1 << 30, "mps": 512 << 20}
"""Of the buffer that is read, on each kind of device, where there is room."""
MOST_BYTES = 2 << 30
FREE_SHARE = 1 / 4  # of the free memory, which the buffer may take
PAGE_BYTES = 4096
MEASURE_SECONDS = 0.3
FEWEST_TIMES = 3
READS_AT_ONCE = {"cuda": 8}  # between two marks: to start one takes a GPU longer than it may read
CPUS = Path("/sys/devices/system/cpu")


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
        return Check(title, OK, f"{measure_bandwidth(name) / 1e9:.1f} GB/s (reading)")
    except RuntimeError as err:  # out of memory, a driver that does not fit
        return Check(title, WARNING, f"could not be measured ({err})", "free some memory, or check the driver")


def measure_bandwidth(name: str) -> float:
    """Bytes read a second, by all threads, as decoding reads weights: the median of a few reads of a buffer that is
    larger than the caches."""
    import torch

    from backends.base import Clock

    device = torch.device(name)
    values = _buffer(device, buffer_bytes(device.type, free_memory(name), cache_bytes(CPUS)))
    clock, reads = Clock(device), READS_AT_ONCE.get(device.type, 1)
    rates: list[float] = []
    _timed_reads(values, clock, reads)  # warms up
    end = time.perf_counter() + MEASURE_SECONDS
    while len(rates) < FEWEST_TIMES or time.perf_counter() < end:
        rates.append(reads * values.nbytes / _timed_reads(values, clock, reads))
    return statistics.median(rates)


def buffer_bytes(kind: str, free: int | None, caches: int) -> int:
    """How much is read on a kind of device: of a CPU at least twice its last-level caches, where memory allows."""
    wanted = max(LEAST_BYTES[kind], 2 * caches if kind == "cpu" else 0)
    room = MOST_BYTES if free is None else min(MOST_BYTES, int(free * FREE_SHARE))
    return max(min(wanted, room) // PAGE_BYTES, 1) * PAGE_BYTES


def cache_bytes(cpus: Path) -> int:
    """All last-level caches of the processors that this process may run on; 0 where the system does not say."""
    numbers = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    sizes: dict[str, int] = {}
    for number in numbers:
        folder = cpus / f"cpu{number}" / "cache" / "index3"
        with suppress(OSError, ValueError):
            size = int((folder / "size").read_text().strip().removesuffix("K")) << 10
            sizes[(folder / "shared_cpu_list").read_text()] = size
    return sum(sizes.values())


def _buffer(device: torch.device, num_bytes: int) -> torch.Tensor:
    """Filled, so that it has pages of its own. On Linux huge ones where it can be: weights come to lie in such, too."""
    import mmap

    import torch

    if device.type == "cpu" and hasattr(mmap, "MADV_HUGEPAGE"):
        pages = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with suppress(OSError):
            pages.madvise(mmap.MADV_HUGEPAGE)
        return torch.frombuffer(pages, dtype=torch.float32).fill_(1.0)
    return torch.ones(num_bytes // 4, dtype=torch.float32, device=device)


def _timed_reads(values: torch.Tensor, clock: Clock, reads: int) -> float:
    """Seconds of so many reads."""
    begun = clock.mark()
    sums = [values.sum() for _ in range(reads)]
    ended = clock.mark()
    sums[-1].item()  # waits for the device
    return clock.ms(begun, ended) / 1e3


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
