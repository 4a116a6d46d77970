from __future__ import annotations

import io
import stat
import sys
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from dflash_cli import chat_input
from dflash_cli.chat_input import LEAVE_HINT, LineInput, PromptInput, open_history, open_input

PASTE = "\x1b[200~{}\x1b[201~"


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def typed(*keys: str) -> tuple[list[str | None], list[str]]:
    """What the editable prompt gives for these keys, until it says to leave; and what it tells."""
    told: list[str] = []
    got: list[str | None] = []
    with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
        source = PromptInput(told.append)
        pipe.send_text("".join(keys))
        while not got or got[-1] is not None:
            got.append(source.read())
    return got, told


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("hello\r", "hello"),
        ("one\x1b\rtwo\r", "one\ntwo"),
        (PASTE.format("one\ntwo\r\nthree") + "\r", "one\ntwo\nthree"),
        (PASTE.format("one\ntwo\n") + "\r", "one\ntwo\n"),
        ("nope\x03yes\r", "yes"),
        ("漢字 👍\r", "漢字 👍"),
    ],
)
def test_a_message(keys: str, message: str) -> None:
    assert typed(keys, "\x04") == ([message, None], [])


def test_ctrl_c_twice_in_a_row_leaves() -> None:
    assert typed("\x03", "\x03") == ([None], [LEAVE_HINT])


def test_ctrl_c_with_something_between_does_not_leave() -> None:
    assert typed("\x03", "x\x7f", "\x03", "more\r", "\x03", "again\r", "\x04") == (
        ["more", "again", None],
        [LEAVE_HINT, LEAVE_HINT, LEAVE_HINT],
    )


def test_history_is_kept_and_private(home: Path) -> None:
    assert typed("one\x1b\rtwo\r", "\x04")[0] == ["one\ntwo", None]
    path = home / ".local/state/dflash/history"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert typed("\x1b[A\r", "\x04")[0] == ["one\ntwo", None]


def test_an_existing_history_is_made_private(home: Path) -> None:
    path = home / ".local/state/dflash/history"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\n# then\n+caf\xe9\n")
    path.chmod(0o666)
    told: list[str] = []
    assert list(open_history(told.append).load_history_strings()) == ["caf\ufffd"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert told == []


def test_no_place_for_a_history(home: Path) -> None:
    (home / ".local").write_text("a file")
    told: list[str] = []
    history = open_history(told.append)
    assert isinstance(history, InMemoryHistory)
    assert len(told) == 1
    assert told[0].startswith("the history is kept for this session only: cannot write to the folder")
    history.append_string("still works")


def test_a_history_that_cannot_grow(home: Path) -> None:
    told: list[str] = []
    history = open_history(told.append)
    path = home / ".local/state/dflash/history"
    path.unlink()
    path.mkdir()
    history.append_string("lost")
    assert told == [f"the history {path} cannot be written: Is a directory"]


def test_a_console_that_prompt_toolkit_cannot_drive(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_tell: object) -> None:
        raise OSError("no console")

    monkeypatch.setattr(chat_input, "is_interactive", lambda: True)
    monkeypatch.setattr(chat_input, "PromptInput", fail)
    told: list[str] = []
    assert isinstance(open_input(told.append), LineInput)
    assert told == ["line editing is not available here (no console)"]


def test_a_person_without_line_editing_is_prompted_on_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdin", Terminal(io.BytesIO("día\n".encode())))
    monkeypatch.setattr(sys, "stderr", Terminal(shown, encoding="utf-8"))
    source = LineInput(lambda _: None)
    assert source.has_person
    assert source.read() == "día"
    assert source.read() is None
    assert shown.getvalue() == b"> > \n"
    assert capsys.readouterr().out == ""
