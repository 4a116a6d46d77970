"""What goes wrong around an answer costs nothing but itself: the conversation and its file stay alike."""

from __future__ import annotations

import gc
import os
import signal
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dflash_cli.config import Config
from dflash_cli.errors import DFlashError
from dflash_cli.loading import load
from dflash_cli.session_store import SessionStore
from tests.scripted_model import scripted_model
from tests.talk import Talk
from tests.tiny import write_pair


@pytest.fixture
def talk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Talk:
    made = Talk(scripted_model(tmp_path, ["one!", "two!", "three!", "four!"]), capsys)
    made.chat.log = SessionStore(tmp_path / "saved").open_new("x")
    return made


def saved(talk: Talk) -> list[str]:
    assert talk.chat.log is not None
    return [turn.prompt for turn in talk.chat.log.state.turns]


def kept(talk: Talk) -> list[str]:
    return [turn.prompt for turn in talk.conversation.turns]


def interrupt(real: Any, times: list[int]) -> Any:
    """`real`, with Ctrl-C before its first calls."""

    def call(*args: Any) -> Any:
        if times.pop() if times else 0:
            signal.raise_signal(signal.SIGINT)
        return real(*args)

    return call


def test_a_trace_that_cannot_be_written_costs_no_saved_turn(talk: Talk) -> None:
    class Full:
        def write(self, _recording: object) -> None:
            raise DFlashError("the trace cannot be written: no space left")

    talk.chat._trace = Full()  # type: ignore[assignment]
    _, err = talk("a", "b")
    assert sum("no space left" in line for line in err) == 2
    assert saved(talk) == kept(talk) == ["a", "b"]


def test_ctrl_c_after_the_answer_waits_until_the_turn_is_saved(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(talk.chat, "_tell", interrupt(talk.chat._tell, [1]))
    with suppress(KeyboardInterrupt):
        talk("a")
    assert saved(talk) == kept(talk) == ["a"]


def test_a_screen_that_fails_after_the_answer(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = talk.chat._ask_plainly

    def fail(*args: Any) -> None:
        ask(*args)
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(talk.chat, "_ask_plainly", fail)
    _, err = talk("a")
    assert "your message is not part of the conversation" in err[-1]
    assert saved(talk) == kept(talk) == []


@pytest.mark.parametrize(("command", "left"), [("/undo 3", 0), ("/retry", 3)])
def test_ctrl_c_while_the_file_is_written(talk: Talk, command: str, left: int, monkeypatch: pytest.MonkeyPatch) -> None:
    talk("a", "b", "c")
    monkeypatch.setattr(os, "fsync", interrupt(os.fsync, [1]))
    with suppress(KeyboardInterrupt):
        talk(command)
    assert len(kept(talk)) == left
    assert saved(talk) == kept(talk)


def test_a_model_that_was_let_go_is_gone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = (str(write_pair(tmp_path / name, seed=seed)[0]) for name, seed in (("a", 0), ("b", 7)))
    talk = Talk(load(Config(model=a, device="cpu", dtype="float32", max_new_tokens=8)), capsys)
    talk("one")
    target, decoder = weakref.ref(talk.conversation.model.target), weakref.ref(talk.conversation.decoder)
    talk(f"/model {b}")
    gc.collect()
    assert (target(), decoder()) == (None, None)
    assert talk.chat.recording is not None  # the last answer can still be played


def test_settings_wait_where_no_model_is_loaded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = str(write_pair(tmp_path / "a")[0])
    talk = Talk(load(Config(model=a, device="cpu", dtype="float32", max_new_tokens=8)), capsys)
    talk("one")
    talk.conversation.release(keep_weights=False)
    for command in ("/system be brief", "/set temperature 0.5", "/set max_new_tokens 3", "/stats", "/show", "/context"):
        _, err = talk(command)
        assert not any("unexpected" in line for line in err), command
    _, err = talk("hello")
    assert "no model is loaded; /model NAME loads one" in err[0]
    talk(f"/model {a}", "two")
    assert talk.conversation.model.params.temperature == 0.5
    assert kept(talk) == ["one", "two"]
