"""Notes that the processes of a run leave for each other where none may block: stop, failed, arrived, still at work."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Protocol

from click.exceptions import Exit

from dflash_cli.errors import DFlashError

PATIENCE_S = 1800.0  # without a sign of life from another process: longer than anything takes between two
LOOK_S = 0.2  # between two looks of a process at work
WAIT_S = 0.05  # between two looks of one that waits
STOP, FAILED, LEFT = "stop", "failed", "left"


class Store(Protocol):
    """What is used of torch's stores: values by key that every process of a run reads and writes."""

    def set(self, key: str, value: str, /) -> None:
        """Write."""

    def get(self, key: str, /) -> bytes:
        """Read, and wait until there is something."""

    def add(self, key: str, amount: int, /) -> int:
        """Add to a number that begins at 0, and read it."""

    def check(self, keys: list[str], /) -> bool:
        """Whether all keys are there."""

    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes:
        """Write where there is nothing yet (expected is empty), and read what is there now."""


class Notes:
    """The notes of process `rank` of `size`, and those it reads. They lie in a store that all of them reach.

    Methods raise RuntimeError where the store is gone, besides what they say.
    """

    def __init__(self, store: Store, rank: int, size: int, patience: float = PATIENCE_S) -> None:
        self.store, self.rank, self.size, self.patience = store, rank, size, patience
        self._stopped = False
        self._looked = 0.0
        self._meetings = 0

    def stop(self, own: bool) -> bool:
        """Whether any process was told to stop. `own`: this one was. Is also the sign that this one is at work."""
        if own and not self._stopped:
            self.store.set(STOP, "1")
            self._stopped = True
        if not self._stopped and (now := time.monotonic()) - self._looked >= LOOK_S:
            self._looked = now
            self.store.add(_alive(self.rank), 1)
            self._stopped = self.store.check([STOP])
        return self._stopped

    def wait(self, stopped: Callable[[], bool]) -> None:
        """Until all processes have come here. Raises KeyboardInterrupt where one has left, Exit where one has failed,
        DFlashError where one that is awaited gives no sign.

        None leaves on its own while it waits: when `stopped()`, those at work are told, and leave first.
        """
        self._meetings += 1
        self.store.set(self._met(self.rank), "1")
        signs, since = -1, time.monotonic()
        while absent := [rank for rank in range(self.size) if not self.store.check([self._met(rank)])]:
            self.raise_if_failed()
            if self.store.check([LEFT]):
                raise KeyboardInterrupt
            stopped()
            seen = sum(self.store.add(_alive(rank), 0) for rank in absent)
            if seen != signs:
                signs, since = seen, time.monotonic()
            if time.monotonic() - since > self.patience:
                raise DFlashError(
                    f"process {absent[0]} of {self.size} (counted from 0) gave no sign for {self.patience:.0f} s; end "
                    "all of them and start the same command again: it goes on where it was saved"
                )
            time.sleep(WAIT_S)

    def leave(self, error: BaseException) -> None:
        """Tell the others why this process ends. Raises Exit, which prints nothing, where one has said the same."""
        if isinstance(error, Exit):
            return
        code = getattr(error, "exit_code", 1)
        said = note = f"{code} {self.rank} {error}"
        with contextlib.suppress(RuntimeError):  # the store may be gone, and nobody reads it then
            if isinstance(error, KeyboardInterrupt):
                self.store.set(LEFT, "1")
            else:
                said = self.store.compare_set(FAILED, "", note).decode()
        if said != note and said.split(" ", 2)[2] == str(error):
            raise Exit(code) from error

    def raise_if_failed(self) -> None:
        """Raises Exit, which prints nothing, where another process has failed: it says why itself."""
        code = None
        with contextlib.suppress(RuntimeError):
            if self.store.check([FAILED]):
                code = int(self.store.get(FAILED).decode().split(" ", 1)[0])
        if code is not None:
            raise Exit(code)

    def _met(self, rank: int) -> str:
        return f"met/{self._meetings}/{rank}"


def _alive(rank: int) -> str:
    return f"alive/{rank}"
