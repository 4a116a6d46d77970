"""A chat while it is being saved."""

from __future__ import annotations

import os
import signal
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dflash_cli.conversation import Conversation
from dflash_cli.errors import DFlashError, UsageError
from dflash_cli.session_file import read
from dflash_cli.session_store import SessionStore
from dflash_cli.trace import head_of, record
from tests.scripted_model import scripted_model
from tests.sessions import records, turn
from tests.test_session_file import FullDisk


@pytest.fixture
def store(tmp_path: Path) -> SessionStore:
    return SessionStore(tmp_path / "sessions")


def kinds(path: Path) -> list[str]:
    return [each["type"] for each in records(path)]


def test_there_is_no_file_before_the_first_turn(store: SessionStore, tmp_path: Path) -> None:
    conversation = Conversation(scripted_model(tmp_path, ["x"]))
    log = store.open_new()
    log.note(conversation.model, conversation.decoder)
    log.undo()
    log.clear()
    assert not log.is_saved
    log.close()
    assert not store.folder.exists()


def test_file_and_folder_are_private(store: SessionStore) -> None:
    log = store.open_new()
    log.append_turn(turn())
    assert log.is_saved
    for path in (store.folder, store.folder / ".locks"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    for path in store.folder.rglob("*"):
        assert path.is_dir() or stat.S_IMODE(path.stat().st_mode) == 0o600
    assert kinds(log.path) == ["session", "turn"]
    log.close()
    assert [each.name for each in store.folder.rglob("*") if each.is_file()].count(f"{log.name}.jsonl") == 1
    assert not list(store.folder.rglob("*.lock"))


def test_the_pair_and_the_system_prompt_are_written_when_they_change(store: SessionStore, tmp_path: Path) -> None:
    conversation = Conversation(scripted_model(tmp_path, ["x"], system="Be brief."))
    log = store.open_new()
    for changes in ({}, {}, {"temperature": 0.5}, {"overlay": "off"}, {"system": None}, {"system": ""}):
        conversation.configure(**changes)
        log.note(conversation.model, conversation.decoder)
        log.append_turn(turn())
    log.close()
    assert kinds(log.path) == [
        "session", "pair", "system", "turn", "turn", "pair", "turn", "turn", "system", "turn", "turn"
    ]  # fmt: skip
    found = read(log.path).state
    assert found.system is None
    assert found.pair["settings"] == {"temperature": 0.5}
    assert [each.pair["settings"] for each in found.saved_turns][:3] == [{}, {}, {"temperature": 0.5}]


def test_a_system_prompt_is_saved_on_leaving(store: SessionStore, tmp_path: Path) -> None:
    conversation = Conversation(scripted_model(tmp_path, ["x"]))
    log = store.open_new()
    log.append_turn(turn())
    conversation.configure(system="Be brief.")
    log.note(conversation.model, conversation.decoder)
    log.close()
    assert read(log.path).state.system == "Be brief."


def test_events_are_saved_where_they_are_given(store: SessionStore, tmp_path: Path) -> None:
    conversation = Conversation(scripted_model(tmp_path, ["x"]))
    log = store.open_new()
    log.append_turn(turn(), record([], conversation.model.codec, (), head_of(conversation.model, conversation.decoder)))
    log.append_turn(turn())
    log.close()
    assert ["events" in each for each in records(log.path)] == [False, True, False]


ACTIONS = st.lists(st.sampled_from(["turn", "turn", "turn", "undo", "clear", "reopen", "rename", "full", "room"]))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ACTIONS)
def test_the_file_is_what_happened(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, actions: list[str]
) -> None:
    """Whatever is done, also while the disk is full: at the end the file holds the conversation."""
    store = SessionStore(tmp_path_factory.mktemp("sessions"))
    log, expected, has_turned = store.open_new(), [], False
    with monkeypatch.context() as patch:
        disk = FullDisk(10**9, patch)
        for number, action in enumerate([*actions, "room"]):
            try:
                if action == "turn":
                    expected, has_turned = [*expected, turn(str(number))], True
                    log.append_turn(expected[-1])
                elif action == "undo":
                    expected = expected[:-1]
                    log.undo()
                elif action == "clear":
                    expected = []
                    log.clear()
                elif action == "reopen" and has_turned and disk.room > 10**6:
                    log.close()
                    log = store.resume(log.name)
                elif action == "rename":
                    log.rename(f"name {number}")
                elif action in ("full", "room"):
                    disk.room = {"full": 30, "room": 10**9}[action]
            except DFlashError:
                assert disk.room == 0
            assert log.state.turns == expected
        log.close()
    assert store.names() == ([log.name] if has_turned else [])
    if has_turned:
        reading = read(log.path)
        assert (reading.problem, reading.state.turns) == ("", expected)


