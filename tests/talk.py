"""A chat whose messages are given, without a terminal."""

from __future__ import annotations

from typing import Any

import pytest

from dflash_cli.chat import Chat
from dflash_cli.chat_screen import Screen
from dflash_cli.config import Config
from dflash_cli.conversation import Conversation
from dflash_cli.model import Model


class Typed:
    """A person who types the given messages."""

    has_person = True

    def __init__(self, *messages: str) -> None:
        self.messages = list(messages)

    def prefill(self, text: str) -> None:
        """Nothing is typed ahead."""

    def read(self) -> str | None:
        return self.messages.pop(0) if self.messages else None


class Noted:
    """Stands for a session's log: what a chat told it."""

    name, is_saved, remark = "noted", False, ""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def undo(self, count: int = 1) -> None:
        self.calls += ["undo"] * count

    def clear(self) -> None:
        self.calls.append("clear")

    def note(self, model: Model, _decoder: object) -> None:
        self.calls.append(f"note {model.pair.name}")

    def append_turn(self, turn: Any, _recording: object = None) -> None:
        self.calls.append(f"turn {turn.prompt}")


class Talk:
    """A chat to type into, and what it shows."""

    def __init__(self, model: Model, capsys: pytest.CaptureFixture[str], *, quiet: bool = True) -> None:
        self.capsys = capsys
        self.log: Any = Noted()
        self.source = Typed()
        self.chat = Chat(Conversation(model), self.source, Screen(Config(quiet=quiet)), log=self.log)
        self.conversation = self.chat.conversation

    def __call__(self, *messages: str) -> tuple[str, list[str]]:
        """Type the messages: stdout, and the lines of stderr without their mark."""
        for message in messages:
            self.chat.take(message)
        out, err = self.capsys.readouterr()
        return out, [line.removeprefix("dflash: ") for line in err.splitlines()]
