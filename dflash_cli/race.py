"""Plain against speculative decoding of one prompt, side by side, each on a clock of its own.

Two answers computed at the same time on one machine would slow each other down, and one after the other they would
meet different moments of a busy machine. So they take turns, block by block, and whoever has used less time is next:
at every moment both have had the same time, and the lead that is seen is the true one. Time is counted inside the
decoder only. The plain side needs a cache of its own, with rows for hardly more than this prompt and answer; the
speculative side uses the conversation's, which keeps the prompt. Imports no torch by itself.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rich.cells import cell_len

from dflash_cli.answer_text import AnswerText
from dflash_cli.conversation import no_room
from dflash_cli.errors import DFlashError, UsageError
from dflash_cli.events import Event, Finished
from dflash_cli.fetch_progress import megabytes
from dflash_cli.free_memory import free_memory
from dflash_cli.interrupts import Interrupts
from dflash_cli.memory import kv_bytes
from dflash_cli.memory_fit import NotEnoughMemory
from dflash_cli.stats import AnswerStats

if TYPE_CHECKING:
    from dflash_cli.compare import Comparison
    from dflash_cli.conversation import Conversation
    from dflash_cli.model import Model
    from dflash_cli.request import Request
    from dflash_cli.speculative import Decoder
    from dflash_cli.text import TextCodec

FIGURES = ("speed", "tau", "time", "tokens")  # of a side, by how much they tell
SHORTEST = 256  # tokens that an answer may have in a race, if the one before was shorter
ROUND_UP = 512  # cache rows of the plain side are a multiple: some backends compile anew for each number of them


class Racer:
    """One side: its events, its text so far, and the time it has used."""

    def __init__(self, name: str, decoder: Decoder, request: Request, codec: TextCodec, stop: Sequence[str]) -> None:
        self.name, self.decoder = name, decoder
        self.stats = AnswerStats(context=decoder.backend.max_len)
        self.used_s = 0.0
        self.is_finished = False
        self._text = AnswerText(codec, request.prompt_ids, stop)
        self._events: Iterator[Event] = decoder.generate(request)
        self._left_at: float | None = None

    @property
    def text(self) -> str:
        """What has come so far."""
        return self._text.text

    def step(self, interrupts: Interrupts) -> None:
        """Go on to the next event. Raises KeyboardInterrupt on Ctrl-C."""
        begun = time.perf_counter()
        waited = 0.0 if self._left_at is None else begun - self._left_at
        event = interrupts.call(lambda: next(self._events))
        self._left_at = time.perf_counter()
        self.used_s += self._left_at - begun
        self.stats.add(event, self._text.add(event).flags, waited * 1e3)
        self.is_finished = isinstance(event, Finished)

    def figures(self, without: Collection[str] = ()) -> str:
        """Speed, time, tokens and acceptance in words, but for those whose names (see FIGURES) are in `without`."""
        stats = self.stats
        parts = {
            "speed": "" if stats.tokens_per_s is None else f"{stats.tokens_per_s:.1f} tok/s",
            "time": f"{self.used_s:.1f} s",
            "tokens": f"{len(stats.ids)} token{'s' * (len(stats.ids) != 1)}",
            "tau": f"τ {stats.tau:.2f}" if stats.drafted and stats.tau is not None else "",
        }
        return " · ".join(text for name, text in parts.items() if text and name not in without)

    def figures_within(self, room: int) -> str:
        """As many of the figures as `room` columns hold, the more telling ones first."""
        texts = (self.figures(FIGURES[count:]) for count in range(len(FIGURES), -1, -1))
        return next(text for text in texts if cell_len(text) <= room)


@dataclass(frozen=True)
class Race:
    """Two racers at the start, warmed up."""

    model: Model
    prompt_ids: list[int]
    plain: Racer
    fast: Racer

    @property
    def racers(self) -> tuple[Racer, Racer]:
        """Plain, speculative."""
        return self.plain, self.fast

    def run(self, watch: Callable[[], None] = lambda: None) -> None:
        """To the end of both. `watch` is called after each event. Raises KeyboardInterrupt on Ctrl-C."""
        with Interrupts() as interrupts:
            while running := [each for each in self.racers if not each.is_finished]:
                min(running, key=lambda each: each.used_s).step(interrupts)
                watch()
                if interrupts.requested:
                    raise KeyboardInterrupt

    def compare(self) -> Comparison:
        """Speeds, and where the texts part, if they do."""
        from dflash_cli.compare import compare

        return compare(self.plain.decoder, self.prompt_ids, self.fast.stats, self.plain.stats)


def prepare(conversation: Conversation) -> Race:
    """A race over the conversation's last prompt. Raises UsageError where there is nothing to race, NotEnoughMemory."""
    from dflash_cli.compare import warm_up

    if not conversation.turns:
        raise UsageError("there is no prompt to race with: ask something first")
    if conversation.decoder.backend.block_size == 1:
        raise UsageError("there is nothing to race with: no drafter is in use; /draft NAME or /block default gives one")
    model, last = _seeded(conversation.model), conversation.turns[-1]
    prompt_ids = conversation.encode_first(len(conversation.turns) - 1, last.prompt)
    room = conversation.max_len - len(prompt_ids)
    if room < 1:
        raise DFlashError(no_room(conversation, len(prompt_ids)))
    limit = min(room, model.config.max_new_tokens or max(SHORTEST, len(last.stats.ids)))
    request = replace(model.request(prompt_ids), max_new_tokens=limit)
    fast = conversation.decoder.with_width(model.config.block if model.config.block != 1 else None)
    plain = _plain_decoder(model, min(-(-(len(prompt_ids) + limit) // ROUND_UP) * ROUND_UP, conversation.max_len))
    for decoder in (plain, fast):
        warm_up(decoder, request)
    racers = (
        Racer(name, each, request, model.codec, model.config.stop)
        for name, each in (("plain", plain), ("DFlash", fast))
    )
    return Race(model, prompt_ids, *racers)


def _seeded(model: Model) -> Model:
    """The same draws on both sides, where they are drawn at all."""
    return model if model.params.seed is not None else model.with_config(seed=secrets.randbits(32))


def _plain_decoder(model: Model, num_rows: int) -> Decoder:
    weight = model.target.model.embed_tokens.weight
    needed = kv_bytes(model.target.config, num_rows, weight.dtype.itemsize)
    free = free_memory(str(weight.device))
    if free is not None and needed > free:
        raise NotEnoughMemory(
            f"not enough memory to race: plain decoding needs {megabytes(needed)} of its own, "
            f"{megabytes(free)} are free; /undo or a smaller max_new_tokens makes it less",
            needed,
            free,
        )
    return replace(model, max_len=num_rows).plain_decoder()
