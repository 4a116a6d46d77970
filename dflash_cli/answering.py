"""One answer from a loaded model: text, figures, and a clean end when Ctrl-C comes. Imports no torch by itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dflash_cli.answer_text import AnswerText, Said
from dflash_cli.events import Event, Finished, Prefilled
from dflash_cli.interrupts import Interrupts
from dflash_cli.stats import AnswerStats

if TYPE_CHECKING:
    from dflash_cli.model import Model
    from dflash_cli.pace import Pace
    from dflash_cli.request import Request
    from dflash_cli.speculative import Decoder

Watch = Callable[[Event, Said], None]
"""Sees each event of an answer with the text that became certain by it."""


@dataclass(frozen=True)
class Answered:
    """An answer that is over: by a stop, a limit or Ctrl-C, as `stats.reason` says.

    `text` is all that was generated, `thinking` and `answer` its two parts without tags.
    """

    text: str
    thinking: str
    answer: str
    stats: AnswerStats

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C came before the end of the answer."""
        return self.stats.reason == "interrupted"


def answer(
    model: Model,
    decoder: Decoder,
    prompt_ids: Sequence[int],
    watch: Watch = lambda _event, _said: None,
    pace: Pace | None = None,
) -> Answered:
    """Answer one prompt. Ctrl-C ends it within a block and is not raised; the last event is always Finished.

    `pace` slows it down so that people can look. Raises DFlashError for a prompt that does not fit, and whatever
    `watch` raises.
    """
    stats = AnswerStats(context=decoder.backend.max_len)
    text, paused_ms = AnswerText(model.codec, prompt_ids, model.config.stop), 0.0
    with Interrupts() as interrupts:
        for event in _until_interrupted(decoder, model.request(prompt_ids), interrupts):
            said = text.add(event)
            stats.add(event, said.flags, paused_ms)
            watch(event, said)
            paused_ms = 0.0 if pace is None else pace.wait(event, lambda: interrupts.requested) * 1e3
    return Answered(text.text, text.thinking, text.answer, stats)


def _until_interrupted(decoder: Decoder, request: Request, interrupts: Interrupts) -> Iterator[Event]:
    """The decoder's events; where Ctrl-C comes first they end with a Finished that says so."""
    events = decoder.generate(request)
    begun: float | None = None
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
    yield Finished("interrupted", 0.0 if begun is None else (time.perf_counter() - begun) * 1e3)
