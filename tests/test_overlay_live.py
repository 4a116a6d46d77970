"""The overlay's screen: frames on a small terminal, the thread, and real resizes in tmux."""

from __future__ import annotations

import io
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dflash_cli.events import BlockDrafted, BlockVerified, Finished, Prefilled
from dflash_cli.overlay import Mode, OverlayState, TokenTexts
from dflash_cli.overlay_live import LiveAnswer, Overlay, Painter, no_echo
from dflash_cli.overlay_render import Look
from dflash_cli.text import TextCodec
from dflash_cli.themes import THEMES
from tests.byte_tokenizer import make_byte_tokenizer_folder
from tests.overlay_player import ANSWER, DONE, events
from tests.small_terminal import SmallTerminal
from tests.tmux import HAS_TMUX, Tmux

LOOK = Look(THEMES["okabe-ito"], marks=True)
STRIP = ("τ", "▮", "▯", "survival")


@pytest.fixture(scope="module")
def codec(tmp_path_factory: pytest.TempPathFactory) -> TextCodec:
    return TextCodec.from_folder(make_byte_tokenizer_folder(tmp_path_factory.mktemp("bytes")))


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
    """The answer on a screen: without the strip, and without where lines were cut."""
    return "".join(line for line in lines if not line.startswith(STRIP))


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
    assert text_of(terminal.lines) == "".join(words).replace("\n", "")
    assert terminal.wraps
    assert terminal.lines[-1] == ""


@given(words)
def test_lines_that_fit_are_as_they_were(words: list[str]) -> None:
    text = "".join(words).replace("漢", "").replace("😀", "")
    lines = shown([text[:200], text[200:]], [(240, 200)]).lines
    expected = text.removesuffix("\n").split("\n") if text else []
    assert [line for line in lines[:-1] if not line.startswith(STRIP)] == expected


def test_a_long_answer_is_drawn_in_a_few_rows() -> None:
    painter = Painter(LOOK, "full")
    longest = 0
    for state in states(["word "] * 900):
        frame = painter.frame(state, 80, 24)
        longest = max(longest, len(frame))
    assert longest < 24 * 80


def test_colours_reach_the_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLORTERM", "truecolor")
    overlay = Overlay(stream, None, "okabe-ito", has_color=True)
    assert (overlay.mode, overlay.is_on) == ("full", True)
    painter = Painter(overlay._look(), "full", overlay._colors())
    assert "\x1b[9;38;2;213;94;0m" in "".join(painter.frame(state, 80, 24) for state in states(["a", "b", "c"]))


class Terminal(io.StringIO):
    encoding = "utf-8"  # type: ignore[assignment]

    def isatty(self) -> bool:
        return True


def live(codec: TextCodec, stream: Any, mode: Mode = "full") -> LiveAnswer:
    return LiveAnswer(stream, Painter(LOOK, mode), TokenTexts(codec), OverlayState(), lambda: (60, 24))


def on_screen(stream: io.StringIO) -> SmallTerminal:
    terminal = SmallTerminal(60, 24)
    terminal.write(stream.getvalue())
    return terminal


def test_a_live_answer(codec: TextCodec) -> None:
    stream = Terminal()
    text = "Erste Zeile\nzweite 漢字 😀\n\x1b[2J fin"
    with live(codec, stream) as answer:
        for event in [*events(text.encode()), Finished("stop", 9.0)]:
            answer.add(event)
    terminal = on_screen(stream)
    assert terminal.lines[:3] == ["Erste Zeile", "zweite 漢字 😀", "␛[2J fin"]
    assert terminal.cursor
    assert terminal.wraps
    assert answer.state.text == text


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_answer_that_breaks_off(codec: TextCodec, error: type[BaseException]) -> None:
    stream = Terminal()

    def ask() -> None:
        with live(codec, stream) as answer:
            for event in events(b"half an answer"):
                answer.add(event)
            raise error

    with pytest.raises(error):
        ask()
    assert on_screen(stream).lines[0] == "half an answer"
    assert on_screen(stream).cursor


def test_an_answer_that_never_began(codec: TextCodec) -> None:
    stream = Terminal()
    with live(codec, stream) as answer:
        answer.add(Finished("interrupted", 0.0))
    assert on_screen(stream).lines == [""]


def test_the_loop_does_not_wait_for_the_terminal(codec: TextCodec) -> None:
    unblock = threading.Event()

    class Stuck(Terminal):
        def flush(self) -> None:
            assert unblock.wait(10)

    stream = Stuck()
    with live(codec, stream) as answer:
        for event in [*events(b"many words " * 50), Finished("stop", 9.0)]:
            answer.add(event)
        assert "words many words" not in stream.getvalue()
        unblock.set()
    assert text_of(on_screen(stream).lines) == "many words " * 50


def test_a_terminal_that_went_away_ends_the_answer(codec: TextCodec) -> None:
    class Gone(Terminal):
        def flush(self) -> None:
            raise BrokenPipeError

    def ask() -> None:
        with live(codec, Gone()) as answer:
            for event in events(b"words " * 999):
                time.sleep(0.001)
                answer.add(event)

    with pytest.raises(BrokenPipeError):
        ask()


@pytest.mark.parametrize(
    ("mode", "has_color", "term", "expected"),
    [
        (None, True, "xterm", ("full", True)),
        (None, False, "xterm", ("off", False)),
        ("full", False, "xterm", ("full", True)),
        ("tokens", False, "xterm", ("tokens", False)),
        ("tokens", True, "xterm", ("tokens", True)),
        ("full", True, "dumb", ("full", False)),
        ("off", True, "xterm", ("off", False)),
    ],
)
def test_modes(
    mode: Mode | None, has_color: bool, term: str, expected: tuple[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", term)
    overlay = Overlay(Terminal(), mode, "tol", has_color=has_color)
    assert (overlay.mode, overlay.is_on) == expected
    assert not Overlay(io.StringIO(), mode, "tol", has_color=has_color).is_on


def test_keys_are_not_echoed_while_drawing() -> None:
    termios = pytest.importorskip("termios")
    main, side = os.openpty()
    with os.fdopen(side, "r+b", buffering=0) as raw, io.TextIOWrapper(raw) as stream:
        before = termios.tcgetattr(side)
        with no_echo(stream):
            now = termios.tcgetattr(side)
            assert not now[3] & termios.ECHO
            assert now[3] & termios.ISIG
        assert termios.tcgetattr(side) == before
    os.close(main)


@HAS_TMUX
@pytest.mark.parametrize("height", [24, 10])
def test_resizes_in_mid_answer(tmp_path: Path, height: int) -> None:
    command = ["env", "LC_ALL=C.UTF-8", "PYTHONUTF8=1", sys.executable, "-m", "tests.overlay_player"]
    tmux = Tmux(tmp_path, 120, height, command)
    try:
        tmux("set", "-g", "window-size", "manual")
        tmux.wait("line 5")
        tmux("resize-window", "-x", "40")
        tmux.wait("line 13")
        tmux("resize-window", "-x", "120")
        lines = tmux.wait(DONE)
    finally:
        tmux("kill-server")
    end = lines.index(DONE)
    told = [line for line in lines[:end] if not line.startswith(STRIP)]
    assert "".join(told).replace(" ", "") == ANSWER.replace("\n", "").replace(" ", "")
    assert told[0] == ANSWER.split("\n")[0]
