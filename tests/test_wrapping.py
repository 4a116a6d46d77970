from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.text import Text

from dflash_cli.wrapping import Prose, divide, wrap, wrap_line, wrap_words

TEXTS = st.text(st.sampled_from("ab漢é 😀\u0301\u200d👩🏽"), max_size=40)


@given(st.text(st.sampled_from("ab漢é 😀\u0301\u200d👩🏽"), max_size=40), st.integers(2, 12))
def test_rows_hold_the_line(text: str, width: int) -> None:
    rows = wrap(Text(text), width)
    assert "".join(row.plain for row in rows) == text
    if "\u200d" not in text and "🏽" not in text:
        assert all(cell_len(row.plain) <= width for row in rows)
        assert all(cell_len(row.plain) >= width - 1 for row in rows[:-1])


def test_what_belongs_together_is_not_cut() -> None:
    assert [row.plain for row in wrap(Text("ab👩\u200d👩\u200d👧c"), 4)] == ["ab👩\u200d👩\u200d👧", "c"]
    assert [row.plain for row in wrap(Text("abe\u0301c"), 3)] == ["abe\u0301", "c"]
    assert [row.plain for row in wrap(Text("a\tb"), 8)] == ["a       ", "b"]


def plain(rows: list[Text]) -> list[str]:
    return [row.plain for row in rows]


@given(TEXTS, st.integers(2, 12))
def test_rows_of_words_hold_the_line(text: str, width: int) -> None:
    rows = plain(divide(Text(text), width))
    assert "".join(rows) == text
    shown = plain(wrap_line(Text(text), width))
    assert [row.rstrip(" ") for row in shown] == [row.rstrip(" ") for row in rows]
    if "\u200d" not in text and "🏽" not in text:
        assert all(cell_len(row) <= width for row in shown)


def test_lines_are_cut_between_words() -> None:
    assert plain(wrap_line(Text("to divide the total"), 16)) == ["to divide the", "total"]
    assert plain(wrap_line(Text("to divide the  total"), 13)) == ["to divide the", "total"]
    assert plain(wrap_line(Text("a longerword"), 5)) == ["a", "longe", "rword"]
    assert plain(wrap_line(Text("as it is "), 20)) == ["as it is "]
    assert plain(wrap_line(Text("as it is   "), 8)) == ["as it is"]


def test_a_line_that_grows_keeps_its_rows() -> None:
    text = "some words of a line that grows, letter by letter, until it is over"
    for end in range(len(text)):
        rows = plain(divide(Text(text[:end]), 12))
        assert plain(divide(Text(text), 12))[: len(rows) - 1] == rows[:-1]


def test_code_and_tables_are_no_prose() -> None:
    lines = {
        "Some text:": True, "```python": False, "x = 1": False, "    ```x": False, "```": False, "after it": True,
        "| a | b |": False, "    indented": False, "    - nested": True, "\ttab": False, "- ~~~~": False, "~~~": False,
        "~~~~~": False, "the end": True,
    }  # fmt: skip
    prose = Prose()
    for line, expected in lines.items():
        assert prose.copy().take(line) == prose.peek(line) == prose.take(line) == expected, line


def test_a_space_with_an_accent_does_not_hang_over_the_margin() -> None:
    rows = wrap_words(Text("1111 \u0301"), 2)
    assert [row.plain for row in rows] == ["11", "11", " \u0301"]


def test_an_accent_of_nothing_takes_no_place_from_the_word_after_it() -> None:
    assert plain(divide(Text("\u0301漢a"), 2)) == ["\u0301漢", "a"]
