"""A conversation: the turns so far, and one decoder, so that what is in its cache need not be read again.

Knows no terminal. Imports no torch by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dflash_cli.answering import Watch, answer
from dflash_cli.errors import DFlashError, UsageError
from dflash_cli.hints import Hints, ways_to_room
from dflash_cli.stats import AnswerStats
from dflash_cli.thinking import TAGS

if TYPE_CHECKING:
    from backends.base import Backend
    from dflash_cli.model import Model
    from dflash_cli.pace import Pace
    from dflash_cli.speculative import Decoder
    from dflash_cli.text import Message


SHORT = "Hello"
SHORT_MESSAGE = {"role": "user", "content": SHORT}


@dataclass(frozen=True)
class Turn:
    """What a person wrote, what came back (`text`, and its parts `thinking` and `answer` without tags), its figures."""

    prompt: str
    text: str
    thinking: str
    answer: str
    stats: AnswerStats

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C came before the end of the answer."""
        return self.stats.reason == "interrupted"

    @property
    def lost(self) -> bool:
        """Nothing of the answer came before the interrupt: such a turn is not part of the conversation."""
        return self.interrupted and not self.text

    @property
    def messages(self) -> list[Message]:
        """The turn as the chat template takes it, which drops the thinking if it is one that does.

        Templates know thinking by its end: an interrupted one gets it here.
        """
        is_open = self.stats.thinking_tokens == len(self.stats.ids) > 0 and not self.text.endswith(TAGS[1])
        content = f"{self.text}\n{TAGS[1]}\n\n" if self.thinking and is_open else self.text
        return [{"role": "user", "content": self.prompt}, {"role": "assistant", "content": content}]


class Conversation:
    """Turns with a model. The settings are those of `model.config`; all can change between turns, the turns stay.

    `speculates`: False decodes plainly with a drafter at hand, which goes on reading along: to switch back needs no
    prefill.
    """

    def __init__(self, model: Model) -> None:
        """Raises DFlashError where the model's template is missing or refuses such a conversation."""
        self.model = model
        self.turns: list[Turn] = []
        self.speculates = True
        self.changed: set[str] = set()
        """The settings that were changed since the beginning."""
        self.hints = Hints()
        self._decoder: Decoder | None = None
        self.adopt(model)

    @property
    def decoder(self) -> Decoder:
        """What answers, with what its cache holds. Raises DFlashError where no model is loaded, see `release`."""
        if self._decoder is None:
            raise DFlashError("no model is loaded; /model NAME loads one")
        return self._decoder

    @property
    def max_len(self) -> int:
        """Tokens that the conversation and the next answer may have together."""
        return self.model.max_len if self._decoder is None else self._decoder.backend.max_len

    def messages(self, prompt: str) -> list[Message]:
        """The whole conversation, with `prompt` to be answered next."""
        return _messages(self.model, self.turns, prompt)

    def encode(self, prompt: str) -> list[int]:
        """The ids of the whole conversation with `prompt` to be answered next."""
        return self.model.encode(self.messages(prompt))

    def encode_first(self, count: int, prompt: str = SHORT) -> list[int]:
        """The ids of the first `count` turns, under the settings of now, with `prompt` to be answered next."""
        return self.model.encode(_messages(self.model, self.turns[:count], prompt))

    def configure(self, **changes: object) -> None:
        """Change settings that need no loading (`system`, `block` ...), and nothing where it raises DFlashError."""
        self.adopt(self.model.with_config(**changes))

    def speculate(self, on: bool) -> None:
        """Decode with the drafter, or plainly. Raises UsageError where there is no drafter."""
        if on and self.model.drafter is None:
            raise UsageError(f"{self.model.pair.name} has no drafter: plain decoding only; /draft NAME loads one")
        before, self.speculates = self.speculates, on
        try:
            self.adopt(self.model.with_config(block=None) if on and self.model.config.block == 1 else self.model)
        except BaseException:
            self.speculates = before
            raise

    def adopt(self, model: Model) -> None:
        """Go on with `model`. The cache is kept where it is of use to it.

        Raises DFlashError where its template refuses the conversation or its block size cannot be, MemoryError or
        RuntimeError where its caches do not fit; then nothing has changed.
        """
        model.encode(_messages(model, self.turns, SHORT))
        # Where no model is loaded, a setting waits for the next one.
        decoder = None if model.target is None else self._decoder_for(model)
        self.model, self._decoder = model, decoder

    def _decoder_for(self, model: Model) -> Decoder:
        before, width = self._decoder, model.config.block if self.speculates else 1
        if before is None or not _serves(before.backend, self.model, model, width):
            return model.decoder(width=width, after=before)
        return before.with_width(width)

    def release(self, *, keep_weights: bool) -> None:
        """Let go of the caches, and of the weights unless `keep_weights`, so that another model has room."""
        self._decoder = None
        if not keep_weights:
            self.model = replace(self.model, target=None, drafter=None)  # type: ignore[arg-type]

    @property
    def is_released(self) -> bool:
        """Whether no model is loaded."""
        return self._decoder is None

    def clear(self) -> None:
        """Forget all turns. The cache needs no reset: the next prompt is cut to what it shares with it."""
        self.turns.clear()

    def take_up(self, turns: Sequence[Turn], system: str | None) -> None:
        """Go on with other turns under another system prompt; where the template refuses them, nothing has changed."""
        before = list(self.turns)
        self.turns[:] = turns
        try:
            self.configure(system=system)
        except BaseException:
            self.turns[:] = before
            raise

    def undo(self, count: int = 1) -> list[Turn]:
        """Take the last `count` turns back; those that were."""
        first = max(0, len(self.turns) - count)
        taken, self.turns[first:] = self.turns[first:], []
        return taken

    def ask(self, prompt: str, watch: Watch = lambda _event, _said: None, pace: Pace | None = None) -> Turn:
        """Answer `prompt`; the turn joins the conversation when it is over. Ctrl-C ends it early and is not raised.

        `pace`: see `answering.answer`.
        The last event is always Finished. Raises DFlashError (a prompt that does not fit, text that is not valid
        Unicode) and whatever `watch` raises; then the turn is not part of the conversation.
        """
        decoder, ids = self.decoder, self.encode(prompt)
        if len(ids) >= self.max_len:
            raise DFlashError(no_room(self, len(ids)))
        done = answer(self.model, decoder, ids, watch, pace)
        turn = Turn(prompt, done.text, done.thinking, done.answer, done.stats)
        if not turn.lost:
            self.turns.append(turn)
        return turn


def no_room(conversation: Conversation, num_tokens: int) -> str:
    """Says that a prompt of `num_tokens`, the whole conversation included, does not fit, and what makes room."""
    what = "the conversation with this message" if conversation.turns else "the message"
    held = f"{what} has {num_tokens} tokens and the context holds {conversation.max_len}, the answer included"
    return f"{held}; {ways_to_room(conversation)}"


def _messages(model: Model, turns: Sequence[Turn], prompt: str) -> list[Message]:
    *system, user = model.conversation(prompt)
    return [*system, *(message for turn in turns for message in turn.messages), user]


def _serves(backend: Backend, before: Model, after: Model, width: int | None) -> bool:
    """Whether the backend made for one model does for another."""
    same = before.target is after.target and before.drafter is after.drafter and before.max_len == after.max_len
    has_drafter = backend.block_size > 1 or after.drafter is None or width == 1
    return same and has_drafter and after.config.backend in (before.config.backend, backend.name)
