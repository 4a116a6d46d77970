"""Markdown in rows: what stands there with and without colours, and what holds for any text."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import get_character_cell_size
from rich.text import Text

from dflash_cli.markdown import render_block, split_finished
from dflash_cli.overlay_render import ASCII, Look
from dflash_cli.themes import THEMES
from tests.test_markdown_blocks import documents

LOOK = Look(THEMES["okabe-ito"])
MARKS = replace(LOOK, marks=True)
PLAIN = replace(MARKS, glyphs=ASCII, encoding="ascii")
looks = st.sampled_from([LOOK, MARKS, PLAIN])
letters = st.sampled_from("ab 漢é\u0301😀\t\n*_`>-#|[]()!<&\\\r\x1b\u202e\x00~1.")


def rows_of(source: str, width: int = 60, look: Look = LOOK) -> list[str]:
    blocks, rest = split_finished(source)
    return [row.plain for block in [*blocks, rest] for row in render_block(block, width, look)]


def styled(source: str, part: str, look: Look = LOOK) -> set[str]:
    """The styles of a part of the first block."""
    found = set()
    for row in render_block(source, 60, look):
        at = row.plain.find(part)
        found |= {str(span.style) for span in row.spans if at >= 0 and span.start <= at and span.end >= at + len(part)}
    return found - {""}


def cells(row: str) -> int:
    return sum(map(get_character_cell_size, row))


@given(documents | st.text(letters, max_size=200), st.integers(2, 50), looks)
def test_rows_fit_and_hold_nothing_that_acts_on_a_terminal(source: str, width: int, look: Look) -> None:
    blocks, rest = split_finished(source)
    for block in [*blocks, rest]:
        for row in render_block(block, width, look):
            assert cells(row.plain) <= width
            assert not re.search("[\x00-\x1f\x7f-\x9f\u2028-\u202e]", row.plain)
            row.plain.encode(look.encoding)


word = st.text("abcdefgh漢字", min_size=1, max_size=6)
phrases = st.lists(word, min_size=1, max_size=8).map(" ".join)
forms = st.sampled_from(
    ["{}", "# {}", "- {}", "  - {}", "1. {}", "> {}", "> - {}", "```\n{}\n```", "```python\n{}\n```", "    {}",
     "**{}**", "`{}` {}", "[{}](http://x)", "<b>{}</b>", "[{}]: url", "| {} | y |\n|---|---|\n| {} | {} |", "{} | b",
     "~~~\n{}",
     "{}\n===", "![{}](i)", "[{}][b]", "| a |\n|---|\n| b | {} | {} |", "- a\n\n  {}", "[x](y '{}')", "```{}\n```"]
)  # fmt: skip
texts = st.lists(st.builds(lambda form, phrase: form.replace("{}", phrase), forms, phrases) | st.just(""), max_size=8)


@given(texts, st.sampled_from(["\n", "\n\n"]), st.integers(30, 90), looks.filter(lambda look: look.encoding != "ascii"))
def test_every_word_is_shown(parts: list[str], between: str, width: int, look: Look) -> None:
    source = between.join(parts)
    shown = "".join(rows_of(source, width, look))
    for found in re.findall("[a-h]+|[漢字]", source):
        assert found in shown


code_lines = st.lists(st.text(st.sampled_from("abc =(){}'\"#/\\<&*_`é漢\t:"), max_size=20), max_size=8)


@given(code_lines, st.sampled_from(["", "python", "c", "json", "html", "diff", "nonsense"]), looks)
def test_code_is_kept_exactly(code: list[str], language: str, look: Look) -> None:
    source = "\n".join([f"~~~{language}", *code, "~~~", ""])
    rows = [row.plain for row in render_block(source, 200, look)]
    expected = [Text(look.visible(line)) for line in code]
    for line in expected:
        line.expand_tabs(8)
    assert rows[1:-1] == [line.plain for line in expected]
    assert (rows[0], rows[-1]) == (f"~~~{language}", "~~~")


def test_a_page_in_colours() -> None:
    source = (
        "# The *title*\n\nSome `code` and [a link](https://x.org).\nNext\n- one\n  1. deep\n- two\n\n  more\n\n"
        "> said\n> - by\n\n***\n10. down\n9. to\n\n\n<b>html</b> &amp;\n\n"
    )
    assert rows_of(source, 24) == [
        "The title", "", "Some code and a link", "(https://x.org).", "Next", "• one", "  1. deep", "• two", "",
        "  more", "", "│ said", "│ • by", "", "────────────────────────", "10. down", " 9. to", "", "<b>html</b> &",
    ]  # fmt: skip
    assert styled("# The *title*\n", "The") == {"bold underline"}
    assert styled("# The *title*\n", "title") == {"bold underline italic"}
    assert styled("a `code`\n", "code") == {"cyan"}


def test_without_colours_the_marks_stay() -> None:
    source = "## The *title*\n\n**Some** `` a`b `` ~~old~~\n\n- one\n\n> said\n\n```py\nx = 1\n```\n---\n"
    assert rows_of(source, 40, PLAIN) == [
        "## The *title*", "", "**Some** ``a`b`` ~~old~~", "", "- one", "", "> said", "", "```py", "x = 1", "```",
        "-" * 24,
    ]  # fmt: skip
    blocks, _ = split_finished(source)
    assert all(not str(span.style) for block in blocks for row in render_block(block, 40, MARKS) for span in row.spans)


def test_code_is_highlighted_in_colours_only() -> None:
    assert styled("```python\nreturn 1\n```\n", "return")
    assert not styled("```python\nreturn 1\n```\n", "return", MARKS)
    assert not styled("```nonsense\nreturn 1\n```\n", "return")


def test_tables() -> None:
    source = "| Name | Size |\n|:--|--:|\n| a long name | 1 |\n| **b** | 漢字 |\n\n"
    assert rows_of(source) == ["Name         Size", "───────────  ────", "a long name     1", "b            漢字"]
    assert rows_of(source, 11, PLAIN) == ["Name   Size", "-----  ----", "a         1", "long", "name", "**b**    ??"]
    assert rows_of(source, 9) == ["Name: a", "long name", "Size: 1", "", "Name: b", "Size: 漢", "字"]
    assert rows_of("| a |\n|---|\n| b | `c` |\n\n") == ["| a |", "|---|", "| b | `c` |"]


def test_words_are_wrapped_and_long_ones_cut() -> None:
    assert rows_of("aaa bbb  cccccccccccc d", 8) == ["aaa bbb", "cccccccc", "cccc d"]
    assert rows_of("ab 漢字漢字漢字", 8) == ["ab 漢字", "漢字漢字"]
    assert rows_of("- aaaa bbbb cccc", 11) == ["• aaaa bbbb", "  cccc"]
    assert rows_of("- aaaa", 5) == ["•", "aaaa"]


def test_links_show_where_they_lead() -> None:
    assert rows_of("[a](https://x.org/%C3%A4 'b') <https://y.org> <me@y.org>") == [
        'a (https://x.org/ä "b") https://y.org me@y.org'
    ]
    assert rows_of("[a](javascript:b) [c](d&#x202e;)") == ["[a](javascript:b) c (d<U+202E>)"]


def test_unfinished_blocks_have_rows_too() -> None:
    assert rows_of("```py\nx = 1\n") == ["```py", "x = 1", "```"]
    assert rows_of("```") == ["```", "```"]
    assert rows_of("\n\ntext") == ["", "text"]
    assert rows_of("\n\n") == []


@pytest.mark.parametrize("part", [">", "> ", "- ", "1. ", "*", "**", "_ ", "`", "~~", "|", "[", "![", "<", "](", "\t"])
def test_any_sign_many_times_is_shown(part: str) -> None:
    rows = render_block(part * 3000 + "end\n", 60, LOOK)
    assert "end" in "".join(row.plain for row in rows)
    assert isinstance(rows[0], Text)
