"""/save, /load, /sessions and /export."""

from __future__ import annotations

import errno
import json
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from dflash_cli.chat_commands import run_command
from dflash_cli.conversation import Conversation
from dflash_cli.errors import DFlashError, UsageError
from dflash_cli.session_log import SessionLog
from dflash_cli.session_store import SessionStore
from dflash_cli.slash import PATHS
from dflash_cli.slash_sessions import COMMANDS
from tests.scripted_model import scripted_model
from tests.sessions import saved, turn


class Talk:
    """As much of a chat as these commands use."""

    def __init__(self, folder: Path, **config: Any) -> None:
        self.conversation = Conversation(scripted_model(folder, ["x"], **config))
        self.log: SessionLog | None = None
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def say_table(self, rows: Sequence[tuple[str, str]]) -> None:
        self.said += ["  ".join(row) for row in rows]

    def __call__(self, message: str) -> list[str]:
        self.said = []
        run_command(self, message)  # type: ignore[arg-type]
        return self.said

    def answer(self, prompt: str) -> None:
        self.conversation.turns.append(turn(prompt))
        if self.log is not None:
            self.log.append_turn(self.conversation.turns[-1])

    @property
    def prompts(self) -> list[str]:
        return [each.prompt for each in self.conversation.turns]


@pytest.fixture
def talk(tmp_path: Path) -> Iterator[Talk]:
    talk = Talk(tmp_path)
    talk.log = SessionStore().open_new()
    yield talk
    if talk.log is not None:
        talk.log.close()


def test_save(talk: Talk) -> None:
    assert talk.log is not None
    assert talk("/save") == [f"this chat is to be saved, with its first answer, as {talk.log.name!r}"]
    talk.answer("one")
    assert talk("/save Fibonacci 2") == ["this chat is saved as 'Fibonacci 2'"]
    assert talk("/save") == ["this chat is saved as 'Fibonacci 2'"]
    assert SessionStore().names() == ["Fibonacci 2"]
    saved(SessionStore(), "taken")
    for name, message in (("Taken", "there is a saved chat 'taken' already"), ("../x", "'/' is not allowed")):
        with pytest.raises(UsageError, match=message):
            talk(f"/save {name}")
    assert talk.log.name == "Fibonacci 2"


def test_a_chat_that_was_not_saved_so_far(talk: Talk) -> None:
    talk.log = None
    talk.conversation.configure(system="Be brief.")
    talk.answer("one")
    talk.answer("two")
    assert talk("/save x") == ["this chat is saved as 'x'"]
    state = SessionStore().read("x").state
    assert ([each.prompt for each in state.turns], state.system) == (["one", "two"], "Be brief.")
    assert state.pair["pair"] == "scripted"


def test_a_bad_name_begins_no_file(talk: Talk) -> None:
    talk.log = None
    talk.answer("one")
    with pytest.raises(UsageError, match="'/' is not allowed"):
        talk("/save ../x")
    assert talk.log is None
    assert SessionStore().names() == []


