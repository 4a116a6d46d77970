from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from dflash_cli import chat_completion
from dflash_cli.chat_commands import COMMANDS
from dflash_cli.chat_completion import candidates, completer, is_name
from dflash_cli.slash import PATHS, Command, one_of

CHAT: Any = SimpleNamespace(names=["my first chat", "My second", "other"])


def _set_words(chat: Any, before: Sequence[str]) -> Iterable[str]:
    return {0: ("seed", "stop"), 1: (f"<{before[0]}>" if before else "",)}.get(len(before), ())


TABLE = (
    Command("/overlay", "[off|full]", "Show drafts.", print, words=one_of("off", "full", "fuller")),
    Command("/quit", "", "Leave.", print, ("/exit", "/over")),
    Command("/load", "FILE", "Read.", print, words=lambda chat, before: (*chat.names, PATHS) if not before else ()),
    Command("/set", "KEY VALUE", "Change.", print, words=_set_words),
    Command("/export", "KIND FILE", "Write.", print, words=lambda _, before: (("md",), (PATHS,), ())[len(before[:2])]),
    Command("/broken", "WORD", "Fail.", print, words=lambda *_: 1 / 0),  # type: ignore[arg-type, return-value]
)


@pytest.fixture(autouse=True)
def table(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "command" not in request.fixturenames:  # a test of one of the real ones
        monkeypatch.setattr(chat_completion, "COMMANDS", TABLE)


def completed(text: str, chat: Any = CHAT) -> list[str]:
    """The whole text with each candidate put in."""
    return [text[: len(text) - each.length] + each.text for each in candidates(chat, text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/ov", ["/overlay", "/over"]),
        ("/OVERL", ["/overlay"]),
        ("  /q", ["  /quit"]),
        ("/overlay", ["/overlay"]),
        ("/zzz", []),
        ("/overlay ", ["/overlay off", "/overlay full", "/overlay fuller"]),
        ("/overlay f", ["/overlay full", "/overlay fuller"]),
        ("/overlay\nF", ["/overlay\nfull", "/overlay\nfuller"]),
        ("/overlay full ", []),
        ("/quit ", []),
        ("/zzz ", []),
        ("/set s", ["/set seed", "/set stop"]),
        ("/set  seed  ", ["/set  seed  <seed>"]),
        ("/SET seed <s", ["/SET seed <seed>"]),
        ("/set seed 1 ", []),
        ("/load MY F", ["/load my first chat"]),
        ("/load my first c", ["/load my first chat"]),
    ],
)
def test_slash_commands(text: str, expected: list[str]) -> None:
    assert completed(text) == expected


@pytest.mark.parametrize("text", ["", " ", "hello", "hello /ov", "//", "//ov", "//overlay f", "a\n/ov"])
def test_other_messages_are_left_alone(text: str) -> None:
    assert completed(text) == []
    assert not is_name(text)


def test_what_a_name_means() -> None:
    assert [each.meta for each in candidates(CHAT, "/ov")] == ["Show drafts.", "The same as /quit."]
    assert is_name("/ov")
    assert is_name(" /")
    assert not is_name("/ov ")
    assert not is_name("/ov f")
    assert not is_name("/ov\n")


@pytest.fixture
def files(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "files"
    (folder / "a folder").mkdir(parents=True)
    for name in ("a file.md", ".hidden", "a folder/b c.md", "bad\udcff", "turn\x1b[2J"):
        (folder / name).touch()
    (home / "at home.md").touch()
    monkeypatch.chdir(folder)


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/export md ", ["a file.md", "a folder/", "bad\udcff", "turn\x1b[2J"]),
        ("/export md a f", ["a file.md", "a folder/"]),
        ("/export md a  f", []),
        ("/export md a folder/b c", ["a folder/b c.md"]),
        ("/export md ./a folder/", ["./a folder/b c.md"]),
        ("/export md .h", [".hidden"]),
        ("/export md ~", ["~/"]),
        ("/export md ~/at h", ["~/at home.md"]),
        ("/export md ~nobody-here", []),
        ("/export md no/such/folder", []),
        ("/load o", ["other"]),
        ("/load a f", ["a file.md", "a folder/"]),
    ],
)
def test_files(text: str, expected: list[str]) -> None:
    command = "/export md " if text.startswith("/export") else "/load "
    assert completed(text) == [command + each for each in expected]


def shown(text: str, chat: Any = CHAT) -> list[tuple[str, int, str, str]]:
    found = completer(lambda: chat).get_completions(Document(text), CompleteEvent())
    return [(each.text, each.start_position, each.display_text, each.display_meta_text) for each in found]


@pytest.mark.usefixtures("files")
def test_in_the_menu() -> None:
    assert shown("/q") == [("/quit", -2, "/quit", "Leave.")]
    assert shown("/export md turn") == [("turn\x1b[2J", -4, "turn␛[2J", "")]


def test_errors_and_a_chat_that_is_not_there_yet() -> None:
    assert shown("/broken ") == []
    assert shown("/q", None) == []


@pytest.mark.parametrize("command", COMMANDS, ids=lambda each: each.name)
def test_every_command_completes(command: Command) -> None:
    assert f"{command.name}" in [each.text for each in candidates(CHAT, command.name[:-1])]
    if command.arguments.startswith("[on|off"):
        assert {each.text for each in candidates(CHAT, f"{command.name} o")} >= {"on", "off"}
    if not command.arguments:
        assert candidates(CHAT, f"{command.name} ") == []
