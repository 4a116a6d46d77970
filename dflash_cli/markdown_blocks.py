"""From a growing Markdown text to its finished blocks: what nothing that follows can change. Imports no torch.

Follows CommonMark's block structure line by line, with the containers (quotes, list items) that are open. A cut is only
made where two blocks at the top meet, so that each block means alone what it means in the whole text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

TAB = 4
MAX_DEPTH = 40  # containers that one line may begin
CODE_INDENT = 4

_QUOTE = re.compile(" {0,3}> ?")
_QUOTE_GOES_ON = re.compile(" *> ?")  # as markdown-it reads it
_HEADING = re.compile(" {0,3}#{1,6}( |$)")
_FENCE = re.compile(" {0,3}(?:(`{3,})[^`]*|(~{3,}).*)$")
_UNDERLINE = re.compile(" {0,3}(=+|-+) *$")
_RULE = re.compile(r" {0,3}([-_*])( *\1){2,} *$")
_ITEM = re.compile(r"( {0,3}(?:[-+*]|(\d{1,9})[.)]))( +|$)")
_TABLE = re.compile(r" *(?=.*\|)\|? *:?-+:? *(\| *:?-+:? *)*(\| *)?$")

Leaf = Literal["none", "paragraph", "fence", "code"]
Line = Literal["blank", "indented", "heading", "fence", "underline", "rule", "text"]


@dataclass
class _Container:
    """An open quote (`width` 0), or a list item whose content stands `width` columns to the right."""

    width: int
    is_empty: bool = False


class MarkdownBlocks:
    """Takes a text in pieces and gives its blocks as they are finished; all of them and `rest`, joined, are the text.

    A block begins with the blank lines before it. The work is linear in the text, however small the pieces.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._partial: list[str] = []
        self._containers: list[_Container] = []
        self._leaf: Leaf = "none"
        self._fence = ""
        self._top: Literal["none", "list", "code", "other"] = "none"
        self._finished: list[str] = []

    def push(self, text: str) -> list[str]:
        """Take the next piece; returns the blocks that are finished now."""
        *lines, partial = text.split("\n")
        for line in lines:
            self._take("".join([*self._partial, line, "\n"]))
            self._partial.clear()
        if partial:
            self._partial.append(partial)
        finished, self._finished = self._finished, []
        return finished

    @property
    def rest(self) -> str:
        """What is not finished."""
        return "".join(self._lines + self._partial)

    def _take(self, line: str) -> None:
        """A whole line: cut before it, after it, or not at all."""
        text = _inside(line).expandtabs(TAB)
        depth, text = self._match(text)
        all_match = depth == len(self._containers)
        if all_match and self._leaf == "fence":
            self._lines.append(line)
            self._in_fence(text)
            return
        in_paragraph = self._leaf == "paragraph"
        kind, opened, fence = _begun(text, in_paragraph and all_match)
        if kind in ("text", "indented") and not opened and in_paragraph:
            self._lines.append(line)  # a paragraph goes on, even where the marks of its containers are left out
            return
        if self._ends_before(depth, kind, opened):
            self._cut()
        self._lines.append(line)
        self._containers[depth:] = opened
        leaves: dict[str, Leaf] = {"text": "paragraph", "fence": "fence", "indented": "code"}
        self._leaf, self._fence = leaves.get(kind, "none"), fence
        if kind == "blank" and not opened:
            return
        for container in self._containers[:-1] if opened else self._containers:
            container.is_empty = False
        if not self._containers:
            self._top = "code" if kind == "indented" else "other"
        elif not depth:
            self._top = "list" if self._containers[0].width else "other"
        if not self._containers and kind in ("heading", "rule", "underline"):
            self._cut()

    def _match(self, text: str) -> tuple[int, str]:
        """How many of the open containers the line belongs to, and what it has inside of them."""
        for index, container in enumerate(self._containers):
            if not container.width:
                if not (found := _QUOTE_GOES_ON.match(text)):
                    return index, text
                text = text[found.end() :]
            elif container.is_empty if not text.strip(" ") else _indent(text) < container.width:
                return index, text
            else:
                text = text[container.width :]
        return len(self._containers), text

    def _in_fence(self, text: str) -> None:
        mark = text.strip(" ")
        if _indent(text) < CODE_INDENT and len(mark) >= len(self._fence) and set(mark) == {self._fence[0]}:
            self._leaf = "none"
            if not self._containers:
                self._cut()

    def _ends_before(self, depth: int, kind: Line, opened: list[_Container]) -> bool:
        """Whether the block at the top is over before a line that belongs to `depth` of the open containers."""
        if kind == "blank" and not opened:
            return self._top == "other" and not depth
        if depth or kind == "underline":
            return False
        goes_on = (self._top == "list" and opened and opened[0].width) or (
            self._top == "code" and kind == "indented" and not opened
        )
        return not goes_on

    def _cut(self) -> None:
        """The lines so far are a block; blank lines at their end belong to the next one."""
        end = len(self._lines)
        while end and not _inside(self._lines[end - 1]).strip(" \t"):
            end -= 1
        if end:
            self._finished.append("".join(self._lines[:end]))
            del self._lines[:end]
        self._top = "none"


def _begun(text: str, in_paragraph: bool) -> tuple[Line, list[_Container], str]:
    """What a line begins, inside of the containers it belongs to: its kind, new containers, the marks of a fence."""
    opened: list[_Container] = []
    while True:
        goes_on = in_paragraph and not opened
        if not text.strip(" "):
            return "blank", opened, ""
        if len(opened) == MAX_DEPTH:
            return "text", opened, ""
        if _indent(text) >= CODE_INDENT:
            return "indented", opened, ""
        if found := _QUOTE.match(text):
            opened.append(_Container(0))
            text = text[found.end() :]
        elif _HEADING.match(text):
            return "heading", opened, ""
        elif found := _FENCE.match(text):
            return "fence", opened, found[1] or found[2]
        elif goes_on and _UNDERLINE.match(text):
            return "underline", opened, ""
        elif goes_on and _TABLE.match(text):
            return "text", opened, ""
        elif _RULE.match(text):
            return "rule", opened, ""
        elif (found := _ITEM.match(text)) and not (goes_on and not _interrupts(found, text)):
            inside = text[found.end() :]
            # Five spaces after the mark are one, and code that is indented by four.
            spaces = len(found[3]) if inside and len(found[3]) <= CODE_INDENT else 1
            opened.append(_Container(len(found[1]) + spaces, is_empty=not inside))
            text = text[len(found[1]) + spaces :]
        else:
            return "text", opened, ""


def _interrupts(item: re.Match[str], text: str) -> bool:
    """Whether a list item ends a paragraph before it: not where it is empty or its number is not 1."""
    return bool(text[item.end() :]) and item[2] in (None, "1")


def _inside(line: str) -> str:
    """A line without its end; other carriage returns are signs as `terminal.printable` shows them."""
    return line.removesuffix("\n").removesuffix("\r").replace("\r", "␍")


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip(" "))


def split_finished(source: str) -> tuple[list[str], str]:
    """The finished blocks of a text, and the rest; see `MarkdownBlocks`, which takes it in pieces."""
    blocks = MarkdownBlocks()
    return blocks.push(source), blocks.rest
