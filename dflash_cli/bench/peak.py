"""The most memory in use while something runs."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

_CLEAR, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


class PeakMemory:
    """Of a GPU: what tensors took. Of a CPU: of the whole process, all that is loaded included.

    Linux lets the process's peak be reset; elsewhere it is the peak since its start.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def reset(self) -> None:
        """From now on."""
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        elif self.device.type == "cpu":
            try:
                _CLEAR.write_text("5")
            except OSError:
                return

    def bytes(self) -> int | None:
        """The peak since; None where it cannot be told."""
        if self.device.type == "cuda":
            return int(torch.cuda.max_memory_allocated(self.device))
        if self.device.type != "cpu":
            return None
        return _high_water_mark() or _since_start()


def _high_water_mark() -> int | None:
    try:
        lines = _STATUS.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), None)


def _since_start() -> int | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
