"""A Markdown table as rows of text: columns where they fit, else one line a cell. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from rich.text import Text

from dflash_cli.markdown_inline import inline
from dflash_cli.overlay_render import UNICODE, Look
from dflash_cli.wrapping import longest_word, wrap_words

if TYPE_CHECKING:
    from markdown_it.tree import SyntaxTreeNode

GAP = "  "


def table(node: SyntaxTreeNode, width: int, look: Look) -> list[Text]:
    """The rows of a table, none wider than `width`."""
    head, *body = [row.children for part in node.children for row in part.children]
    bold = "" if look.marks else "bold"
    titles = [_cell(cell, look, bold) for cell in head]
    lines = [[_cell(cell, look) for cell in cells] for cells in body]
    widths = _widths(list(zip(titles, *lines, strict=True)), width - len(GAP) * (len(titles) - 1))
    if widths is None:
        return _records(titles, lines, width)
    aligns = [str(cell.attrs.get("style", "")).removeprefix("text-align:") for cell in head]
    rule = [Text(("─" if look.glyphs is UNICODE else "-") * each, look.theme.faint if bold else "") for each in widths]
    return [row for cells in (titles, rule, *lines) for row in _rows(cells, widths, aligns)]


def _cell(node: SyntaxTreeNode, look: Look, style: str = "") -> Text:
    return inline(node.children[0], look, style) if node.children else Text()


def _widths(columns: list[tuple[Text, ...]], room: int) -> list[int] | None:
    """The columns' widths so that no word is cut; None where that is too much for the room."""
    least = [max(longest_word(cell.plain) for cell in column) for column in columns]
    if sum(least) > room:
        return None
    widths = [max(1, *(min(cell.cell_len, room) for cell in column)) for column in columns]
    while sum(widths) > room:
        widest = max((i for i in range(len(widths)) if widths[i] > least[i]), key=lambda i: widths[i])
        widths[widest] -= 1
    return widths


def _rows(cells: Sequence[Text], widths: Sequence[int], aligns: Sequence[str]) -> list[Text]:
    """One line of the table: as many rows as its highest cell."""
    wrapped = [wrap_words(cell, width) for cell, width in zip(cells, widths, strict=True)]
    rows = []
    for parts in zip_longest(*wrapped):
        padded = [
            _aligned(Text() if part is None else part, width, align)
            for part, width, align in zip(parts, widths, aligns, strict=True)
        ]
        row = Text(GAP).join(padded)
        row.rstrip()
        rows.append(row)
    return rows


def _aligned(text: Text, width: int, align: str) -> Text:
    room = max(0, width - text.cell_len)
    left = {"right": room, "center": room // 2}.get(align, 0)
    return Text.assemble(" " * left, text, " " * (room - left))


def _records(titles: list[Text], lines: list[list[Text]], width: int) -> list[Text]:
    """`Title: cell`, a line each; an empty row between the table's lines."""
    if not lines:
        return [row for title in titles for row in wrap_words(title, width)]
    rows: list[Text] = []
    for index, cells in enumerate(lines):
        rows += [Text()] if index else []
        for title, cell in zip(titles, cells, strict=True):
            rows += wrap_words(Text.assemble(title, ": ", cell), width)
    return rows
