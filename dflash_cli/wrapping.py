"""Lines of text as rows of a terminal: cut between words or, where each column counts, at the last one.

Imports no torch.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from rich.cells import cell_len, get_character_cell_size
from rich.text import Text

JOINER = "\u200d"
TAB = 8
WIDE = 2  # cells of an ideograph, which a row may end before

_FENCE = re.compile(r"\s*(?:[-*+>] *)*(`{3,}|~{3,})")
_CODE_OR_TABLE = re.compile(r"\s*\||\t| {4,}(?! |[-*+•] |\d+[.)] )")


def wrap(line: Text, width: int) -> list[Text]:
    """A line without newlines cut into rows as a terminal cuts it: at the last column, wherever that is in a word."""
    return _divided(_expanded(line), width, _cuts)


def wrap_line(line: Text, width: int) -> list[Text]:
    """A line without newlines cut between words; where it is cut, spaces are left out."""
    rows = divide(line, width)
    for index, row in enumerate(rows):
        if index + 1 < len(rows) or cell_len(row.plain) > width:
            row.rstrip()
    return rows


def divide(line: Text, width: int) -> list[Text]:
    """As `wrap_line`, with all spaces: the rows joined are the line (its tabs expanded)."""
    return _divided(_expanded(line), width, _word_cuts)


def wrap_words(text: Text, width: int) -> list[Text]:
    """Rows of a text with newlines, cut between words, without spaces at their ends."""
    rows: list[Text] = []
    for line in text.split("\n", allow_blank=True):
        for row in divide(line, width):
            row.rstrip()
            rows.append(row)
    return rows


def longest_word(text: str) -> int:
    """Columns that `wrap_words` needs if it is not to cut a word."""
    sizes = [get_character_cell_size(char) for char in text]
    parts = "".join(" " if size == WIDE else char for char, size in zip(text, sizes, strict=True)).split(" ")
    return max(*(len(part) for part in parts), max(sizes, default=0), 1)


class Prose:
    """Tells, line by line, what of a source may be cut between words: all but code and tables."""

    def __init__(self, fence: str = "") -> None:
        self._fence = fence  # that is open

    def copy(self) -> Prose:
        """One that goes on from here on its own."""
        return Prose(self._fence)

    def peek(self, line: str) -> bool:
        """Whether the next line, or its beginning, may be cut between words."""
        return not (self._fence or _FENCE.match(line) or _CODE_OR_TABLE.match(line))

    def take(self, line: str) -> bool:
        """The same, and go past it."""
        is_prose, found = self.peek(line), _FENCE.match(line)
        if not self._fence:
            self._fence = found[1] if found else ""
        elif found and found[1].startswith(self._fence) and not line[found.end() :].strip():
            self._fence = ""
        return is_prose


def _expanded(line: Text) -> Text:
    if "\t" in line.plain:
        line = line.copy()
        line.expand_tabs(TAB)
    return line


def _divided(line: Text, width: int, cut: Callable[[str, int], list[int]]) -> list[Text]:
    cuts = cut(line.plain, width)
    return list(line.divide(cuts)) if cuts else [line]


def _cuts(text: str, width: int) -> list[int]:
    if text.isascii():
        return list(range(width, len(text), width))
    cuts, column, previous = [], 0, ""
    for i, char in enumerate(text):
        cells = get_character_cell_size(char)
        belongs = previous == JOINER or "\U0001f3fb" <= char <= "\U0001f3ff"
        if column and cells and column + cells > width and not belongs:
            cuts.append(i)
            column = 0
        column, previous = column + cells, char
    return cuts


def _hangs(text: str, index: int) -> bool:
    """A space may stand past the margin, where it is left out; one that carries an accent is seen."""
    return text[index] == " " and get_character_cell_size(text[index + 1 : index + 2] or " ") > 0


def _word_cuts(text: str, width: int) -> list[int]:
    if len(text) <= width and text.isascii():
        return []
    cuts: list[int] = []
    begin = word = column = since_word = 0
    previous = ""
    for i, char in enumerate(text):
        cells = get_character_cell_size(char)
        belongs = _hangs(text, i) or not cells or previous == JOINER or "\U0001f3fb" <= char <= "\U0001f3ff"
        if not belongs and (cells == WIDE or previous == " "):
            word, since_word = i, 0
        if not belongs and column + cells > width and i > begin:
            fits = word > begin and since_word + cells <= width
            begin, column, since_word = (word, since_word, since_word) if fits else (i, 0, 0)
            cuts.append(begin)
        column, since_word, previous = column + cells, since_word + cells, char
    return cuts
