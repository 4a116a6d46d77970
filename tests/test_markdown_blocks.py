"""Which blocks of a growing Markdown text are finished: by hand, and against the parser for any text."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_cli import markdown
from dflash_cli.markdown_blocks import MarkdownBlocks, split_finished
from dflash_cli.terminal import printable

FRAGMENTS = [
    "word", "a b", "# title", "## ", "#none", "```", "```py", "~~~", "````", "---", "***", "- - -", "===", "- item",
    "-", "* item", "+ item", "1. item", "2. item", "10) item", "1)", " | ", "> quote", ">", "> - item", "> ```",
    "    code",
    "  ", "   ", "\t", "\tcode", "> > deep", "- - deep", "- 1. deep", "- ```", "- # title", "-     code", "1.  wide",
    "<div>", "[a]: b", "\r", "**bold**", "漢字", "| a | b |", "|---|---|",
]  # fmt: skip
lines = st.lists(st.sampled_from(FRAGMENTS), max_size=2).map("".join)
indents = st.sampled_from([""] * 6 + [" " * n for n in range(1, 7)])
documents = st.lists(st.builds(str.__add__, indents, lines) | st.just(""), max_size=12).map("\n".join)


def in_pieces(text: str, cuts: list[int]) -> tuple[list[str], str]:
    splitter = MarkdownBlocks()
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    blocks = [block for i in range(len(places) - 1) for block in splitter.push(text[places[i] : places[i + 1]])]
    return blocks, splitter.rest


@given(documents, st.lists(st.integers(0, 200)))
def test_the_pieces_do_not_matter(text: str, cuts: list[int]) -> None:
    blocks, rest = split_finished(text)
    assert "".join(blocks) + rest == text
    assert in_pieces(text, cuts) == (blocks, rest)
    assert in_pieces(text, list(range(len(text)))) == (blocks, rest)


@given(documents, st.integers(0, 200))
def test_a_finished_block_stays_as_it_is(text: str, length: int) -> None:
    early, whole = split_finished(text[:length])[0], split_finished(text)[0]
    assert whole[: len(early)] == early


def tokens(text: str) -> list[Any]:
    return [
        (each.type, each.tag, each.content.strip(), each.markup, each.info, each.level, each.hidden)
        for each in markdown._parser().parse(printable(text))
    ]


@given(documents.filter(lambda text: "|-" not in text))
def test_each_block_means_alone_what_it_means_in_the_text(text: str) -> None:
    blocks, rest = split_finished(text)
    assert [token for block in [*blocks, rest] for token in tokens(block)] == tokens(text)


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("text\nmore\n", []),
        ("text\n\n", ["text\n"]),
        ("text\n \n\nmore\n\n", ["text\n", " \n\nmore\n"]),
        ("text\r\n\r\n", ["text\r\n"]),
        ("# title\ntext", ["# title\n"]),
        ("text\n---\nmore", ["text\n---\n"]),
        ("***\n", ["***\n"]),
        ("```\na\n\n# b\n", []),
        ("```\na\n\n# b\n```", []),
        ("```\na\n\n# b\n```\n", ["```\na\n\n# b\n```\n"]),
        ("````\n```\n````\n", ["````\n```\n````\n"]),
        ("text\n```\ncode\n", ["text\n"]),
        ("- a\n\n- b\n\n", []),
        ("- a\n\n- b\n\ntext", []),
        ("- a\n\n- b\n\ntext\n", ["- a\n\n- b\n"]),
        ("- a\n\n  ```\n  x\n\ny\n", ["- a\n\n  ```\n  x\n"]),
        ("- a\n\n  ```\n  x\n\n  y\n  ```\n\n# z\n", ["- a\n\n  ```\n  x\n\n  y\n  ```\n", "\n# z\n"]),
        ("1. a\n```\nx\n```\n", ["1. a\n", "```\nx\n```\n"]),
        ("> a\nlazy\n", []),
        ("> a\n\n> b\n", ["> a\n"]),
        ("| a | b |\n|---|---|\n| 1 | 2 |\n", []),
        ("a | b\n- | -\n1 | 2\n\n", ["a | b\n- | -\n1 | 2\n"]),
        ("    code\n\n    more\n", []),
        ("    code\n\n    more\ntext\n", ["    code\n\n    more\n"]),
        ("\n\n", []),
        ("", []),
    ],
)
def test_by_hand(text: str, blocks: list[str]) -> None:
    assert split_finished(text) == (blocks, text.removeprefix("".join(blocks)))


def test_every_line_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    own = MarkdownBlocks._take
    monkeypatch.setattr(MarkdownBlocks, "_take", lambda self, line: seen.append(line) or own(self, line))
    text = "```\n" + "code\n" * 300 + "long " * 500 + "\n```\n"
    blocks, _ = in_pieces(text, list(range(len(text))))
    assert blocks == [text]
    assert "".join(seen) == text


@pytest.mark.parametrize(
    "part", [">", "> ", "- ", "1. ", "*", "_ ", "`", "~", "#", "|", "- | ", " ", "\t", "[", "![", "<"]
)
def test_any_sign_many_times_is_split(part: str) -> None:
    text = part * 5000 + "\n\n" + part * 5000 + "\nend\n"
    blocks, rest = split_finished(text)
    assert "".join(blocks) + rest == text
