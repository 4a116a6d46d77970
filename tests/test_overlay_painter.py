"""Frames on a small terminal: whatever comes, committed text is there once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.color import ColorSystem
from rich.text import Text

from dflash_cli.events import BlockDrafted, BlockVerified, Finished, Prefilled
from dflash_cli.overlay import MODES, Mode, OverlayState
from dflash_cli.overlay_live import load_markdown
from dflash_cli.overlay_open import Markdown
from dflash_cli.overlay_painter import Painter
from dflash_cli.overlay_render import Look
from dflash_cli.themes import THEMES
from tests.small_terminal import SmallTerminal
from tests.test_terminal import HOSTILE

LOOK = Look(THEMES["okabe-ito"], marks=True)
STRIP = ("τ", "▮", "▯", "tokens per pass", "kept ")


class ParagraphBlocks:
    """Blocks that end at blank lines."""

    def __init__(self) -> None:
        self.rest = ""

    def push(self, text: str, /) -> list[str]:
        *blocks, self.rest = (self.rest + text).split("\n\n")
        return [block + "\n\n" for block in blocks]


def marked_rows(block: str, _width: int, _look: Look) -> list[Text]:
    return [Text(f"|{line}" if line else "") for line in block.removesuffix("\n").split("\n")] if block else []


def paragraphs() -> Markdown:
    """Markdown of a kind."""
    return Markdown(ParagraphBlocks, marked_rows)


def states(words: Sequence[str]) -> Iterator[OverlayState]:
    """States of an answer made of `words`, three a block, the second draft always wrong."""
    state = OverlayState().add(Prefilled(5, 0, (1,), 1.0), [""])
    for i in range(0, len(words), 3):
        block = words[i : i + 3]
        state = state.add(BlockDrafted(i, (1, 2, 3, 4)), [*block, *"\nxyz"][:4])
        yield state
        state = state.add(BlockVerified(i, len(block) - 1, (1,) * len(block), 4, 1.0, 1.0), block, i + 1.0)
        yield state
    yield state.add(Finished("stop", 9.0), [""])


def shown(words: Sequence[str], sizes: Sequence[tuple[int, int]], mode: Mode = "full") -> SmallTerminal:
    terminal, painter = SmallTerminal(*sizes[0]), Painter(LOOK, mode)
    for i, state in enumerate(states(words)):
        terminal.resize(*sizes[i % len(sizes)])
        terminal.write(painter.frame(state, terminal.width, terminal.height))
    return terminal


def text_of(lines: Sequence[str]) -> str:
    """The answer on a screen: without the strip, without where lines were cut and spaces, which are left out there."""
    return "".join(line for line in lines if not line.startswith(STRIP)).replace(" ", "")


def test_frames_by_hand() -> None:
    terminal, painter = SmallTerminal(40, 24), Painter(LOOK, "full")
    screens = []
    for state in states(["one ", "two\n", "three"]):
        terminal.write(painter.frame(state, 40, 24))
        screens.append((terminal.lines, terminal.row))
    assert screens[0] == (["[one two↵three↵]"], 0)
    assert screens[1][0][:2] == ["[one two", "]~three↵~+three"]
    assert screens[1][0][2].startswith("▮▮▯▯")
    assert screens[1][1] == 0, "the cursor waits where the live part begins"
    final, row = screens[2]
    assert final[:2] == ["one two", "three"]
    assert row == len(final) - 1
    assert final[-1] == ""


words = st.lists(st.text(st.sampled_from("ab \n漢é😀"), max_size=30), max_size=24)
sizes = st.lists(st.tuples(st.integers(10, 40), st.integers(2, 30)), min_size=1, max_size=4)


@given(words, sizes, st.sampled_from(["tokens", "full"]))
@example(["x" * 40] * 9, [(10, 3)], "full")
def test_nothing_is_lost_or_doubled(words: list[str], sizes: list[tuple[int, int]], mode: Mode) -> None:
    terminal = shown(words, sizes, mode)
    assert text_of(terminal.lines) == "".join("".join(words).split())
    assert terminal.wraps
    assert terminal.lines[-1] == ""


@given(words)
def test_lines_that_fit_are_as_they_were(words: list[str]) -> None:
    text = "".join(words).replace("漢", "").replace("😀", "")
    lines = shown([text[:200], text[200:]], [(240, 200)]).lines
    expected = text.removesuffix("\n").split("\n") if text else []
    assert [line for line in lines[:-1] if not line.startswith(STRIP)] == expected


@pytest.mark.parametrize("mode", MODES)
def test_lines_are_cut_between_words(mode: Mode) -> None:
    words = [
        "To find ",
        "out how ",
        "many pencils ",
        "he has, ",
        "we need ",
        "to divide.",
        "\n",
        "```\n",
        "x" * 20 + " y" * 9,
    ]
    rows = [line for line in shown(words, [(20, 12)], mode).lines if not line.startswith(STRIP)]
    assert rows == ["To find out how many", "pencils he has, we", "need to divide.", "```", "x" * 20 + " y" * 9, ""]


def test_code_is_cut_where_the_terminal_would() -> None:
    words = ["```\n", *["some words "] * 9]
    terminal = shown(words, [(20, 6)])
    assert all(len(line) == 20 for line in terminal.lines[1:4])


def test_the_strip_does_not_jump_up() -> None:
    terminal, painter, rows = SmallTerminal(30, 24), Painter(LOOK, "full"), []
    for state in states(["some ", "more ", "words "] * 9):
        terminal.write(painter.frame(state, 30, 24))
        rows += (
            [i for i, line in enumerate(terminal.lines) if line.startswith(("▮", "▯"))] if not state.finished else []
        )
    assert rows == sorted(rows)
    assert len(set(rows)) > 3


def test_a_long_answer_is_drawn_in_a_few_rows() -> None:
    painter = Painter(LOOK, "full")
    longest = 0
    for state in states(["word "] * 900):
        frame = painter.frame(state, 80, 24)
        longest = max(longest, len(frame))
    assert longest < 24 * 80


def test_a_switch_to_full_shows_what_comes() -> None:
    terminal, painter = SmallTerminal(40, 24), Painter(LOOK, "off")
    one, two, three, four, five = states(["one ", "two ", "three ", "four"])
    terminal.write(painter.frame(one, 40, 24) + painter.frame(two, 40, 24))
    assert terminal.lines == ["one two three "]
    painter.mode = "full"
    terminal.write(painter.frame(two, 40, 24))
    assert terminal.lines[0] == "one two three ", "what is shown already is not marked afterwards"
    terminal.write(painter.frame(three, 40, 24))
    assert terminal.lines[0] == "one two three [four↵xy]"
    terminal.write(painter.frame(four, 40, 24))
    assert terminal.lines[0] == "one two three ~four↵xy~+four"
    painter.mode = "tokens"
    terminal.write(painter.frame(four, 40, 24))
    assert terminal.lines == ["one two three four"]
    terminal.write(painter.frame(five, 40, 24))
    assert terminal.lines[0] == "one two three four"


MARKDOWN = ["# A\n", "\n", "b ", "c", "\n\n", "d"]


def test_finished_blocks_are_rendered() -> None:
    terminal, painter = SmallTerminal(40, 24), Painter(LOOK, "off", markdown=paragraphs)
    screens = []
    for state in states(MARKDOWN):
        terminal.write(painter.frame(state, 40, 24))
        screens.append(terminal.lines)
    assert screens[1] == ["|# A", "", "b "]
    assert screens[3] == ["|# A", "", "|b c", "", "d"]
    assert screens[4] == ["|# A", "", "|b c", "", "|d", ""]


def test_a_block_that_began_in_another_mode_ends_as_plain_lines() -> None:
    terminal, painter = SmallTerminal(40, 24), Painter(LOOK, "tokens", markdown=paragraphs)
    words = ["one\n", "two", "\n", "three", "\n\n", "four", "\n", "\n", "five"]
    for i, state in enumerate(states(words)):
        painter.mode = "tokens" if i < 2 else "off"
        terminal.write(painter.frame(state, 40, 24))
    assert terminal.lines == ["one", "two", "three", "", "|four", "", "|five", ""]


modes = st.lists(st.sampled_from(MODES), min_size=1, max_size=7)


@given(words, modes, st.booleans(), sizes)
def test_switching_loses_and_doubles_nothing(
    words: list[str], modes: list[Mode], markdown: bool, sizes: list[tuple[int, int]]
) -> None:
    terminal = SmallTerminal(*sizes[0])
    painter = Painter(LOOK, modes[0], markdown=paragraphs if markdown else None)
    for i, state in enumerate(states(words)):
        terminal.resize(*sizes[i % len(sizes)])
        painter.mode = modes[i % len(modes)]
        terminal.write(painter.frame(state, terminal.width, terminal.height))
    assert text_of(terminal.lines).replace("|", "") == "".join("".join(words).split())


def test_live_rows_leave_and_come_back() -> None:
    terminal, painter = SmallTerminal(40, 24), Painter(LOOK, "full")
    one, two, *_ = states(["one ", "two ", "three "])
    terminal.write(painter.frame(one, 40, 24) + painter.erase())
    assert terminal.lines == [""]
    terminal.write("$ fg\n" + painter.frame(two, 40, 24))
    assert terminal.lines[:2] == ["$ fg", "[one two ]~three ↵~+three "]
    assert painter.erase() != ""
    assert painter.erase() == ""


def thinking_states(*, finishes: bool = True) -> Iterator[OverlayState]:
    """A first id, two of thinking, its end, two of the answer."""
    yield (state := OverlayState().add(Prefilled(5, 0, (1,), 1.0), ["<think>"], 1.0, [True]))
    yield (state := state.add(BlockDrafted(5, (1, 2, 3)), ["so", " then", "</think>"]))
    yield (state := state.add(BlockVerified(5, 2, (1, 2, 3), 3, 1.0, 1.0), ["so", " then", "\n"], 3.0, [True] * 3))
    yield (state := state.add(BlockDrafted(8, (1, 2, 3)), ["</think>", "\n\n", "Yes"]))
    flags = [True, False, False, False]
    texts = ["</think>", "\n\n", "Yes", ","]
    yield (state := state.add(BlockVerified(8, 3, (1, 2, 3, 4), 3, 1.0, 1.0), texts, 5.0, flags))
    yield (state := state.add(BlockVerified(12, 0, (1,), 0, 1.0, 1.0), [" no."], 6.0, [False]))
    if finishes:
        yield state.add(Finished("stop", 5000.0), [""])


def screens_of(look: Look, mode: Mode, **options: object) -> list[list[str]]:
    terminal, painter = SmallTerminal(70, 24), Painter(look, mode, markdown=paragraphs)
    screens = []
    for state in thinking_states():
        terminal.write(painter.frame(state, 70, 24))
        screens.append([line for line in terminal.lines if not line.startswith(STRIP)])
    return screens


@pytest.mark.parametrize("mode", ["tokens", "full"])
def test_thinking_is_shown_apart(mode: Mode) -> None:
    assert screens_of(LOOK, mode)[-1] == ["so then", "", "Yes, no.", ""]


def test_thinking_is_no_markdown() -> None:
    assert screens_of(LOOK, "off")[-1] == ["so then", "", "|Yes, no.", ""]


def test_thinking_by_hand() -> None:
    screens = screens_of(LOOK, "full")
    assert screens[1] == ["[so then]"]
    assert screens[2] == ["[so then]"]  # the bonus was a newline: shown once more thinking comes
    assert screens[3] == ["[so then][↵↵Yes]"]
    assert screens[4] == ["so then", "", "[Yes]+,"]


@pytest.mark.parametrize("mode", MODES)
def test_hidden_thinking_is_counted(mode: Mode) -> None:
    screens = screens_of(replace(LOOK, thinking=False), mode)
    assert screens[0] == ["thinking… 1 token · 0.0 s"]
    assert screens[2] == screens[3] == ["thinking… 4 tokens · 2.0 s"]
    first, gap, answer, _ = screens[-1]
    assert (first, gap, answer.removeprefix("|")) == ("thinking: 5 tokens · 4.0 s", "", "Yes, no.")


@pytest.mark.parametrize("mode", MODES)
def test_an_end_in_hidden_thinking(mode: Mode) -> None:
    terminal, painter = SmallTerminal(70, 24), Painter(replace(LOOK, thinking=False), mode)
    _, _, state, *_ = thinking_states()
    for each in (state, replace(state, finished="interrupted", pending=())):
        terminal.write(painter.frame(each, 70, 24))
    assert terminal.lines[0] == "thinking: 4 tokens · 2.0 s"
    assert "so" not in "".join(terminal.lines).replace("session", "")


def test_thinking_is_faint() -> None:
    *_, state = thinking_states()
    colors = replace(LOOK, marks=False)
    for mode in MODES:
        frame = Painter(colors, mode, ColorSystem.TRUECOLOR).frame(state, 70, 24)
        assert "\x1b[2" in frame[: frame.index("so")]


def real_markdown(text: str) -> SmallTerminal:
    look = replace(LOOK, marks=False)
    terminal, painter = SmallTerminal(40, 24), Painter(look, "off", ColorSystem.TRUECOLOR, load_markdown)
    pieces = [text[i : i + 3] for i in range(0, len(text), 3)]
    for state in states(pieces):
        terminal.write(painter.frame(state, 40, 24))
    return terminal


def test_real_markdown() -> None:
    lines = real_markdown("# Title\n\nSome *text*.\n\n```python\nprint(1)\n```\n\n- one\n- two\n").lines
    assert "Title" in lines[0]
    assert "Some" in lines[2]
    assert any(line.strip() == "print(1)" for line in lines)
    assert [line for line in lines if "one" in line or "two" in line] == lines[-3:-1]


@pytest.mark.parametrize("text", [text for text, _ in HOSTILE.values()], ids=HOSTILE)
def test_hostile_markdown(text: str) -> None:
    # The terminal fails at any sequence that is not the painter's own.
    lines = real_markdown(f"# {text}\n\n[{text}]({text}) `{text}` {text}\n\n```\n{text}\n```\n\nthe end\n").lines
    assert "the end" in [line.strip() for line in lines]
