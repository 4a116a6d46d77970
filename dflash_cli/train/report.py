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
        """A part of the run with `total` things to do; elsewhere than on a terminal, a line now and then."""
        if self.quiet or not is_terminal(sys.stderr):
            yield self._lines(text, total, done)
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn(text),
            BarColumn(20),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.description}"),
        )
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("", total=total, completed=done)
            self._bar = bar
            try:
                yield lambda count, detail: bar.update(task, completed=count, description=printable(detail))
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
            self.tell(f"{text} {count}/{total} · {detail} · {duration(left)} left")

        return advance


def duration(seconds: float) -> str:
    """`45 s`, `12 min`, `3.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def peak_memory() -> int:
    """The most memory this process has held, in bytes; 0 where the system does not say."""
    try:
        import resource
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
