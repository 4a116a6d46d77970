from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.text import Text

from dflash_cli.events import BlockDrafted, BlockVerified, Finished, Prefilled
from dflash_cli.overlay import OverlayState, Totals
from dflash_cli.overlay_render import ASCII, UNICODE, Look, fresh, glyphs_for, num_settled, settled
from dflash_cli.overlay_strip import strip
from dflash_cli.themes import THEMES
from tests.test_terminal import HOSTILE

COLORS = Look(THEMES["okabe-ito"])
MARKS = Look(THEMES["okabe-ito"], marks=True)


def after_a_block(rejected: str = "XY", bonus: str = "d") -> OverlayState:
    state = OverlayState().add(Prefilled(5, 0, (1,), 1.0), ["a"], 0.0)
    state = state.add(BlockDrafted(5, (2, 3, 4, 5)), ["b", "c", rejected[:1], rejected[1:]])
    return state.add(BlockVerified(5, 2, (2, 3, 9), 4, 1.0, 1.0), ["b", "c", bonus], 0.5)


def styles(line: Text) -> list[tuple[str, str]]:
    return [(line.plain[span.start : span.end], str(span.style)) for span in line.spans]


def test_the_newest_block_in_colours() -> None:
    assert styles(fresh(after_a_block(), COLORS)) == [
        ("bc", "bold #009e73"),
        ("XY", "strike #d55e00"),
        ("d", "underline #56b4e9"),
    ]


def test_the_newest_block_in_symbols() -> None:
    line = fresh(after_a_block(), MARKS)
    assert (line.plain, line.spans) == ("[bc]~XY~+d", [])


def test_pending_drafts() -> None:
    state = after_a_block().add(BlockDrafted(8, (7, 8)), ["e", "f"])
    assert fresh(state, MARKS).plain == "[bc]~XY~+d[ef]"
    assert styles(fresh(state, COLORS))[-1] == ("ef", "dim italic")


def test_rejected_drafts_stay_in_their_line() -> None:
    assert "\n" not in fresh(after_a_block("x\n"), MARKS).plain
    assert "~x\\n~" in fresh(after_a_block("x\n"), replace(MARKS, glyphs=ASCII)).plain


def test_settled_text_is_calm() -> None:
    state = after_a_block()
    assert settled(state, 0, 4, MARKS).plain == "abcd"
    assert [style for _, style in styles(settled(state, 0, 4, COLORS))] == ["#56b4e9", "#009e73", "#009e73", "#56b4e9"]


def test_what_is_settled() -> None:
    state = after_a_block()
    assert (num_settled(state, "full"), num_settled(state, "tokens")) == (1, 4)
    assert num_settled(state.add(Finished("stop", 1.0), [""]), "full") == 4


@pytest.mark.parametrize(("text", "shown"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_text_is_shown(text: str, shown: str) -> None:
    state = after_a_block(text, text)
    assert shown in settled(state, 0, 4, COLORS).plain
    line = fresh(state, COLORS).plain
    assert not any(ord(char) < 32 or 0x7F <= ord(char) < 0xA0 for char in line)


def test_a_line_end_shared_by_two_tokens() -> None:
    state = OverlayState().add(Prefilled(5, 0, (1, 2, 3, 4, 5), 1.0), ["a\r", "", "\nb", "\r", "c"])
    assert settled(state, 0, 5, COLORS).plain == "a\nb␍c"


def test_an_encoding_that_lacks_characters() -> None:
    state = OverlayState().add(Prefilled(5, 0, (1,), 1.0), ["é漢"])
    assert settled(state, 0, 1, replace(COLORS, encoding="latin-1")).plain == "é?"


@pytest.mark.parametrize("encoding", ["utf-8", "UTF8", "utf-8-sig", None])
def test_the_signs_of_an_encoding(encoding: str | None) -> None:
    assert glyphs_for(encoding) is UNICODE
    assert glyphs_for("cp1252") is ASCII


def test_strip() -> None:
    state = after_a_block()
    cells, figures, survival = strip(state, 60, 3, COLORS)
    assert cells.plain == "▮ kept ▯ rejected  ▮▮▯▯"
    assert figures.plain == "tokens per pass    τ 3.00, 6.0 tok/s  ▅"
    assert survival.plain == "kept by position   ██⋅⋅  1st 100%, 3rd 0%, 4th 0%"
    assert {("tokens per pass    ", "dim"), ("▅", "#009e73")} <= set(styles(figures)), "bars are not dim as labels are"
    assert not figures.style
    (line,) = strip(state, 60, 1, COLORS)
    assert line.plain == "τ 3.00, 6.0 tok/s  ▮▮▯▯"
    again = replace(state.next_turn(), turn=Totals(6, 2, 4, 8, 1000.0))
    assert "τ 3.00, 6.0 tok/s · session τ 3.00, 6.0 tok/s  " in strip(again, 80, 3, COLORS)[1].plain
    assert strip(OverlayState(), 60, 3, COLORS) == []


def test_strip_in_ascii() -> None:
    lines = strip(after_a_block(), 60, 3, replace(MARKS, glyphs=ASCII))
    assert all(line.plain.isascii() and not line.spans for line in lines)
    assert lines[0].plain == "# kept x rejected  ##xx"
    assert "tau 3.00" in lines[1].plain


def test_a_narrow_strip_leaves_out_what_does_not_fit() -> None:
    again = replace(after_a_block().next_turn(), turn=Totals(6, 2, 4, 8, 1000.0))
    lines = [line.plain for line in strip(again, 20, 3, COLORS)]
    assert lines == ["▮▮▯▯", "τ 3.00, 6.0 tok/s  ▅", "kept ██⋅⋅  1st 100%"]
    assert [line.plain for line in strip(again, 20, 1, COLORS)] == ["τ 3.00, 6.0 tok/s"]


@given(st.integers(1, 90), st.integers(0, 3))
def test_strip_fits(width: int, rows: int) -> None:
    state = replace(after_a_block(), blocks=after_a_block().blocks * 9)
    assert all(cell_len(line.plain) <= width for line in strip(state, width, rows, COLORS))


def test_thinking_and_answer_have_figures_apart() -> None:
    thinking, answer = Totals(6, 2, 4, 8, 1000.0), Totals(8, 2, 6, 8, 1000.0)
    state = replace(after_a_block(), turn=thinking, thinking=thinking)
    assert "thinking" not in strip(state, 90, 3, COLORS)[1].plain
    state = replace(state, turn=thinking.plus(answer))
    assert "τ 3.50, 7.0 tok/s · thinking τ 3.00, answer τ 4.00" in strip(state, 90, 3, COLORS)[1].plain


def thinking_drafts(*drafts: str, shown: bool) -> str:
    state = OverlayState().add(Prefilled(5, 0, (1,), 1.0), ["<think>"], 0.0, [True])
    state = state.add(BlockDrafted(5, (1,) * len(drafts)), drafts)
    return fresh(state, replace(MARKS, thinking=shown)).plain


def test_drafts_of_thinking_have_no_tags_and_hide_with_it() -> None:
    assert thinking_drafts("so", "</think>", "Yes", shown=True) == "[soYes]"
    assert thinking_drafts("so", "</think>", "Yes", shown=False) == ""
