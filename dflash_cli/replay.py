"""A recorded answer once more, at any speed, without its model. Imports no torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dflash_cli.errors import UsageError
from dflash_cli.events import BlockDrafted, Finished
from dflash_cli.interrupts import Interrupts
from dflash_cli.overlay import OverlayState
from dflash_cli.overlay_render import Look, fresh, glyphs_for, settled
from dflash_cli.pace import pause
from dflash_cli.stats import AnswerStats
from dflash_cli.terminal import AnswerOutput
from dflash_cli.themes import DEFAULT_THEME, THEMES
from dflash_cli.thinking import TAGS

if TYPE_CHECKING:
    from dflash_cli.overlay_live import Overlay
    from dflash_cli.trace import Recording, Step

Flags = tuple[bool, ...]
Show = Callable[["Step", Flags], None]


def parse_speed(word: str) -> float:
    """How many times as fast as it was: "4", "0.25", "2x"; "" is 1. Raises UsageError."""
    try:
        speed = float(word.lower().removesuffix("x") or "1") if word.lower() != "x" else math.nan
    except ValueError:
        speed = math.nan
    if not 0 < speed < math.inf:
        raise UsageError(f"a replay takes a speed such as 0.25, 1 or 4x; found {word!r}")
    return speed


def stats_of(recording: Recording) -> AnswerStats:
    """The figures of a recorded answer; of one that broke off, up to its last event."""
    stats = AnswerStats()
    for step in recording.steps:
        stats.add(step.event)
    if recording.steps and not isinstance(recording.steps[-1].event, Finished):
        stats.decode_ms = (recording.steps[-1].at_s - recording.steps[0].at_s) * 1e3  # the first ends the prefill
    return stats


def replay(recording: Recording, overlay: Overlay, speed: float, *, show_thinking: bool = True) -> bool:
    """Play an answer on the overlay or, where it cannot draw, in symbols on stdout; False where Ctrl-C stopped it.

    A file or pipe gets it at once.
    """
    if overlay.is_on:
        with overlay.replay(show_thinking=show_thinking) as live:

            def show(step: Step, flags: Flags) -> None:
                live.add(step.event, flags, texts=step.texts, at=step.at_s)

            return play(recording, speed, show)
    output = AnswerOutput()
    symbols = Symbols(output.write, show_thinking=show_thinking)
    try:
        return play(recording, speed if output.on_terminal else math.inf, symbols.add)
    finally:
        output.end()


def play(recording: Recording, speed: float, show: Show) -> bool:
    """Give each step, with which of its ids are thinking, to `show` at its time; False where Ctrl-C ended it early."""
    with Interrupts() as interrupts:
        before = 0.0
        for step, flags in zip(recording.steps, thinking_flags(recording.steps), strict=True):
            pause((step.at_s - before) / speed, lambda: interrupts.requested)
            before = max(before, step.at_s)
            if interrupts.requested:
                break
            show(step, flags)
    return not interrupts.requested


def thinking_flags(steps: Sequence[Step]) -> list[Flags]:
    """For each step which of its ids are thinking, by the tags among their texts; none of drafts and of the end.

    A prompt that opened the thinking itself is known by the answer's closing tag.
    """
    opens, closes = TAGS
    texts = [text for step in steps if not isinstance(step.event, BlockDrafted | Finished) for text in step.texts]
    first = next((i for i, text in enumerate(texts) if text.strip()), 0)
    begin = first if first < len(texts) and texts[first] == opens else 0
    end = texts.index(closes) + 1 if closes in texts else len(texts) if opens in texts[first : first + 1] else 0
    flags, at = [], 0
    for step in steps:
        count = 0 if isinstance(step.event, BlockDrafted | Finished) else len(step.texts)
        flags.append(tuple(begin <= i < end for i in range(at, at + count)))
        at += count
    return flags


class Symbols:
    """Writes an answer as it was decided, block by block: `[accepted]~rejected~+bonus`."""

    def __init__(self, write: Callable[[str], None], *, encoding: str = "utf-8", show_thinking: bool = True) -> None:
        glyphs = glyphs_for(encoding)
        self._look = Look(THEMES[DEFAULT_THEME], glyphs, marks=True, encoding=encoding, thinking=show_thinking)
        self._write = write
        self._state = OverlayState()

    def add(self, step: Step, flags: Flags) -> None:
        """Write what the step decided; drafts show once they are verified."""
        self._state = self._state.add(step.event, step.texts, step.at_s, flags)
        if isinstance(step.event, BlockDrafted):
            return
        if isinstance(step.event, Finished):
            count = len(self._state.pieces)
            self._write(settled(self._state, count - len("".join(step.texts)[:1]), count, self._look).plain)
            return
        self._write(fresh(self._state, self._look).plain)
