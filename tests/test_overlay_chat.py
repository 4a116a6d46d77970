"""The overlay in a chat: the slash command, and a whole session with Ctrl-C in a real terminal."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from dflash_cli.chat import Chat
from dflash_cli.chat_screen import Screen
from dflash_cli.config import Config
from dflash_cli.conversation import Conversation
from tests.scripted_model import scripted_model
from tests.test_chat import LONG
from tests.test_chat_commands import Talk, Typed
from tests.tmux import HAS_TMUX, Tmux


@pytest.fixture
def talk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Talk:
    return Talk(tmp_path, capsys)


def test_the_mode_is_told_and_changed(talk: Talk) -> None:
    out, err = talk("/overlay", "/overlay full", "one", "/overlay off")
    assert out == "first\n"
    assert err.splitlines() == [
        "dflash: overlay off",
        "dflash: overlay full, but the output is no terminal to draw on",
        "dflash: overlay off",
    ]


def test_an_unknown_mode(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chat = Chat(Conversation(scripted_model(tmp_path, [])), Typed("/overlay token"), Screen(Config(quiet=True)))
    chat.run()
    err = capsys.readouterr().err
    assert "/overlay takes off, tokens or full; found 'token'; did you mean 'tokens'?" in err
    assert chat.overlay.mode == "off"


def test_the_source_of_the_last_answer(talk: Talk) -> None:
    out, err = talk("/raw", "one", "/raw", "/raw on", "/raw off", "/raw so")
    assert out == "first\nfirst\n"
    remarks = err.splitlines()
    assert remarks[0] == "dflash: error: there is no answer yet whose source could be shown"
    assert remarks[1] == "dflash: Markdown is shown as its source"
    assert remarks[2] == "dflash: Markdown is rendered when the overlay is off"
    assert remarks[3].startswith("dflash: error: /raw takes on or off; found 'so'")
    assert talk.chat.conversation.model.config.markdown


def test_slow_motion_is_told_and_changed(talk: Talk) -> None:
    out, err = talk("/slow", "/slow 1", "/slow 200", "one", "/slow off", "/slow 0", "/slow fast")
    assert out == "first\n"
    remarks = err.splitlines()
    assert remarks[:4] == [
        "dflash: full speed",
        "dflash: at most 1 step a second",
        "dflash: at most 200 steps a second",
        "dflash: full speed",
    ]
    assert "takes steps a second or off: found '0'; expected a number above 0" in remarks[4].replace("0.0", "'0'")
    assert "found 'fast'" in remarks[5]


def test_the_last_answer_is_played_again(talk: Talk) -> None:
    out, err = talk("/replay", "one", "/replay", "/replay 4x", "/replay soon")
    assert out.startswith("first\n")
    first, second = out.removeprefix("first\n").splitlines()
    assert first == second
    assert first.startswith("f[")
    assert re.sub(r"~[^~]*~|[\[\]+]", "", first) == "first"
    remarks = err.splitlines()
    assert remarks[0] == "dflash: error: there is no answer yet that could be played again"
    assert "found 'soon'" in remarks[1]
    assert len(talk.chat.conversation.turns) == 1


@HAS_TMUX
def test_a_session(tmp_path: Path, home: Path) -> None:
    answers = json.dumps(["First \x1b[2Janswer.", LONG, "Third."])
    program = [sys.executable, "-m", "tests.chat_driver", str(tmp_path / "bytes"), answers]
    settings = [f"HOME={home}", "LC_ALL=C.UTF-8", "PYTHONUTF8=1", "OMP_NUM_THREADS=1"]
    tmux = Tmux(tmp_path, 80, 24, ["env", "-u", "NO_COLOR", *settings, *program])
    try:
        tmux.wait("Ctrl-D leaves")
        tmux("send-keys", "hello", "Enter")
        tmux.wait("of drafts accepted")
        tmux.wait("/512 · τ")  # the toolbar of the next prompt
        tmux("send-keys", "go on", "Enter")
        tmux.wait("word6 ")
        tmux("send-keys", "typed", "Enter", "C-c")
        tmux.wait("[interrupted]")
        tmux.wait("> typed")  # it waited unseen for the prompt
        tmux("send-keys", " more", "Enter")
        lines = tmux.wait("Third.")
    finally:
        tmux("kill-server")
    first = lines.index("First ␛[2Janswer.")
    assert lines[first + 1].startswith("▮")
    assert lines[first + 2].startswith("tokens per pass    τ ")
    assert lines[first + 3].startswith("kept by position ")
    assert "of drafts accepted" in lines[first + 4]
    assert lines[first + 5] == "> go on"
    interrupted = next(i for i, line in enumerate(lines) if line.startswith("[interrupted]"))
    told = [line for line in lines[first + 6 : interrupted] if not line.startswith(("▮", "tokens per pass", "kept by"))]
    assert LONG.startswith("".join(f"{line} " for line in told).rstrip())
    assert [line for line in lines if "typed" in line or "^C" in line] == ["> typed more"]
