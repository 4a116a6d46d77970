"""Markdown as rows of text for a terminal, a block at a time; never a prettier guess at what comes. Imports no torch.

`markdown_blocks` finds the blocks. Rows hold no newline and are no wider than asked for. Where there are no colours
the marks of Markdown stay, so that headings, code and emphasis are still told apart.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text

from dflash_cli.markdown_blocks import MarkdownBlocks, split_finished
from dflash_cli.markdown_inline import inline
from dflash_cli.markdown_table import table
from dflash_cli.overlay_render import UNICODE, Look
from dflash_cli.terminal import printable
from dflash_cli.wrapping import wrap, wrap_words

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.tree import SyntaxTreeNode

__all__ = ["MarkdownBlocks", "render_block", "split_finished"]
MAX_NESTING = 40  # containers and marks inside of each other; a text that has more is shown as it is
NARROW = 8  # columns below which a list or a quote no longer moves its text to the right
RULE_WIDTH = 24
CODE_THEME = "ansi_dark"  # the terminal's own colours
CODE_INDENT = "    "
HEADINGS = ("bold underline", "bold", "bold italic")
CELL_END = re.compile(r"(?<!\\)\|")


def render_block(block: str, width: int, look: Look) -> list[Text]:
    """The rows of a block of Markdown, or of an unfinished rest; none is wider than `width` columns (at least 2).

    A row is empty where the source has blank lines, those before the block included; none for blank lines alone.
    """
    source = printable(block)
    if not source.strip():
        return []
    nodes = _parse(source)
    if nodes is None:
        return [row for line in source.strip("\n").split("\n") for row in wrap(Text(look.visible(line)), width)]
    lines = source.split("\n")
    blank = [] if lines[0].strip() else [Text()]
    return blank + _Renderer(look, lines).rows(nodes, width)


def _parse(source: str) -> list[SyntaxTreeNode] | None:
    """The blocks at the top; None for what is nested too deeply."""
    from markdown_it.tree import SyntaxTreeNode

    tokens = _parser().parse(source)
    if any(each.level >= MAX_NESTING for token in tokens for each in (token, *(token.children or ()))):
        return None
    return SyntaxTreeNode(tokens).children


@functools.cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": MAX_NESTING + 1})
    # A link's definition would be shown nowhere, and may come after its use.
    return parser.enable(["table", "strikethrough"]).disable("reference")


class _Renderer:
    """`lines`: of the source, to see where it has blank ones."""

    def __init__(self, look: Look, lines: list[str]) -> None:
        self.look, self._lines = look, lines

    def rows(self, nodes: list[SyntaxTreeNode], width: int) -> list[Text]:
        """The rows of sibling blocks."""
        rows: list[Text] = []
        for index, node in enumerate(nodes):
            if index and self._follows_blank(node):
                rows.append(Text())
            rows += self._block(node, width)
        return rows

    def _block(self, node: SyntaxTreeNode, width: int) -> list[Text]:
        kind = node.type
        if kind == "heading":
            return self._heading(node, width)
        if kind in ("fence", "code_block"):
            return self._code(node, width)
        if kind in ("bullet_list", "ordered_list"):
            return self._list(node, width)
        if kind == "blockquote":
            mark = self._faint(self._sign("│ ", "> "))
            return self._moved(node, mark, mark, width)
        if kind == "hr":
            return [self._faint(self._sign("─", "-") * min(width, RULE_WIDTH))]
        if kind == "table":
            return self._as_it_is(node, width) if self._has_lost_cells(node) else table(node, width, self.look)
        return wrap_words(inline(node.children[0], self.look), width)

    def _heading(self, node: SyntaxTreeNode, width: int) -> list[Text]:
        level = int(node.tag.removeprefix("h"))
        mark, style = ("#" * level + " ", "") if self.look.marks else ("", HEADINGS[min(level, len(HEADINGS)) - 1])
        return wrap_words(Text.assemble(mark, inline(node.children[0], self.look, style)), width)

    def _list(self, node: SyntaxTreeNode, width: int) -> list[Text]:
        # The source's own numbers, not counted anew: an answer may count down.
        size = max(len(item.info) for item in node.children)
        rows: list[Text] = []
        for index, item in enumerate(node.children):
            if index and self._follows_blank(item):
                rows.append(Text())
            mark = f"{item.info:>{size}}{item.markup} " if size else self._sign("• ", "- ")
            rows += self._moved(item, Text(mark), Text(" " * cell_len(mark)), width)
        return rows

    def _moved(self, node: SyntaxTreeNode, first: Text, others: Text, width: int) -> list[Text]:
        """The children to the right of a mark; below it where there is no room."""
        inner = width - first.cell_len
        if inner < NARROW:
            return wrap_words(first, width) + self.rows(node.children, width)
        rows = [
            Text.assemble(others if index else first, row)
            for index, row in enumerate(self.rows(node.children, inner) or [Text()])
        ]
        for row in rows:
            row.rstrip()
        return rows

    def _code(self, node: SyntaxTreeNode, width: int) -> list[Text]:
        """The code as it is, between its fences, which say where it ends without a frame around it."""
        is_fenced = node.type == "fence"
        code = self._highlighted(node.content.removesuffix("\n"), node.info if is_fenced else "")
        lines = list(code.split("\n", allow_blank=True)) if node.content else []
        if not is_fenced:
            lines = [Text.assemble(CODE_INDENT if line.plain else "", line) for line in lines]
        else:
            lines = [self._faint(node.markup + node.info.rstrip()), *lines, self._faint(node.markup)]
        return [row for line in lines for row in wrap(line, width)]

    def _highlighted(self, code: str, info: str) -> Text:
        visible = self.look.visible(code)
        language = next(iter(info.split()), "")
        if self.look.marks or not language:
            return Text(visible)
        from rich.syntax import Syntax

        syntax = Syntax("", language, theme=CODE_THEME, background_color="default", tab_size=0)
        if syntax.lexer is None:
            return Text(visible)
        text = syntax.highlight(visible)
        text.right_crop(len(text) - len(visible))  # lexers end the last line
        text.style = ""
        return text if text.plain == visible else Text(visible)

    def _has_lost_cells(self, node: SyntaxTreeNode) -> bool:
        """Whether a line has more cells than the table has columns: the parser drops them."""
        columns = len(node.children[0].children[0].children)
        assert node.map is not None
        lines = self._lines[node.map[0] : node.map[1]]
        return any(len(CELL_END.findall(line.strip("> \t").strip("|"))) >= columns for line in lines)

    def _as_it_is(self, node: SyntaxTreeNode, width: int) -> list[Text]:
        assert node.map is not None
        return [
            row for line in self._lines[node.map[0] : node.map[1]] for row in wrap(Text(self.look.visible(line)), width)
        ]

    def _follows_blank(self, node: SyntaxTreeNode) -> bool:
        return node.map is not None and not self._lines[node.map[0] - 1].strip("> \t")

    def _sign(self, sign: str, ascii_sign: str) -> str:
        return sign if self.look.glyphs is UNICODE else ascii_sign

    def _faint(self, text: str) -> Text:
        return Text(self.look.visible(text), "" if self.look.marks else self.look.theme.faint)
