"""Settled text that is not written yet: a line that has no end so far or, as Markdown, a block. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from rich.text import Text

from dflash_cli.overlay_render import Look
from dflash_cli.wrapping import Prose, divide, wrap, wrap_line


class Blocks(Protocol):
    """See `markdown_blocks.MarkdownBlocks`."""

    @property
    def rest(self) -> str:
        """What is not finished."""

    def push(self, text: str, /) -> list[str]:
        """The blocks that are finished by the next text."""


@dataclass(frozen=True)
class Markdown:
    """What makes rows of Markdown: `blocks` begins a new text, `render` takes a block, its width and the look."""

    blocks: Callable[[], Blocks]
    render: Callable[[str, int, Look], list[Text]]


class OpenText:
    """Takes text that will not change and gives the lines that are over; `text` is the rest."""

    def __init__(self, markdown: Callable[[], Markdown] | None = None) -> None:
        """`markdown` loads what it takes when it is needed; without there are lines only."""
        self.text = Text()
        self._load = markdown
        self._blocks: Blocks | None = None
        self._prose = Prose()
        self._goes_on: bool | None = None  # of a line whose first rows are written: whether it is cut between words
        self._num_pushed = 0  # characters of `text` that `_blocks` has
        self._num_written = 0  # characters of its unfinished block that are on the screen already, as plain lines

    def begin_blocks(self, source: str) -> None:
        """From here on the text is Markdown; `source` is all of it so far that was written as lines."""
        assert self._load is not None
        self._blocks, self._num_pushed = self._load().blocks(), 0
        self._blocks.push(source)
        self._num_written = len(self._blocks.rest)

    def lines(self, more: Text, width: int) -> list[Text]:
        """The rows of lines that end in the next text; code and tables are left to the terminal to cut."""
        self.text.append_text(more)
        self._blocks = None
        *lines, self.text = self.text.split("\n", allow_blank=True)
        return [row for line in lines for row in self._end_line(line, width)]

    def cut(self, width: int, rows: int) -> list[Text]:
        """The first rows of a line that is longer than `rows`."""
        is_prose = self._is_prose(self.text.plain)
        cut = (divide if is_prose else wrap)(self.text, width)
        if len(cut) <= rows:
            return []
        if self._goes_on is None:
            self._goes_on = self._prose.take(self.text.plain)
        self.text = Text().join(cut[-rows:])
        for row in cut[:-rows] if is_prose else ():
            row.rstrip()
        return cut[:-rows]

    def view(self, tail: Text, width: int, rows: int) -> list[Text]:
        """The last `rows` rows of the text with what may still change behind it."""
        whole = Text(self.text.plain) if self._blocks else self.text.copy()
        lines = whole.append_text(tail).split("\n", allow_blank=True)
        prose = self._prose.copy()
        kinds = [prose.take(line.plain) if index or self._goes_on is None else self._goes_on
                 for index, line in enumerate(lines)]  # fmt: skip
        shown: list[Text] = []
        for line, is_prose in zip(reversed(lines), reversed(kinds), strict=True):
            shown = (wrap_line if is_prose else wrap)(line, width) + shown
            if len(shown) >= rows:
                break
        return shown[-rows:]

    def blocks(self, more: Text, width: int, look: Look) -> list[Text]:
        """The rows of blocks that end in the next text."""
        assert self._blocks is not None
        self.text.append_text(more)
        done = self._blocks.push(self.text.plain[self._num_pushed :])
        self._num_pushed = len(self.text)
        return [row for block in done for row in self._rows(block, width, look)]

    def end_blocks(self, width: int, look: Look) -> list[Text]:
        """The rows of what is left."""
        assert self._blocks is not None
        return self._rows(self._blocks.rest, width, look)

    def end(self, width: int) -> list[Text]:
        """What is left, as last rows."""
        rows = self.lines(Text(), width)
        if self.text.plain:
            rows += self._end_line(self.text, width)
        self.text = Text()
        return rows

    def _is_prose(self, line: str) -> bool:
        return self._prose.peek(line) if self._goes_on is None else self._goes_on

    def _end_line(self, line: Text, width: int) -> list[Text]:
        is_prose = self._prose.take(line.plain) if self._goes_on is None else self._goes_on
        self._goes_on = None
        line.expand_tabs()
        return wrap_line(line, width) if is_prose else [line]

    def _rows(self, block: str, width: int, look: Look) -> list[Text]:
        """Of the block that the text begins with. One that is in part on the screen goes on as plain lines."""
        written, length = self._num_written, max(0, len(block) - self._num_written)
        self._num_written = max(0, written - len(block))
        done, self.text = self.text[:length], self.text[length:]
        self._num_pushed -= length
        if not written:
            assert self._load is not None
            return self._load().render(block, width, look)
        plain = OpenText()
        plain._prose, plain._goes_on, self._goes_on = self._prose, self._goes_on, None
        return [*plain.lines(Text(done.plain), width), *plain.end(width)]
