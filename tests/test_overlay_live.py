"""The overlay's screen: frames on a small terminal, the thread, and real resizes in tmux."""

from __future__ import annotations

import io
import os
import signal
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from dflash_cli.events import BlockVerified, Finished
from dflash_cli.live_answer import LiveAnswer
from dflash_cli.overlay import MODES, Mode, OverlayState, TokenTexts
from dflash_cli.overlay_live import Overlay
from dflash_cli.overlay_painter import Painter
from dflash_cli.pace import Pace
from dflash_cli.text import TextCodec
from tests.byte_tokenizer import make_byte_tokenizer_folder
from tests.overlay_player import ANSWER, DONE, events, long_answer
from tests.small_terminal import SmallTerminal
from tests.test_overlay_painter import LOOK, STRIP, states, text_of
from tests.test_terminal import HOSTILE
from tests.tmux import HAS_TMUX, ROOT, Tmux
from tests.waiting import PATIENCE_S, poll


@pytest.fixture(scope="module")
def codec(tmp_path_factory: pytest.TempPathFactory) -> TextCodec:
    return TextCodec.from_folder(make_byte_tokenizer_folder(tmp_path_factory.mktemp("bytes")))


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


def test_pauses_are_no_part_of_the_figures(codec: TextCodec) -> None:
    pace, stream = Pace(4), Terminal()
    begun = time.perf_counter()
    with LiveAnswer(stream, Painter(LOOK, "full"), TokenTexts(codec), OverlayState(), pace=pace) as answer:
        for event in events(b"abcd"):
            answer.add(event)
            pace.wait(event, lambda: False)
        answer.add(Finished("stop", (time.perf_counter() - begun) * 1e3))
    assert pace.paused_s >= 0.25
    assert answer.state.turn.ms < (time.perf_counter() - begun - 0.24) * 1e3


def test_the_mode_is_asked_before_each_frame(codec: TextCodec) -> None:
    stream, modes, asked = Terminal(), iter([*MODES]), list[Mode]()
    painter = Painter(LOOK, "off")

    def mode() -> Mode:
        asked.append(next(modes, "off"))
        return asked[-1]

    with LiveAnswer(stream, painter, TokenTexts(codec), OverlayState(), mode=mode) as answer:
        for event in events(b"some words"):
            answer.add(event)
        poll(lambda: len(asked), lambda count: answer._error or count > len(MODES))
        answer.add(Finished("stop", 9.0))
    assert painter.mode == "off"
    assert asked[: len(MODES)] == [*MODES]
    assert text_of(on_screen(stream).lines) == "somewords"


def test_the_terminal_is_given_back_and_taken_again(codec: TextCodec) -> None:
    stream = Terminal()
    with live(codec, stream) as answer:
        for event in events(b"half"):
            answer.add(event)
        poll(stream.getvalue, lambda written: answer._error or "kept by" in written)
        answer.release()
        away = on_screen(stream)
        stream.write("$ fg\n")
        answer.add(BlockVerified(5, 0, (33,), 0, 1.0, 1.0))
        time.sleep(0.1)
        assert stream.getvalue().endswith("$ fg\n"), "nothing is drawn on a terminal that is somebody else's"
        answer.take()
        answer.add(Finished("stop", 9.0))
    assert away.lines == [""]
    assert away.cursor
    assert on_screen(stream).lines[:2] == ["$ fg", "half!"]


def test_the_modes_in_turn() -> None:
    overlay = Overlay(Terminal(), "off", "tol", has_color=True)
    assert [overlay.cycle() for _ in MODES] == ["tokens", "full", "off"]


