"""What a person sees while a benchmark runs: a bar on a terminal, a line a stage elsewhere. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from dflash_cli.bench.runner import Watch
from dflash_cli.terminal import printable


@contextmanager
def watching(*, quiet: bool) -> Iterator[Watch]:
    """On stderr; nothing with `quiet`."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield Watch(stage=lambda text: None if quiet else _line(text))
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(compact=True))
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None)
        yield Watch(
            stage=lambda text: bar.update(task, description=printable(text)),
            advance=lambda done, total: bar.update(task, completed=done, total=total),
        )


def _line(text: str) -> None:
    if "compiling" not in text:  # a line a graph would be many
        click.echo(printable(f"dflash: {text}"), err=True)
