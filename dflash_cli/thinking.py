"""Which ids of an answer are the model's thinking: told by ids and the prompt's end, never by searching text.

Imports no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from dflash_cli.text import TextCodec

TAGS = ("<think>", "</think>")


class ThinkingStream:
    """Tells for each id of one answer whether it belongs to its thinking, the tags included.

    Only the tags' own ids count: a model that spells out "<think>" letter by letter, or a prompt that holds the word,
    switches nothing. Thinking begins in the prompt (templates that open the tag themselves) or with the answer's
    first id that is not blank; it ends once.
    """

    def __init__(self, codec: TextCodec, prompt_ids: Sequence[int]) -> None:
        self._codec, self._ids = codec, codec.thinking_ids
        self._state: Literal["before", "inside", "after"] = "before" if self._ids else "after"
        if self._ids:
            self._state = self._after_prompt(prompt_ids)

    @property
    def is_open(self) -> bool:
        """Whether the next id belongs to the thinking, unless the answer has not begun."""
        return self._state == "inside"

    def push(self, ids: Sequence[int]) -> tuple[bool, ...]:
        """One flag for each of the next ids."""
        return tuple(map(self._take, ids))

    def _after_prompt(self, prompt_ids: Sequence[int]) -> Literal["before", "inside", "after"]:
        """The last id of the prompt that is not blank decides."""
        assert self._ids is not None
        last = next((each for each in reversed(prompt_ids) if not self._is_blank(each)), None)
        return {self._ids[0]: "inside", self._ids[1]: "after"}.get(last, "before")  # type: ignore[return-value, arg-type]

    def _take(self, token_id: int) -> bool:
        if self._state == "after" or self._ids is None:
            return False
        opens, closes = self._ids
        if self._state == "before":
            if token_id == opens:
                self._state = "inside"
            elif not self._is_blank(token_id):
                self._state = "after"
            return self._state == "inside"
        if token_id == closes:
            self._state = "after"
        return True

    def _is_blank(self, token_id: int) -> bool:
        return token_id not in (self._ids or ()) and not self._codec.token_text(token_id).strip()
