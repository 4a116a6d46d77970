from __future__ import annotations

import io
import sys

import pytest

from dflash_cli import chat_input, chat_prompt
from dflash_cli.chat_input import LineInput, open_input
from dflash_cli.config import Config
from dflash_cli.errors import DFlashError


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def lines(data: bytes, monkeypatch: pytest.MonkeyPatch) -> LineInput:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    return LineInput(lambda _: None)


def test_a_console_that_prompt_toolkit_cannot_drive(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("no console")

    monkeypatch.setattr(sys, "stdin", Terminal(io.BytesIO()))
    monkeypatch.setattr(chat_input, "is_interactive", lambda: True)
    monkeypatch.setattr(chat_prompt, "PromptInput", fail)
    told: list[str] = []
    assert isinstance(open_input(told.append, Config()), LineInput)
    assert told == ["line editing is not available here (no console)"]


def test_a_person_without_line_editing_is_prompted_on_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdin", Terminal(io.BytesIO("día\n".encode())))
    monkeypatch.setattr(sys, "stderr", Terminal(shown, encoding="utf-8"))
    source = LineInput(lambda _: None)
    assert source.has_person
    source.prefill("nowhere")
    assert source.read() == "día"
    assert source.read() is None
    assert shown.getvalue() == b"> > \n"
    assert capsys.readouterr().out == ""


def test_a_line_that_is_no_utf8_and_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    source = lines(b"one\nt\xffwo\nthree", monkeypatch)
    assert source.read() == "one"
    with pytest.raises(
        DFlashError, match="line 2 of stdin is not UTF-8 text: byte 0xff at position 1; convert it first"
    ):
        source.read()
    assert source.read() == "three"
    assert source.read() is None


def test_no_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(DFlashError, match="stdin is closed"):
        open_input(lambda _: None, Config())