def test_a_chat_that_cannot_be_saved_so_far_is_saved_later(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    talk.log = None
    talk.answer("one")
    talk.answer("two")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(DFlashError, match=r"No space left on device\. It is tried again"):
            talk("/save x")
    talk.answer("three")
    assert [each.prompt for each in SessionStore().read("x").state.turns] == ["one", "two", "three"]


def test_ctrl_c_in_load_mixes_no_chats(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(SessionStore(), "theirs", turn("theirs"))
    talk.answer("mine")
    real = Conversation.take_up

    def take_up(*args: Any) -> None:
        real(*args)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Conversation, "take_up", take_up)
    with pytest.raises(KeyboardInterrupt):
        talk("/load theirs")
    assert talk.log is not None
    assert (talk.prompts, talk.log.name) == (["theirs"], "theirs")
    talk.log.close()
    assert not list(SessionStore().folder.rglob("*.lock"))


def test_load(talk: Talk, tmp_path: Path) -> None:
    store = SessionStore()
    other = Talk(tmp_path, system="Be brief.")
    other.answer("theirs")
    other("/save other")
    assert other.log is not None
    with pytest.raises(DFlashError, match="'other' is open in another dflash"):
        talk("/load other")
    other.log.close()

    talk.answer("mine")
    assert talk.log is not None
    mine = talk.log.name
    assert talk("/load other") == ["going on with 'other', 1 turn"]
    assert talk.prompts == ["theirs"]
    assert talk.conversation.model.config.system == "Be brief."
    assert talk.log.name == "other"
    talk.answer("more")
    assert [each.prompt for each in store.read("other").state.turns] == ["theirs", "more"]
    assert [each.prompt for each in store.read(mine).state.turns] == ["mine"]
    assert talk(f"/load {mine}") == [f"going on with {mine!r}, 1 turn"]
    assert talk.prompts == ["mine"]
    assert talk.conversation.model.config.system is None


def test_load_what_cannot_be(talk: Talk) -> None:
    talk.answer("mine")
    talk("/save mine")
    for message, problem in (
        ("/load", "/load takes the name of a saved chat; /sessions lists them"),
        ("/load mine", "this chat is 'mine'"),
        ("/load nine", "there is no saved chat 'nine'; did you mean 'mine'"),
    ):
        with pytest.raises(UsageError, match=problem):
            talk(message)
    assert talk.prompts == ["mine"]
    assert talk.log is not None
    assert talk.log.name == "mine"


def test_load_what_the_template_refuses(tmp_path: Path) -> None:
    refusing = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}{{ messages }}"
    talk = Talk(tmp_path, template=refusing)
    log = SessionStore().open_new("x")
    log._add({"type": "system", "system": "S"})
    log.append_turn(turn("theirs"))
    log.close()
    talk.answer("mine")
    with pytest.raises(DFlashError, match="no system"):
        talk("/load x")
    assert (talk.prompts, talk.log) == (["mine"], None)
    SessionStore().resume("x").close()


def test_load_a_damaged_one_of_another_pair(talk: Talk) -> None:
    store = SessionStore()
    path = saved(store, "x", turn("one"))
    pair = b'{"type":"pair","pair":"qwen3-8b","target":"Qwen/Qwen3-8B"}\n'
    path.write_bytes(path.read_bytes() + pair + b"garbage\n")
    (said,) = talk("/load x")
    assert said.startswith(f"going on with 'x-2', 1 turn; line 4 of {path} is damaged: ")
    assert said.endswith("and 'x' stays as it is; this chat was made with qwen3-8b; scripted goes on with it")


def test_sessions(talk: Talk, home: Path) -> None:
    assert talk("/sessions") == [f"no chat is saved in {home}/.local/share/dflash/sessions"]
    for number in range(21):
        saved(SessionStore(), f"n{number}", turn(f"prompt {number}"))
    *rows, last = talk("/sessions")
    assert len(rows) == 20
    assert "1 turn " in rows[0]
    assert "prompt" in rows[0]
    assert last == "1 more: `dflash sessions list`"


def test_export(talk: Talk, tmp_path: Path) -> None:
    path = tmp_path / "my chat.md"
    with pytest.raises(DFlashError, match="there is no turn to export yet"):
        talk(f"/export {path}")
    talk.answer("one")
    for message, problem in (("/export", "/export takes a file"), ("/export x.txt", r"\.md or \.json")):
        with pytest.raises(UsageError, match=problem):
            talk(message)
    talk("/save Fibonacci")
    assert talk(f"/export {path}") == [f"1 turn written to {path}"]
    assert path.read_text(encoding="utf-8").startswith("# Fibonacci\n\nModel: `scripted`\n\n## You\n\none\n")
    talk.log = None
    assert talk(f"/export {tmp_path / 'x.json'}") == [f"1 turn written to {tmp_path / 'x.json'}"]
    assert json.loads((tmp_path / "x.json").read_text(encoding="utf-8"))["title"] == "Chat"


def test_completion(talk: Talk) -> None:
    saved(SessionStore(), "x y")
    words = {each.name: each.words for each in COMMANDS}
    assert list(words["/load"](talk, ())) == ["x y"]  # type: ignore[arg-type]
    assert list(words["/load"](talk, ("x",))) == []  # type: ignore[arg-type]
    assert list(words["/export"](talk, ())) == [PATHS]  # type: ignore[arg-type]
    assert list(words["/save"](talk, ())) == []  # type: ignore[arg-type]
