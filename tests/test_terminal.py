from __future__ import annotations

import io
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_cli.terminal import AnswerOutput, is_interactive, is_terminal, printable

HOSTILE = {
    "colour": ("\x1b[31mred\x1b[0m", "␛[31mred␛[0m"),
    "clear the screen": ("\x1b[2J\x1b[H", "␛[2J␛[H"),
    "set the title": ("\x1b]0;owned\x07", "␛]0;owned␇"),
    "write the clipboard": ("\x1b]52;c;cm0=\x1b\\", "␛]52;c;cm0=␛\\"),
    "link": ("\x1b]8;;http://x\x1b\\y", "␛]8;;http://x␛\\y"),
    "one-byte CSI": ("\x9b31m", "<U+009B>31m"),
    "one-byte OSC": ("\x9d0;x\x9c", "<U+009D>0;x<U+009C>"),
    "device control": ("\x90q\x9c", "<U+0090>q<U+009C>"),
    "overwrite the line": ("safe\rrm -rf", "safe␍rm -rf"),
    "backspace": ("a\bb", "a␈b"),
    "delete": ("a\x7f", "a␡"),
    "null": ("\0", "␀"),
    "form feed": ("\f\v", "␌␋"),
    "shift out": ("\x0e\x0f", "␎␏"),
    "override": ("\u202etxt.exe\u202c", "<U+202E>txt.exe<U+202C>"),
    "isolate": ("\u2066a\u2069", "<U+2066>a<U+2069>"),
    "embedding": ("\u202a\u202b\u202d", "<U+202A><U+202B><U+202D>"),
    "separators": ("\u2028\u2029", "<U+2028><U+2029>"),
    "next line": ("a\x85b", "a<U+0085>b"),
    "surrogate": ("\udc9b", "<U+DC9B>"),
    "interlinear": ("\ufff9", "<U+FFF9>"),
}


@pytest.mark.parametrize(("text", "shown"), HOSTILE.values(), ids=HOSTILE)
def test_what_acts_on_a_terminal_is_shown(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "plain\n\ttext",
        "漢字 かな 한글",
        "👩‍👩‍👧 🏴󠁧󠁢󠁥󠁮󠁧󠁿 e\u0301",
        "سلام\u200f عليكم\u061c",
        "נקודה\u200e",
        "\u200b\ufeff",
        "←↑ ␛",
    ],
)
def test_text_stays_as_it_is(text: str) -> None:
    assert printable(text) == text


def test_line_ends() -> None:
    assert printable("a\r\nb\r\r\nc\r") == "a\nb␍\nc␍"


@given(st.text(st.characters(codec=None)))
def test_nothing_that_acts_is_left(text: str) -> None:
    shown = printable(text)
    assert not re.search("[\u2028-\u202e\u2066-\u2069\ud800-\udfff]", shown)
    assert all(unicodedata.category(char) != "Cc" or char in "\n\t" for char in shown)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_symbols() -> None:
    stream = Terminal()
    output = AnswerOutput(stream)
    output.write("a\x1b")
    output.write("[2Jé\n")
    output.end()
    assert stream.getvalue() == "a␛[2Jé\n"


def test_a_terminal_that_lacks_characters() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="latin-1")
    stream.isatty = lambda: True  # type: ignore[method-assign]
    AnswerOutput(stream).write("é漢\x1b")
    assert raw.getvalue() == b"\xe9??"


def test_a_pipe_gets_the_exact_bytes_at_once() -> None:
    raw = io.BytesIO()
    output = AnswerOutput(io.TextIOWrapper(raw, encoding="ascii", newline="\r\n"))
    output.write("é\x1b[2J\r")
    assert raw.getvalue() == "é\x1b[2J\r".encode()
    output.end()
    assert raw.getvalue() == "é\x1b[2J\r\n".encode()


@pytest.mark.parametrize(("pieces", "expected"), [(["a"], "a\n"), (["a\n", ""], "a\n"), ([], "\n")])
def test_an_answer_ends_its_line(pieces: list[str], expected: str) -> None:
    stream = io.StringIO()
    output = AnswerOutput(stream)
    for _ in range(2):
        for piece in pieces:
            output.write(piece)
        output.end()
    assert stream.getvalue() == expected * 2


def test_is_terminal() -> None:
    closed = io.StringIO()
    closed.close()
    assert is_terminal(Terminal())
    assert not any(is_terminal(stream) for stream in (None, closed, io.StringIO()))


def test_a_dumb_terminal_is_not_interactive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr("sys.stdout", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    assert is_interactive()
    monkeypatch.setenv("TERM", "dumb")
    assert not is_interactive()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout", io.StringIO())
    assert not is_interactive()
