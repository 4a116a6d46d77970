"""The processes of a training run, one a device: who does what, and how they agree.

Each process holds the whole drafter and learns from its share of a step's documents. Gradients are summed once a step,
in fp32 under one normaliser, so every process makes the very move that one process alone would make (but for the sample
of `--loss-vocabulary`, which belongs to a row, and rows are packed from a process's own documents). This is what
DistributedDataParallel does, without its wrapper: that hooks one forward pass, and a step here has several. FSDP2 would
shard the weights, and Muon needs whole matrices: they would have to be gathered for each move. A drafter is small: one
of 1 B weights takes 12 GB with its gradients and Muon's state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import torch
from click.exceptions import Exit
from torch import Tensor

from dflash_cli.errors import DFlashError, UsageError

if TYPE_CHECKING:
    from dflash_cli.train.notes import Notes

Value = TypeVar("Value")


class Ranks:
    """This process among those of a run: number `rank` of `size`. Alone, every method gives back what it was given.

    All processes call the same methods in the same order. As a context it tells the others how this one ended.
    """

    def __init__(self, rank: int = 0, notes: Notes | None = None) -> None:
        self.rank, self.notes = rank, notes
        self.size = 1 if notes is None else notes.size

    @property
    def alone(self) -> bool:
        """Whether there is no other process."""
        return self.notes is None

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and speaks."""
        return self.rank == 0

    def check_batch(self, batch: int) -> None:
        """Raises UsageError where a step has not a document for each process."""
        if batch < self.size:
            raise UsageError(
                f"--batch {batch} is less than the {self.size} processes, which learn from different documents; "
                f"pass --batch {self.size} or more, or start fewer processes"
            )

    def share(self, sizes: Sequence[int]) -> list[int]:
        """Indices of this process, in order: the work of all is about equal, and each has some where there is enough.

        The largest go first, each to whoever has least.
        """
        loads = [0] * self.size
        mine = []
        for index in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
            least = loads.index(min(loads))
            loads[least] += max(1, sizes[index])
            if least == self.rank:
                mine.append(index)
        return sorted(mine)

    def total(self, values: Sequence[float]) -> list[float]:
        """Sums over the processes, in double precision and the same everywhere; as many values in each."""
        if self.alone:
            return list(values)
        sums = torch.tensor(values, dtype=torch.float64)
        with self._talking():
            torch.distributed.all_reduce(sums)
        found: list[float] = sums.tolist()
        return found

    def any(self, flag: bool) -> bool:
        """Whether it is so in any process: one decision for all."""
        return flag if self.alone else self.total([float(flag)])[0] > 0

    def gather(self, value: Value) -> list[Value]:
        """The values of all processes."""
        if self.alone:
            return [value]
        found: list[Any] = [None] * self.size
        with self._talking():
            torch.distributed.all_gather_object(found, value)
        return found

    def agree(self, value: object) -> None:
        """Raises DFlashError where the processes do not have the same data before them."""
        if any(each != value for each in self.gather(value)):
            raise DFlashError(
                "the processes of this run read different data or checkpoints; --out and all files of prompts must lie "
                "where every machine reads the same"
            )

    def sum_gradients(self, parameters: Iterable[Tensor]) -> None:
        """Make each gradient the sum of those of all processes."""
        if self.alone:
            return
        everything = list(parameters)
        # One that took no part here may have done so elsewhere.
        used = self.total([float(each.grad is not None) for each in everything])
        learning = [each for each, count in zip(everything, used, strict=True) if count]
        for each in learning:
            each.grad = torch.zeros_like(each) if each.grad is None else each.grad.contiguous()
        with self._talking():
            works = [torch.distributed.all_reduce(each.grad, async_op=True) for each in learning]
            for work in works:
                work.wait()

    def stop(self, own: bool) -> bool:
        """Whether any process was told to stop, as far as is known here now. `own`: this one was."""
        if self.notes is None:
            return own
        with self._talking():
            return self.notes.stop(own)

    def meet(self, stopped: Callable[[], bool]) -> None:
        """Wait for all processes, however long they work. Raises KeyboardInterrupt where one was told to stop."""
        if self.notes is None:
            return
        with self._talking():
            self.notes.wait(stopped)
        if self.any(stopped()):
            raise KeyboardInterrupt

    @contextmanager
    def _talking(self) -> Iterator[None]:
        """Turns the end of another process into an error for people."""
        try:
            yield
        except (torch.OutOfMemoryError, Exit):
            raise
        except RuntimeError as error:
            assert self.notes is not None
            self.notes.raise_if_failed()
            why = " ".join(str(error).split())[:200]
            raise DFlashError(
                f"process {self.rank} of {self.size} lost the others: one was ended or does not answer ({why}). "
                "Start the same command again: it goes on from the last checkpoint"
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.notes is None:
            return
        if error is not None:
            self.notes.leave(error)
        if error is None:
            with suppress(RuntimeError):  # another that failed has told why
                torch.distributed.barrier()  # nobody hangs up while another is still at work
        if error is None or isinstance(error, KeyboardInterrupt):  # after a failure this may wait for ever
            torch.distributed.destroy_process_group()
