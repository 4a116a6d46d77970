"""From the events of an answer to its text, in its two parts. The one fold that every reader of text uses.

Imports no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dflash_cli.events import BlockDrafted, Event, Finished
from dflash_cli.overlay import TokenTexts
from dflash_cli.parts import Parts
from dflash_cli.thinking import ThinkingStream

if TYPE_CHECKING:
    from dflash_cli.text import TextCodec


@dataclass(frozen=True, slots=True)
class Said:
    """Text that became certain by one event. `flags`: for each new id, whether it belongs to the thinking."""

    thinking: str = ""
    answer: str = ""
    flags: tuple[bool, ...] = ()


NOTHING = Said()


class AnswerText:
    """The text of one answer so far. `text` is all of it, tags included, `thinking` and `answer` what is shown."""

    def __init__(self, codec: TextCodec, prompt_ids: Sequence[int], stop: Sequence[str] = ()) -> None:
        self.text = self.thinking = self.answer = ""
        self._texts = TokenTexts(codec, stop)
        self._thinking = ThinkingStream(codec, prompt_ids)
        self._parts = Parts(thought=self._thinking.is_open)

    def add(self, event: Event) -> Said:
        """Take the next event. A character that the end cut in half is left out."""
        if isinstance(event, BlockDrafted):
            return NOTHING
        texts = self._texts.of(event)
        is_end = isinstance(event, Finished)
        flags = (self._thinking.is_open,) if is_end else self._thinking.push(event.new_ids)  # type: ignore[union-attr]
        self.text += "".join(texts)
        thinking, answer = "", ""
        for text, flag in zip(texts, flags, strict=True):
            shown, self._parts = self._parts.show(text, thinking=flag)
            thinking, answer = (thinking + shown, answer) if flag else (thinking, answer + shown)
        thinking += self._parts.rest if is_end else ""
        self.thinking += thinking
        self.answer += answer
        return Said(thinking, answer, () if is_end else flags)
