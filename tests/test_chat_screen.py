"""Remarks and tables as a terminal shows them: cut between words, at its width; elsewhere line by line."""

from __future__ import annotations

import io
import sys

import pytest
from rich.text import Text

from dflash_cli import chat_screen
from dflash_cli.chat_screen import Screen
from dflash_cli.config import Config


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def terminal_of(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Stderr from now on, 30 columns wide; not a fixture, as pytest puts its own stream back after those."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(chat_screen, "terminal_size", lambda _stream: (30, 24))
    return stream


def test_remarks_are_cut_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    screen = Screen(Config(color="never"))
    screen.say("some words of a remark that go on and on")
    screen.fail("an error\nthat tells of /a/folder/with/a/name/that/is/too/long")
    assert terminal.getvalue().splitlines() == [
        "dflash: some words of a remark",
        "that go on and on",
        "dflash: error: an error that",
        "tells of",
        "/a/folder/with/a/name/that/is/",
        "too/long",
    ]


def test_the_texts_of_a_table_go_on_below_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    Screen(Config(color="never")).table([("漢字", "a text that is too long for a row"), ("x", "\x1b[2J"), ("", "")])
    assert terminal.getvalue().split("\n") == ["漢字  a text that is too long", "      for a row", "x     ␛[2J", "", ""]


def test_a_table_beside_names_that_leave_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    Screen(Config(color="never")).table([("a name that is long", "a text of words")])
    assert terminal.getvalue() == "a name that is long  a text of\nwords\n"


def test_a_pipe_gets_whole_lines(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(Config())
    screen.say("word " * 40)
    screen.table([("name", "word " * 40)])
    assert capsys.readouterr().err.count("\n") == 2


def test_drawn_lines_have_their_colours_only_where_there_are_some(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    monkeypatch.setenv("TERM", "xterm")
    Screen(Config(color="never")).draw([Text("one", "bold")])
    assert terminal.getvalue() == "one\n"
    Screen(Config(color="always")).draw([Text("two", "bold")])
    assert terminal.getvalue().endswith("\x1b[1mtwo\x1b[0m\n")
