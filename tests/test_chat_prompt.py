"""The editable prompt, fed with keys; in a whole chat in a real terminal it is in `test_prompt_terminal.py`."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from dflash_cli import chat_prompt
from dflash_cli.chat_input import LEAVE_HINT
from dflash_cli.chat_prompt import PromptInput
from dflash_cli.config import Config
from dflash_cli.errors import DFlashError

PASTE = "\x1b[200~{}\x1b[201~"
CTRL_C, CTRL_D, ALT_ENTER, UP, F2, ALT_E, CTRL_X_E = "\x03", "\x04", "\x1b\r", "\x1b[A", "\x1bOQ", "\x1be", "\x18\x05"


PAUSE = 0.3  # what a key begins (completion, the editor) is done by then


def typed(
    *keys: str,
    chat: Any = None,
    prepare: Callable[[PromptInput], None] = lambda _: None,
    pause: float = 0,
    **config: Any,
) -> tuple[list[str | None], list[str]]:
    """What the editable prompt gives for these keys, until it says to leave; and what it tells."""
    told: list[str] = []
    got: list[str | None] = []
    with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
        source = PromptInput(told.append, Config(**config), lambda: chat)
        prepare(source)

        def send() -> None:
            with suppress(OSError):  # the test has failed, and the pipe is closed
                for each in keys:
                    time.sleep(pause)
                    pipe.send_text(each)

        sender = threading.Thread(target=send)  # the pipe takes less than a long paste at a time
        sender.start()
        while not got or got[-1] is not None:
            got.append(source.read())
        sender.join()
    return got, told


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("hello\r", "hello"),
        ("one\x1b\rtwo\r", "one\ntwo"),
        ("one\ntwo\r", "one\ntwo"),
        (PASTE.format("one\ntwo\r\nthree") + "\r", "one\ntwo\nthree"),
        (PASTE.format("one\ntwo\n") + "\r", "one\ntwo\n"),
        (PASTE.format("/usr/bin/x\n/overlay") + "\r", "/usr/bin/x\n/overlay"),
        ("nope\x03yes\r", "yes"),
        ("漢字 👍\r", "漢字 👍"),
        (" secret\r", " secret"),
        ("a\u202eb\r", "a\u202eb"),
    ],
)
def test_a_message(keys: str, message: str) -> None:
    assert typed(keys, CTRL_D) == ([message, None], [])


def test_ctrl_c_twice_in_a_row_leaves() -> None:
    assert typed(CTRL_C, CTRL_C) == ([None], [LEAVE_HINT])


def test_ctrl_c_with_something_between_does_not_leave() -> None:
    assert typed(CTRL_C, "x\x7f", CTRL_C, "more\r", CTRL_C, "again\r", CTRL_D) == (
        ["more", "again", None],
        [LEAVE_HINT, LEAVE_HINT, LEAVE_HINT],
    )


def test_history() -> None:
    assert typed("one\x1b\rtwo\r", " secret\r", CTRL_D)[0] == ["one\ntwo", " secret", None]
    assert typed(UP + "\r", CTRL_D)[0] == ["one\ntwo", None]
    assert typed("now\r", UP, "\r", CTRL_D, history=False, pause=PAUSE)[0] == ["now", "now", None]
    assert typed(UP + "\r", CTRL_D)[0] == ["one\ntwo", None]


def test_text_that_is_put_there() -> None:
    def prepare(source: PromptInput) -> None:
        source.prefill("what was ")
        source.prefill("typed\r\nearly\n")

    assert typed(" and late\r", "next\r", CTRL_D, prepare=prepare)[0] == [
        "what was typed\nearly and late",
        "next",
        None,
    ]


def test_text_that_is_put_there_and_thrown_away() -> None:
    got, _ = typed(CTRL_C, CTRL_C, "new\r", CTRL_D, prepare=lambda source: source.prefill("old"))
    assert got == ["new", None]


def test_the_name_is_completed_and_then_its_word() -> None:
    assert typed("/overl", "\t", " f", "\t", "\r", CTRL_D, chat=a_chat(), pause=PAUSE)[0] == ["/overlay full", None]


def test_a_completer_that_fails_does_not_end_the_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dflash_cli.chat_completion.candidates", lambda *_: 1 / 0)
    assert typed("/overl", "\t", " ", "\t", "x\r", CTRL_D, chat=a_chat(), pause=PAUSE)[0] == ["/overl x", None]


def a_chat() -> Any:
    stats = SimpleNamespace(tau=2.0, tokens_per_s=9.0, drafted=1, prompt_tokens=1, ids=[1])
    turn = SimpleNamespace(stats=stats)
    model = SimpleNamespace(pair=SimpleNamespace(name="m"), codec=SimpleNamespace(supports_thinking=False))
    decoder = SimpleNamespace(backend=SimpleNamespace(name="eager"))
    overlay = SimpleNamespace(mode="off")
    overlay.cycle = lambda: setattr(overlay, "mode", "full")
    failed: list[str] = []
    return SimpleNamespace(
        conversation=SimpleNamespace(model=model, decoder=decoder, turns=[turn], is_released=False, max_len=9),
        overlay=overlay,
        last_turn=turn,
        log=None,
        screen=SimpleNamespace(fail=failed.append),
        failed=failed,
    )


def test_f2_changes_the_overlay() -> None:
    chat = a_chat()
    assert typed("half", F2, " a message\r", CTRL_D, chat=chat)[0] == ["half a message", None]
    assert chat.overlay.mode == "full"
    assert typed(F2, CTRL_D)[0] == [None]


@pytest.mark.parametrize("keys", [ALT_E, CTRL_X_E])
def test_the_editor(monkeypatch: pytest.MonkeyPatch, keys: str) -> None:
    monkeypatch.setattr(chat_prompt, "edit", lambda text: f"{text}\nmore")
    assert typed("begun" + keys, "!\r", CTRL_D, pause=PAUSE)[0] == ["begun\nmore!", None]


def test_an_editor_that_saves_nothing_or_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_text: str) -> None:
        raise DFlashError("no editor")

    monkeypatch.setattr(chat_prompt, "edit", lambda _text: None)
    assert typed("begun" + ALT_E, "!\r", CTRL_D, pause=PAUSE) == (["begun!", None], [])
    monkeypatch.setattr(chat_prompt, "edit", fail)
    assert typed("begun" + ALT_E, "!\r", CTRL_D, pause=PAUSE) == (["begun!", None], ["no editor"])
    chat = a_chat()
    assert typed("begun" + ALT_E, "!\r", CTRL_D, pause=PAUSE, chat=chat) == (["begun!", None], [])
    assert chat.failed == ["no editor"]


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="no pseudo-terminals here")
def test_what_is_typed_between_an_answer_and_its_prompt() -> None:
    from prompt_toolkit.input.vt100 import Vt100Input

    master, slave = os.openpty()
    with os.fdopen(slave) as terminal, create_app_session(input=Vt100Input(terminal), output=DummyOutput()):
        source = PromptInput(print, Config(), lambda: None)
        os.write(master, b"one\rtwo\rhalf ")  # its Enter is a newline by now, and the last line has no end
        assert [source.read(), source.read()] == ["one", "two"]
        sender = threading.Timer(PAUSE, lambda: os.write(master, b"a line\nmore\r"))  # this newline is Ctrl-J
        sender.start()
        assert source.read() == "half a line\nmore"
        sender.join()
        os.write(master, CTRL_D.encode())
        assert source.read() is None
    os.close(master)


@pytest.mark.skipif(os.name == "nt", reason="no such signal")
def test_kill_leaves_the_prompt_first(monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _frame: got.append(number))
    try:
        with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
            source = PromptInput(print, Config(), lambda: None)
            source._session.app.after_render += lambda _app: signal.raise_signal(signal.SIGTERM) if not got else None
            assert source.read() is None
        assert got == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("text", [("word " * 15 + "\n") * 13_000, "word " * 40_000], ids=["lines", "line"])
def test_a_very_long_paste(text: str) -> None:
    begun = time.monotonic()
    got, _ = typed(PASTE.format(text) + "!\r", CTRL_D)
    assert got == [text + "!", None]
    assert time.monotonic() - begun < 120
