"""The user's own saved chats as prompts: each turn with the conversation before it. Imports no torch.

A run copies them once into its own folder, so that what it learns from stays the same while chats go on. They are read
from this machine and written to this machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from dflash_cli.config import Config
from dflash_cli.errors import DFlashError
from dflash_cli.paths import write_private
from dflash_cli.session_records import SavedTurn
from dflash_cli.session_store import SessionStore
from dflash_cli.text import Message
from dflash_cli.train.prompts import TrainingPrompt
from dflash_cli.train.report import Reporter

if TYPE_CHECKING:
    from dflash_cli.model import Model

SOURCE = "sessions"
CHATS = "sessions.jsonl"  # in the run's own folder


class SavedChats:
    """The copy of the saved chats in `path`, one turn a line; where there is none yet, the chats themselves."""

    def __init__(self, path: Path, store: SessionStore | None = None) -> None:
        self.path, self.store = path, store or SessionStore()

    def copy(self, report: Reporter) -> None:
        """Write the copy, once. Raises DFlashError where no saved chat has a turn, or it cannot be written."""
        if self.path.is_file():
            return
        lines = [json.dumps(entry) for entry in self._entries(report)]
        if not lines:
            self._tell_none()
        write_private(self.path, "".join(f"{line}\n" for line in lines).encode())
        report.tell(f"{len(lines)} turns of saved chats copied to {self.path}")

    def _tell_none(self) -> NoReturn:
        count, where = len(self.store.names()), self.store.folder
        if not count:
            raise DFlashError(f"there is no saved chat in {where}; `dflash chat` saves them")
        raise DFlashError(
            f"there is no turn to learn from: each chat in {where} ({count} found) is empty or cannot be read; "
            "`dflash sessions list` shows them"
        )

    def prompts(self, model: Model) -> Iterator[TrainingPrompt]:
        """Each turn that was not empty. Raises DFlashError for a damaged line of the copy."""
        entries = self._copied() if self.path.is_file() else self._entries(Reporter(quiet=True))
        for entry in entries:
            yield _prompt(entry, model)

    def _copied(self) -> Iterator[dict[str, Any]]:
        for number, line in enumerate(self.path.read_bytes().splitlines(), 1):
            try:
                entry: dict[str, Any] = json.loads(line)
                entry["messages"][-1]["content"], entry["name"], entry["thought"], entry["target"]
                entry["raw"], entry["chat_template"]
            except (ValueError, KeyError, TypeError, IndexError):
                raise DFlashError(f"{self.path} line {number} is damaged; remove that file, it is made again") from None
            yield entry

    def _entries(self, report: Reporter) -> Iterator[dict[str, Any]]:
        for name in sorted(self.store.names()):
            try:
                reading = self.store.read(name)
            except DFlashError as error:
                report.tell(f"left out: {error}")
                continue
            if reading.problem:
                report.tell(f"{reading.problem}; what comes before is used")
            before = list[Message]()
            for number, saved in enumerate(reading.state.saved_turns, 1):
                if saved.turn.prompt.strip():
                    yield _entry(f"turn {number} of the chat {name!r}", before, saved)
                before += saved.turn.messages


def _entry(name: str, before: list[Message], saved: SavedTurn) -> dict[str, Any]:
    turn, settings = saved.turn, saved.pair.get("settings")
    settings = settings if isinstance(settings, dict) else {}
    system: list[Message] = [{"role": "system", "content": saved.system}] if saved.system else []
    return {
        "name": name,
        "messages": [*system, *before, {"role": "user", "content": turn.prompt}],
        "answer": None if turn.interrupted else turn.answer,
        "answer_ids": turn.stats.ids,
        "thought": bool(turn.thinking),
        "target": saved.pair.get("target"),
        "raw": settings.get("raw", Config.raw),
        "chat_template": settings.get("chat_template", Config.chat_template),
    }


def _prompt(entry: dict[str, Any], model: Model) -> TrainingPrompt:
    """The very ids of an answer are kept where this target gave it in this thinking mode by this template, else its
    text without the thinking: another template may leave that out."""
    config = model.config
    same = entry["target"] == model.pair.target and model.thinking in (None, entry["thought"])
    same = same and (entry["raw"], entry["chat_template"]) == (config.raw, config.chat_template)
    ids = tuple(entry["answer_ids"]) if same and entry.get("answer_ids") else None
    messages: list[Message] = entry["messages"]
    return TrainingPrompt(entry["name"], tuple(messages), SOURCE, entry.get("answer"), ids)
