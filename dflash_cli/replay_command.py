"""`dflash replay`: play a trace again without its model, or make a page of it. Imports no torch."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dflash_cli.config import Config
from dflash_cli.errors import DFlashError, UsageError
from dflash_cli.options import settings
from dflash_cli.terminal import printable

if TYPE_CHECKING:
    from dflash_cli.trace import Recording


class Speed(click.ParamType):  # type: ignore[type-arg]
    """See `replay.parse_speed`."""

    name = "X"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """See click."""
        from dflash_cli.replay import parse_speed

        try:
            return value if isinstance(value, float) else parse_speed(str(value))
        except UsageError as err:
            self.fail(str(err), param, ctx)


@click.command(
    "replay",
    short_help="Play a trace again, or make a page of it.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("file", type=click.Path())
@click.option("--speed", type=Speed(), default="1", help="Times as fast as it was: 0.25, 4, 2x.", show_default=True)
@click.option("--answer", "number", type=click.IntRange(1), metavar="N", help="Only the N-th answer of the file.")
@click.option("--html", "page", type=click.Path(), metavar="FILE.html", help="Write a page to step through instead.")
@settings("theme", "color", "quiet", "show_thinking")
def replay_command(file: str, speed: float, number: int | None, page: str | None, config: Config) -> None:
    """Play the answers of FILE, which `--trace FILE` of `chat` and `run` wrote, as they came.

    Ctrl-C ends it. A file or pipe gets the text at once: [accepted]~rejected~+bonus.
    """
    recordings = _read(Path(file), number)
    if page is not None:
        from dflash_cli.trace_html import write_page

        path = write_page(recordings, Path(page))
        if not config.quiet:
            click.echo(printable(f"dflash: written to {path}"), err=True)
        return
    _play(recordings, speed, config)


def _read(path: Path, number: int | None) -> list[Recording]:
    from dflash_cli.trace import read_trace

    recordings = read_trace(path)
    if not recordings:
        raise DFlashError(f"{path} holds no answer: `--trace {path}` of `dflash chat` or `dflash run` writes them")
    if number is None:
        return recordings
    if number > len(recordings):
        raise UsageError(f"{path} holds {len(recordings)} answers; there is no answer {number}")
    return [recordings[number - 1]]


def _play(recordings: list[Recording], speed: float, config: Config) -> None:
    from dflash_cli.chat_screen import shows_thinking
    from dflash_cli.overlay_live import Overlay
    from dflash_cli.replay import replay

    overlay = Overlay(sys.stdout, "full", config.theme, has_color=config.wants_color(sys.stdout))
    for recording in recordings:
        if not config.quiet:
            click.echo(printable(f"dflash: {_title(recording)}"), err=True)
        if not replay(recording, overlay, speed, show_thinking=shows_thinking(config)):
            raise KeyboardInterrupt


def _title(recording: Recording) -> str:
    head = recording.head
    prompt = "" if head.prompt is None else f": {' '.join(head.prompt.split())[:60]}"
    return f"{head.pair}, {head.backend}, {head.time}{prompt}"
