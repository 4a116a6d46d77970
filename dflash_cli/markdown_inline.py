"""The inside of a Markdown paragraph as styled text. Imports no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from dflash_cli.overlay_render import Look

if TYPE_CHECKING:
    from markdown_it.tree import SyntaxTreeNode

STYLES = {"strong": "bold", "em": "italic", "s": "strike"}
CODE = "cyan"
LINK = "underline"


def inline(node: SyntaxTreeNode, look: Look, style: str = "") -> Text:
    """An inline node as text, with a newline where the source has one. Links are shown as text and address."""
    text = Text()
    _add(text, node.children, look, style)
    return text


def _add(text: Text, nodes: list[SyntaxTreeNode], look: Look, style: str) -> None:
    for node in nodes:
        kind = node.type
        if kind in ("softbreak", "hardbreak"):
            text.append("\n")
        elif kind in STYLES:
            mark = node.markup if look.marks else ""
            text.append(mark)
            _add(text, node.children, look, _styled(style, STYLES[kind], look))
            text.append(mark)
        elif kind == "code_inline":
            mark = node.markup if look.marks else ""
            text.append(f"{mark}{look.visible(node.content)}{mark}", _styled(style, CODE, look))
        elif kind == "link":
            begin = len(text)
            _add(text, node.children, look, _styled(style, LINK, look))
            _add_address(text, text.plain[begin:], node, "href", look)
        elif kind == "image":
            text.append(look.visible(_one_line(node.content)), style)
            _add_address(text, node.content, node, "src", look)
        else:
            text.append(look.visible(_one_line(node.content)), style)


def _add_address(text: Text, label: str, node: SyntaxTreeNode, key: str, look: Look) -> None:
    """The address in brackets, where the label is not the address already."""
    from markdown_it.common.normalize_url import normalizeLinkText

    address = normalizeLinkText(str(node.attrs.get(key, "")))
    title = _one_line(str(node.attrs.get("title", "")))
    shown = [address] if address.removeprefix("mailto:") != label else []
    if parts := [*shown, *([f'"{title}"'] if title else [])]:
        faint = _styled("", look.theme.faint, look)
        text.append(look.visible(_one_line(f" ({' '.join(parts)})")), faint)


def _one_line(text: str) -> str:
    return text.replace("\n", " ")


def _styled(style: str, more: str, look: Look) -> str:
    return "" if look.marks else f"{style} {more}".strip()