def test_a_failure_is_told_once_and_made_up_for(store: SessionStore, monkeypatch: pytest.MonkeyPatch) -> None:
    log = store.open_new("x")
    log.append_turn(turn("one"))
    with monkeypatch.context() as patch:
        disk = FullDisk(0, patch)
        with pytest.raises(DFlashError, match=r"No space left on device\. It is tried again after each turn and when"):
            log.append_turn(turn("two"))
        log.append_turn(turn("three"))
        log.undo()
        disk.room = 10**6
        log.append_turn(turn("four"))
        disk.room = 0
        with pytest.raises(DFlashError, match="No space left"):
            log.append_turn(turn("five"))
    assert [each.prompt for each in read(log.path).state.turns] == ["one", "two", "four"]
    log.close()
    assert [each.prompt for each in read(log.path).state.turns] == ["one", "two", "four", "five"]


@pytest.mark.skipif(os.name == "nt", reason="POSIX only")
def test_ctrl_c_waits_until_the_turn_is_saved(store: SessionStore, monkeypatch: pytest.MonkeyPatch) -> None:
    log = store.open_new("x")
    log.append_turn(turn("one"))
    write = os.write

    def interrupted_write(handle: int, data: bytes) -> int:
        os.kill(os.getpid(), signal.SIGINT)
        return write(handle, data)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", interrupted_write)
        with pytest.raises(KeyboardInterrupt):
            log.append_turn(turn("two"))
    log.append_turn(turn("three"))
    log.close()
    assert [each.prompt for each in read(log.path).state.turns] == ["one", "two", "three"]


@pytest.mark.parametrize("has_file", [True, False])
def test_ctrl_c_waits_until_a_name_is_given(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch, has_file: bool
) -> None:
    """The file must not be elsewhere than it is written to."""
    log = store.open_new("x")
    if has_file:
        log.append_turn(turn("one"))
    move = store.move

    def interrupted_move(*args: Any, **kwargs: Any) -> Any:
        lock = move(*args, **kwargs)
        signal.raise_signal(signal.SIGINT)
        return lock

    monkeypatch.setattr(store, "move", interrupted_move)
    with pytest.raises(KeyboardInterrupt):
        log.rename("y")
    assert log.name == "y"
    log.append_turn(turn("two"))
    log.close()
    assert [each.prompt for each in store.read("y").state.turns] == ["one", "two"][not has_file :]
    assert not list(store.folder.rglob("*.lock"))


