"""Make the picture of the overlay in the README: `python -m tests.record_overlay OUT.svg`. A command, not a test.

The embedded pair answers a prompt; the picture is the screen in the middle of that answer, in mode full, at a moment
when drafts wait to be verified and some of the block before were thrown away.
"""

from __future__ import annotations

import argparse
import io
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.text import Text

from dflash_cli import load
from dflash_cli.answering import answer
from dflash_cli.events import BlockDrafted, Event
from dflash_cli.model import Model
from dflash_cli.overlay import OverlayState
from dflash_cli.overlay_render import Look, fresh, settled
from dflash_cli.overlay_strip import strip
from dflash_cli.replay import thinking_flags
from dflash_cli.themes import DEFAULT_THEME, THEMES
from dflash_cli.trace import Recording, head_of, record
from dflash_cli.wrapping import wrap_line

PROMPT = "Tom has 3 boxes with 15 pencils each and gives away 9 pencils. How many pencils does he have left?"
WIDTH = 92
STRIP_ROWS = 3


def record_answer(model: Model, prompt: str) -> Recording:
    """A real answer with its times."""
    decoder, events = model.decoder(), list[tuple[Event, float]]()
    ids = model.encode(model.conversation(prompt))
    answer(model, decoder, ids, lambda event, _said: events.append((event, time.perf_counter())))
    return record(events, model.codec, model.config.stop, head_of(model, decoder, prompt))


def states(recording: Recording) -> Iterator[OverlayState]:
    """The answer after each event."""
    state = OverlayState()
    for step, flags in zip(recording.steps, thinking_flags(recording.steps), strict=True):
        yield (state := state.add(step.event, step.texts, step.at_s, flags))


def middle(recording: Recording) -> OverlayState:
    """A state with pending drafts after a block that lost some, as near to the middle of the answer as there is."""
    found = [
        (index, state)
        for index, (step, state) in enumerate(zip(recording.steps, states(recording), strict=True))
        if isinstance(step.event, BlockDrafted) and state.newest.rejected.strip() and state.newest.accepted
    ]
    return min(found, key=lambda each: abs(each[0] - len(recording.steps) / 2))[1]


def picture(recording: Recording, state: OverlayState) -> str:
    """The screen as SVG."""
    look = Look(THEMES[DEFAULT_THEME])
    console = Console(
        record=True,
        width=WIDTH,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
        legacy_windows=False,
    )
    text = settled(state, 0, state.newest.at, look).append_text(fresh(state, look))
    prompt = Text.assemble(("> ", "bold"), recording.head.prompt or "")
    lines = [row for line in (prompt, *text.split("\n", allow_blank=True)) for row in wrap_line(line, WIDTH)]
    for row in [*lines, *strip(state, WIDTH - 1, STRIP_ROWS, look)]:
        console.print(row, no_wrap=True, crop=True, highlight=False)
    return console.export_svg(title=f"dflash chat --model {recording.head.pair}", unique_id="dflash-overlay")


def main() -> None:
    """Write the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, metavar="OUT.svg")
    parser.add_argument("--prompt", default=PROMPT)
    parser.add_argument("--tokens", type=int, default=120)
    arguments = parser.parse_args()
    recording = record_answer(load("smollm2-135m", max_new_tokens=arguments.tokens), arguments.prompt)
    arguments.out.write_text(picture(recording, middle(recording)), encoding="utf-8")


if __name__ == "__main__":
    main()
