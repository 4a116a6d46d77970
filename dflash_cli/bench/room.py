"""Whether what is loaded beside everything else still fits, asked before it is loaded."""

from __future__ import annotations

import gc
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import safe_open

from backends.weights import open_checkpoint
from dflash_cli.bench.subject import PeerUnavailable
from dflash_cli.fetch_progress import megabytes
from dflash_cli.free_memory import free_memory
from dflash_cli.memory_fit import NotEnoughMemory, check_fits

if TYPE_CHECKING:
    from dflash_cli.memory import MemoryPlan

FEWER = ", or fewer --backends, --batches or --draft-vocabularies: all take turns, so all are in memory"


class Room:
    """The free memory of a device, less what was promised since: a CPU's caches take theirs only as they are filled."""

    def __init__(self, device: str) -> None:
        self.device = device
        self._at_first, self._promised = free_memory(device), 0

    @property
    def left(self) -> int | None:
        """Bytes; None where that cannot be told."""
        now = free_memory(self.device)
        return None if now is None or self._at_first is None else max(0, min(now, self._at_first - self._promised))

    def take_engine(self, plan: MemoryPlan, what: str) -> None:
        """One more engine, all caches of which stay. Raises NotEnoughMemory."""
        with flags_of_bench(f"{what}: ", FEWER, is_own_context=True):
            check_fits(plan, self.left, device=self.device)
        self._promised += plan.kv_target + plan.kv_drafter

    def take_peer(self, what: str, num_bytes: int) -> None:
        """Something of a peer's. Raises PeerUnavailable."""
        left = self.left
        if left is not None and num_bytes > left:
            raise PeerUnavailable(
                f"{what} takes {megabytes(num_bytes)} of its own beside what is loaded, and {megabytes(left)} are free "
                f"on {self.device}; leave it out, or pass fewer --backends or --batches, or a smaller model"
            )
        self._promised += num_bytes

    def take_copy(self, what: str, folder: Path, itemsize: int, more: int = 0) -> None:
        """Weights of a checkpoint, which pass through the host's memory to any device. Raises PeerUnavailable."""
        weights = checkpoint_values(folder) * itemsize
        if self.device != "cpu":
            Room("cpu").take_peer(what, weights)
        self.take_peer(what, weights + more)


def checkpoint_values(folder: Path) -> int:
    """How many weights its files hold. Raises PeerUnavailable where they cannot be read."""
    try:
        files, values = open_checkpoint(folder).files, 0
        for path in sorted(set(files.values())):
            with safe_open(path, framework="pt") as file:
                values += sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
    except ValueError as err:
        raise PeerUnavailable(f"the weights of a peer cannot be read: {err}") from err
    return values


@contextmanager
def flags_of_bench(before: str = "", after: str = "", *, is_own_context: bool = False) -> Iterator[None]:
    """What does not fit is told with the flags of `dflash bench`. `is_own_context`: prompts and answers set it."""
    try:
        yield
    except NotEnoughMemory as err:
        text = str(err).replace("--batch ", "--batches ")
        if is_own_context:
            text = re.sub(r"--context (\d+)", r"--contexts and -n of \1 together", text)
        raise NotEnoughMemory(before + text + after, err.needed, err.free) from err


def tidy() -> None:
    """Give back the memory of what nobody uses any more."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