def test_the_loop_does_not_wait_for_the_terminal(codec: TextCodec) -> None:
    unblock = threading.Event()

    class Stuck(Terminal):
        def flush(self) -> None:
            assert unblock.wait(PATIENCE_S)

    stream = Stuck()
    with live(codec, stream) as answer:
        for event in [*events(b"many words " * 50), Finished("stop", 9.0)]:
            answer.add(event)
        assert "words many words" not in stream.getvalue()
        unblock.set()
    assert text_of(on_screen(stream).lines) == "manywords" * 50


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
        (None, False, "xterm", ("off", True)),
        ("full", False, "xterm", ("full", True)),
        ("tokens", True, "xterm", ("tokens", True)),
        ("full", True, "dumb", ("full", False)),
        ("off", True, "xterm", ("off", True)),
    ],
)
def test_modes(
    mode: Mode | None, has_color: bool, term: str, expected: tuple[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", term)
    overlay = Overlay(Terminal(), mode, "tol", has_color=has_color)
    assert (overlay.mode, overlay.is_on) == expected
    assert not Overlay(io.StringIO(), mode, "tol", has_color=has_color).is_on


def player(folder: Path, height: int, *options: str) -> Tmux:
    command = ["env", "LC_ALL=C.UTF-8", "PYTHONUTF8=1", sys.executable, "-m", "tests.overlay_player", *options]
    tmux = Tmux(folder, 120, height, command)
    tmux("set", "-g", "window-size", "manual")
    return tmux


def told(lines: list[str]) -> list[str]:
    """The answer on the screen of a player, without the strip."""
    end = next(i for i, line in enumerate(lines) if line.startswith(DONE))
    return [line for line in lines[:end] if not line.startswith(STRIP)]


def in_rows(text: str) -> list[str]:
    """The lines, cut between words at 120 columns."""
    return [row for line in text.split("\n") for row in textwrap.wrap(line, 120) or [""]]


@HAS_TMUX
@pytest.mark.parametrize("height", [24, 10])
def test_resizes_in_mid_answer(tmp_path: Path, height: int) -> None:
    tmux = player(tmp_path, height)
    try:
        tmux.wait("line 5")
        tmux("resize-window", "-x", "40")
        tmux.wait("line 13")
        tmux("resize-window", "-x", "120")
        lines = told(tmux.wait(DONE))
    finally:
        tmux("kill-server")
    assert "".join(lines).replace(" ", "") == ANSWER.replace("\n", "").replace(" ", "")
    assert lines[0] == ANSWER.split("\n")[0]


@HAS_TMUX
def test_f2_in_mid_answer(tmp_path: Path) -> None:
    tmux = player(tmp_path, 24, "--mode", "off", "--seconds", "0.003", "--hold", "5:tokens", "12:full", "22:off")
    try:
        before = tmux.wait("line 3")
        tmux("send-keys", "F2", "next")  # tokens
        tmux.wait("line 10")
        tmux("send-keys", "F2")  # full
        full = tmux.wait("kept by")
        tmux.wait("line 20")
        tmux("send-keys", "F2", " please")  # off
        lines = tmux.wait(DONE)
    finally:
        tmux("kill-server")
    assert "kept by" not in "".join(before)
    assert any(line.startswith("▮") for line in full)
    assert not any(line.startswith(STRIP) for line in lines)
    assert told(lines) == in_rows(ANSWER)
    assert f"{DONE} off 'next please'" in lines


@HAS_TMUX
def test_a_long_answer_is_in_the_scroll_back_once(tmp_path: Path) -> None:
    tmux = player(tmp_path, 24, "--tokens", "10000", "--seconds", "0.0003")
    try:
        lines = told(tmux.wait(DONE))
    finally:
        tmux("kill-server")
    assert lines == in_rows(long_answer(10_000))


@HAS_TMUX
def test_a_stop_by_ctrl_z(tmp_path: Path) -> None:
    tmux = Tmux(tmp_path, 100, 40, ["env", "LC_ALL=C.UTF-8", "PYTHONUTF8=1", "PS1=$ ", "bash", "--norc", "-i"])
    try:
        tmux("send-keys", f"{sys.executable} -m tests.overlay_player --seconds 0.003", "Enter")
        tmux.wait("line 5")
        tmux("send-keys", "C-z")
        away = tmux.wait("Stopped")
        tmux("send-keys", "stty -a | grep -o ' echo '; fg", "Enter")
        tmux.wait("kept by")
        tmux("send-keys", "unseen")
        lines = tmux.wait(DONE)
    finally:
        tmux("kill-server")
    begun, stopped = (next(i for i, line in enumerate(away) if sign in line) for sign in ("# 漢字", "Stopped"))
    assert not any(line.startswith(STRIP) for line in away[begun:stopped]), "the live rows have left"
    earlier = [line for line in away[begun:stopped] if line.strip("^Z")]
    again = max(i for i, line in enumerate(lines) if "overlay_player" in line)
    assert lines[again - 1] == " echo"
    assert "".join([*earlier, *told(lines)[again + 1 :]]).replace(" ", "") == ANSWER.replace("\n", "").replace(" ", "")
    assert f"{DONE} full 'unseen'" in lines


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT])
def test_a_killed_program_leaves_the_terminal_as_it_was(number: signal.Signals) -> None:
    pexpect = pytest.importorskip("pexpect")
    termios = pytest.importorskip("termios")
    child = pexpect.spawn(
        sys.executable, ["-m", "tests.overlay_player", "--seconds", "0.01"], cwd=ROOT, timeout=PATIENCE_S
    )
    before = termios.tcgetattr(child.child_fd)
    child.expect_exact("kept by")
    assert termios.tcgetattr(child.child_fd) != before
    child.kill(number)
    child.expect(pexpect.EOF)
    child.close()
    assert child.signalstatus == number
    written = child.before.decode(errors="replace")
    assert written.endswith("\x1b[?2026l\x1b[?7h\x1b[?25h")


def test_hostile_text_never_acts() -> None:
    pexpect = pytest.importorskip("pexpect")
    texts = "".join(text for text, _ in HOSTILE.values()).encode("utf-8", "surrogatepass")
    options = ["--hex", (b"begin " + texts + b" end").hex(), "--wrong", texts.hex()]
    child = pexpect.spawn(
        sys.executable, ["-m", "tests.overlay_player", *options], cwd=ROOT, timeout=PATIENCE_S, dimensions=(24, 60),
        env=os.environ | {"PYTHONUTF8": "1", "LC_ALL": "C.UTF-8", "TERM": "xterm-256color"},
    )  # fmt: skip
    child.expect_exact(DONE)
    terminal = SmallTerminal(60, 24)
    terminal.write(child.before.decode())  # it knows what the overlay writes, and fails at anything else
    child.close(force=True)
    assert any("␛" in line for line in terminal.lines)
