"""Ids in as they come, text out once it is certain: whole characters only, and nothing from a stop string on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dflash_cli.errors import UsageError

if TYPE_CHECKING:
    from dflash_cli.text import TextCodec

REPLACEMENT = "\ufffd"
# A character has at most 4 bytes and every id kept holds at least one, so 4 ids hold all that can still change.
KEPT, FULL = 4, 32


class TextStream:
    """Turns the ids of one answer into text. What `push` and `flush` return, joined, is `codec.decode` of all ids.

    Ids are decoded together with the few before them, never alone. With stop strings the text ends before the stop
    string that is complete first (of several complete at once, the longest).
    """

    def __init__(self, codec: TextCodec, stop: Sequence[str] = ()) -> None:
        """Raises UsageError for an empty stop string."""
        if any(not each for each in stop):
            raise UsageError("a stop string is empty; expected at least one character")
        self.stopped_after: int | None = None
        """How many of the pushed ids it took to complete a stop string; None while none is."""
        self._codec = codec
        self._stops = [_StopString(each) for each in stop]
        self._num_pushed = 0
        self._window: list[int] = []  # the last ids that show
        self._done = 0  # how many characters of the window's text are settled
        self._held = ""  # settled text that may be the beginning of a stop string

    def push(self, ids: Sequence[int]) -> str:
        """Take the next ids and return the text that is now certain, '' once stopped."""
        if not self._stops:
            self._num_pushed += len(ids)
            return self._settle(ids)
        text = ""
        for each in ids:
            if self.stopped_after is not None:
                break
            self._num_pushed += 1
            text += self._look(self._settle([each]))
        return text

    def flush(self) -> str:
        """Return what was held back; the answer is over."""
        if self.stopped_after is not None:
            return ""
        rest = self._codec.decode(self._window)[self._done :]
        self._window, self._done = [], 0
        text = self._look(rest) + self._held
        self._held = ""
        return text

    def _settle(self, ids: Sequence[int]) -> str:
        """New text of the ids. Of an unfinished character only the last U+FFFD can still become another one."""
        self._window += [each for each in ids if self._codec.shows(each)]
        text = self._codec.decode(self._window)
        end = len(text) - text.endswith(REPLACEMENT)
        new, self._done = text[self._done : end], end
        if len(self._window) > FULL:
            self._window = self._window[-KEPT:]
            text = self._codec.decode(self._window)
            self._done = len(text) - text.endswith(REPLACEMENT)
        return new

    def _look(self, text: str) -> str:
        """The part of the held and the new text that is before any stop string, whole or begun."""
        for i, char in enumerate(text):
            if found := max((stop.length for stop in self._stops if stop.advance(char)), default=0):
                self.stopped_after = self._num_pushed
                before = self._held + text[: i + 1]
                self._held = ""
                return before[:-found]
        whole = self._held + text
        end = len(whole) - max((stop.matched for stop in self._stops), default=0)
        self._held = whole[end:]
        return whole[:end]


class _StopString:
    """Knuth–Morris–Pratt, a character at a time: no text is looked at twice, however long the stop string."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.length = len(text)
        self.matched = 0
        """How many characters of the stop string the text so far ends with."""
        # _shorter[n]: the longest proper prefix that the first n characters also end with.
        self._shorter = [0, 0]
        for char in text[1:]:
            self._shorter.append(self._next(self._shorter[-1], char))

    def advance(self, char: str) -> bool:
        """Take the next character of the text; True when the stop string is complete."""
        self.matched = self._next(self.matched, char)
        return self.matched == self.length

    def _next(self, matched: int, char: str) -> int:
        while matched and self._text[matched] != char:
            matched = self._shorter[matched]
        return matched + (self._text[matched] == char)
