"""What a person sees while something is downloaded or converted: a bar on a terminal, one line elsewhere."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

Advance = Callable[[int, int], None]  # (done, in total), in bytes or steps
POLL_SECONDS = 0.2


def note(text: str, *, quiet: bool) -> None:
    """One line on stderr, `dflash: text`."""
    import click

    if not quiet:
        click.echo(f"dflash: {text}", err=True)


@contextmanager
def progress(text: str, *, quiet: bool) -> Iterator[Advance]:
    """A bar called `text` on stderr, fed through `advance(done, total)`; one plain line where stderr is no terminal."""
    if quiet or not sys.stderr.isatty():
        note(text, quiet=quiet)
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn(compact=True))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(text, total=None)
        yield lambda done, total: bar.update(task, completed=min(done, total), total=total)


@contextmanager
def steps(text: str, *, quiet: bool) -> Iterator[Advance]:
    """The same for something that is done in steps, not bytes."""
    if quiet or not sys.stderr.isatty():
        note(text, quiet=quiet)
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(text, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def watching(measure: Callable[[], int], total: int, advance: Advance) -> Iterator[None]:
    """Report what `measure()` gives while another program or library does the downloading."""
    finished = threading.Event()

    def poll() -> None:
        while not finished.wait(POLL_SECONDS):
            advance(measure(), total)

    thread = threading.Thread(target=poll, name="dflash-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        finished.set()
        thread.join()


def file_sizes(folder: Path, *, follow_links: bool = False) -> list[int]:
    """The sizes in bytes of the files under `folder`; files that vanish meanwhile are left out."""
    sizes = []
    for path in folder.rglob("*"):
        try:
            if path.is_file() and (follow_links or not path.is_symlink()):
                sizes.append(path.stat().st_size)
        except OSError:
            continue
    return sizes


def megabytes(num_bytes: int) -> str:
    """`93 MB`, `1.2 GB`: for people, in powers of ten."""
    return f"{num_bytes / 1e9:.1f} GB" if num_bytes >= 1e9 else f"{num_bytes / 1e6:.0f} MB"
