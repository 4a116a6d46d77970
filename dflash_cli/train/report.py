"""What a person sees of a training run: lines on stderr, and a bar for each stage on a terminal. Imports no torch."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from dflash_cli.terminal import is_terminal, printable

if TYPE_CHECKING:
    from rich.progress import Progress

SECONDS_BETWEEN_LINES = 30.0
Advance = Callable[[int, str], None]
"""(how many are done in all, what there is to say of it)."""


class Reporter:
    """Remarks and progress, all on stderr; nothing where `quiet`."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self._bar: Progress | None = None

    def tell(self, line: str) -> None:
        """One remark, also while a bar is shown."""
        if self.quiet:
            return
        if self._bar is not None:
            self._bar.console.print(f"dflash: {printable(line)}", markup=False, highlight=False, soft_wrap=True)
        else:
            click.echo(f"dflash: {printable(line)}", err=True)

    @contextmanager
    def stage(self, text: str, total: int, done: int = 0) -> Iterator[Advance]:
        """A part of the run with `total` things to do, also within another part. Shown are rate, time left and the
        memory used; elsewhere than on a terminal, a line now and then."""
        if self.quiet or not is_terminal(sys.stderr):
            yield self._lines(text, total, done)
            return
        with self._shown() as bar:
            task = bar.add_task("", total=total, completed=done, text=text)
            begun = time.monotonic()

            def advance(count: int, detail: str) -> None:
                words = _joined(printable(detail), rate(count - done, time.monotonic() - begun), memory_in_words())
                bar.update(task, completed=count, description=words)

            try:
                yield advance
            finally:
                bar.remove_task(task)

    @contextmanager
    def _shown(self) -> Iterator[Progress]:
        """The bar of the stage that this one is within, or a new one."""
        if self._bar is not None:
            yield self._bar
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.fields[text]}"),
            BarColumn(20),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.description}", markup=False),
        )
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            self._bar = bar
            try:
                yield bar
            finally:
                self._bar = None

    def _lines(self, text: str, total: int, done: int) -> Advance:
        begun = last = time.monotonic()

        def advance(count: int, detail: str) -> None:
            nonlocal last
            now = time.monotonic()
            if now - last < SECONDS_BETWEEN_LINES and count < total:
                return
            last = now
            left = (now - begun) / max(1, count - done) * (total - count)
            parts = (detail, rate(count - done, now - begun), f"{duration(left)} left", memory_in_words())
            self.tell(f"{text} {count}/{total} · {_joined(*parts)}")

        return advance


def _joined(*parts: str) -> str:
    return " · ".join(filter(None, parts))


def rate(count: int, seconds: float) -> str:
    """`12.5 a second`, `2.31 s each`; nothing where nothing is done yet."""
    if count <= 0 or seconds <= 0:
        return ""
    return f"{count / seconds:.1f} a second" if count > seconds else f"{seconds / count:.2f} s each"


def duration(seconds: float) -> str:
    """`45 s`, `12 min`, `3.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def memory_in_words() -> str:
    """`peak 1.6 GB`, and what a GPU's peak is."""
    parts = {"peak": peak_memory(), "GPU peak": peak_gpu_memory()}
    return _joined(*(f"{name} {size / 1e9:.1f} GB" for name, size in parts.items() if size))


def peak_memory() -> int:
    """The most memory this process has held, in bytes; 0 where the system does not say."""
    try:
        import resource
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def peak_gpu_memory() -> int:
    """The most memory that tensors of this process have held on CUDA devices; 0 where it has used none."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():  # asking would begin to use one
        return 0
    return sum(map(torch.cuda.max_memory_allocated, range(torch.cuda.device_count())))
