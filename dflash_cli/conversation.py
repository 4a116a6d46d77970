"""A conversation: the turns so far, and one decoder, so that what is in its cache need not be read again.

Knows no terminal. Imports no torch by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dflash_cli.answering import Watch, answer
from dflash_cli.stats import AnswerStats

if TYPE_CHECKING:
    from dflash_cli.model import Model
    from dflash_cli.text import Message


@dataclass(frozen=True)
class Turn:
    """What a person wrote, what came back, and its figures."""

    prompt: str
    answer: str
    stats: AnswerStats

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C came before the end of the answer."""
        return self.stats.reason == "interrupted"

    @property
    def lost(self) -> bool:
        """Nothing of the answer came before the interrupt: such a turn is not part of the conversation."""
        return self.interrupted and not self.answer

    @property
    def messages(self) -> list[Message]:
        """The turn as the chat template takes it."""
        return [{"role": "user", "content": self.prompt}, {"role": "assistant", "content": self.answer}]


class Conversation:
    """Turns with one model. The settings are those of `model.config`; `configure` changes them between turns."""

    def __init__(self, model: Model) -> None:
        """Raises DFlashError where the model's template is missing or refuses such a conversation."""
        self.model = model
        self.turns: list[Turn] = []
        self.model.encode(self.messages("Hello"))
        self.decoder = model.decoder()

    def messages(self, prompt: str) -> list[Message]:
        """The whole conversation, with `prompt` to be answered next."""
        *system, user = self.model.conversation(prompt)
        return [*system, *(message for turn in self.turns for message in turn.messages), user]

    def configure(self, **changes: object) -> None:
        """Change settings that need no loading (`system`, `thinking` ...).

        Raises DFlashError where the template refuses the result; then nothing has changed.
        """
        before = self.model
        self.model = before.with_config(**changes)
        try:
            self.model.encode(self.messages("Hello"))
        except BaseException:
            self.model = before
            raise

    def clear(self) -> None:
        """Forget all turns. The cache needs no reset: the next prompt is cut to what it shares with it."""
        self.turns.clear()

    def ask(self, prompt: str, watch: Watch = lambda _event, _text: None) -> Turn:
        """Answer `prompt`; the turn joins the conversation when it is over. Ctrl-C ends it early and is not raised.

        The last event is always Finished. Raises DFlashError (a prompt that does not fit, text that is not valid
        Unicode) and whatever `watch` raises; then the turn is not part of the conversation.
        """
        answered = answer(self.model, self.decoder, self.model.encode(self.messages(prompt)), watch)
        turn = Turn(prompt, answered.text, answered.stats)
        if not turn.lost:
            self.turns.append(turn)
        return turn