def test_several_turns_are_taken_back_at_once(store: SessionStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while the disk is full, and with Ctrl-C in the middle."""
    log = store.open_new("x")
    log.append_turns([turn(name) for name in "abcdef"])
    with monkeypatch.context() as patch:
        FullDisk(0, patch)
        with pytest.raises(DFlashError, match="No space left"):
            log.undo(2)
    assert [each.prompt for each in log.state.turns] == ["a", "b", "c", "d"]
    fsync = os.fsync
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: (signal.raise_signal(signal.SIGINT), fsync(handle)))
        with pytest.raises(KeyboardInterrupt):
            log.undo(3)
    assert [each.prompt for each in read(log.path).state.turns] == ["a"]
    log.undo(9)
    log.close()
    assert read(log.path).state.turns == []


def test_what_could_never_be_saved_is_told_on_leaving(store: SessionStore, monkeypatch: pytest.MonkeyPatch) -> None:
    log = store.open_new("x")
    log.append_turn(turn("one"))
    FullDisk(0, monkeypatch)
    with pytest.raises(DFlashError):
        log.append_turn(turn("two"))
    with pytest.raises(DFlashError, match=r"No space left on device$"):
        log.close()
    monkeypatch.undo()
    again = store.resume("x")  # the lock is gone nonetheless
    assert [each.prompt for each in again.state.turns] == ["one"]
    again.close()


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="permissions do not bind here")
def test_a_folder_that_cannot_be_written(store: SessionStore) -> None:
    store.folder.mkdir(mode=0o500)
    log = store.open_new()
    with pytest.raises(DFlashError, match="cannot write to the folder"):
        log.append_turn(turn())
    log.append_turn(turn())
    store.folder.chmod(0o700)
    log.append_turn(turn())
    log.close()
    assert len(read(log.path).state.turns) == 3


def test_a_folder_that_cannot_be_made(store: SessionStore) -> None:
    store.folder.write_text("")
    log = store.open_new()
    with pytest.raises(DFlashError, match=r"cannot write to the folder .*\. It is tried again"):
        log.append_turn(turn())
    store.folder.unlink()
    log.append_turn(turn())
    log.close()
    assert len(read(log.path).state.turns) == 2


def test_a_disk_that_is_full_from_the_beginning(store: SessionStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    log = store.open_new()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(DFlashError, match=r"No space left on device\. It is tried again"):
            log.append_turn(turn("one"))
    assert [each for each in store.folder.iterdir() if each.is_file()] == []
    log.append_turn(turn("two"))
    log.close()
    assert [each.prompt for each in read(log.path).state.turns] == ["one", "two"]


def test_a_file_that_was_deleted_meanwhile_is_not_made_again(store: SessionStore) -> None:
    log = store.open_new()
    log.append_turn(turn())
    log.path.unlink()
    with pytest.raises(DFlashError, match="it is not there any more"):
        log.append_turn(turn())
    assert store.names() == []


def test_a_new_name(store: SessionStore) -> None:
    log = store.open_new()
    log.rename("first")
    assert store.names() == []
    log.append_turn(turn("one"))
    assert store.names() == ["first"]
    log.rename("Gro\u0308ße")
    log.rename("Größe")
    log.append_turn(turn("two"))
    assert (log.name, store.names()) == ("Größe", ["Größe"])
    assert kinds(log.path) == ["session", "turn", "rename", "turn"]
    with pytest.raises(DFlashError, match="'Größe' is open in another dflash"):
        SessionStore(store.folder).resume("Größe")
    log.rename("GRÖSSE")  # another case only
    assert store.names() == ["GRÖSSE"]
    log.close()
    assert not list(store.folder.rglob("*.lock"))


@pytest.mark.parametrize("name", ["taken", "TAKEN", "../x", ""])
def test_a_name_that_cannot_be(store: SessionStore, name: str) -> None:
    other = store.open_new("taken")
    other.append_turn(turn("theirs"))
    other.close()
    for has_file in (False, True):
        log = store.open_new()
        if has_file:
            log.append_turn(turn())
        before = log.name
        with pytest.raises(UsageError):
            log.rename(name)
        with pytest.raises(UsageError):
            store.open_new(name)
        log.append_turn(turn())
        assert log.name == before
        log.close()
    assert [each.prompt for each in store.read("taken").state.turns] == ["theirs"]


def test_a_name_is_kept_for_the_chat_that_took_it(store: SessionStore) -> None:
    first = store.open_new("x")
    with pytest.raises(DFlashError, match="'X' is open in another dflash"):
        store.open_new("X")
    first.close()
    store.open_new("x").close()
