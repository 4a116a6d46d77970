"""One answer from a loaded model: text, figures, and a clean end when Ctrl-C comes. Imports no torch by itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dflash_cli.events import BlockVerified, Event, Finished, Prefilled
from dflash_cli.interrupts import Interrupts
from dflash_cli.stats import AnswerStats

if TYPE_CHECKING:
    from dflash_cli.model import Model
    from dflash_cli.speculative import Decoder, Request

REPLACEMENT = "\ufffd"
Watch = Callable[[Event, str], None]
"""Sees each event of an answer with the text that became certain by it."""


@dataclass(frozen=True)
class Answered:
    """An answer that is over: by a stop, a limit or Ctrl-C, as `stats.reason` says."""

    text: str
    stats: AnswerStats

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C came before the end of the answer."""
        return self.stats.reason == "interrupted"


def answer(
    model: Model, decoder: Decoder, prompt_ids: Sequence[int], watch: Watch = lambda _event, _text: None
) -> Answered:
    """Answer one prompt. Ctrl-C ends it within a block and is not raised; the last event is always Finished.

    Raises DFlashError for a prompt that does not fit, and whatever `watch` raises.
    """
    stats, stream, pieces = AnswerStats(), model.text_stream(), list[str]()
    with Interrupts() as interrupts:
        for event in _until_interrupted(decoder, model.request(prompt_ids), interrupts):
            stats.add(event)
            piece = ""
            if isinstance(event, Prefilled | BlockVerified):
                piece = stream.push(event.new_ids)
            elif isinstance(event, Finished):
                # A character that was cut in half will never be whole.
                piece = stream.flush() if event.reason == "stop" else stream.flush().rstrip(REPLACEMENT)
            pieces.append(piece)
            watch(event, piece)
    return Answered("".join(pieces), stats)


def _until_interrupted(decoder: Decoder, request: Request, interrupts: Interrupts) -> Iterator[Event]:
    """The decoder's events; where Ctrl-C comes first they end with a Finished that says so."""
    events = decoder.generate(request)
    begun = time.perf_counter()
    try:
        while not interrupts.requested:
            event = interrupts.call(lambda: next(events, None))
            if event is None:
                return
            if isinstance(event, Prefilled):
                begun = time.perf_counter()
            yield event
            if isinstance(event, Finished):
                return
    except KeyboardInterrupt:
        interrupts.requested = True
    yield Finished("interrupted", (time.perf_counter() - begun) * 1e3)
