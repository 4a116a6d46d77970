"""The overlay in a chat: the slash command, and a whole session with Ctrl-C in a real terminal."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from dflash_cli.chat import Chat, Screen
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


@HAS_TMUX
def test_a_session(tmp_path: Path, home: Path) -> None:
    answers = json.dumps(["First \x1b[2Janswer.", LONG, "Third."])
    program = [sys.executable, "-m", "tests.chat_driver", str(tmp_path / "bytes"), answers]
    settings = [f"HOME={home}", "LC_ALL=C.UTF-8", "PYTHONUTF8=1", "OMP_NUM_THREADS=1"]
    tmux = Tmux(tmp_path, 80, 24, ["env", "-u", "NO_COLOR", *settings, *program])
    try:
        tmux.wait("Ctrl-D leaves", 30)
        tmux("send-keys", "hello", "Enter")
        tmux.wait("of drafts accepted")
        tmux("send-keys", "go on", "Enter")
        tmux.wait("word6 ")
        tmux("send-keys", "typed", "Enter", "C-c")
        tmux.wait("[interrupted]")
        tmux("send-keys", "once more", "Enter")
        lines = tmux.wait("Third.")
    finally:
        tmux("kill-server")
    first = lines.index("First ␛[2Janswer.")
    assert lines[first + 1].startswith("▮")
    assert lines[first + 2].startswith("τ ")
    assert lines[first + 3].startswith("survival by position ")
    assert "of drafts accepted" in lines[first + 4]
    assert lines[first + 5] == "> go on"
    interrupted = next(i for i, line in enumerate(lines) if line.startswith("[interrupted]"))
    told = [line for line in lines[first + 6 : interrupted] if not line.startswith(("▮", "τ", "survival"))]
    assert LONG.startswith("".join(f"{line} " for line in told).rstrip())
    assert not any("typed" in line or "^C" in line for line in lines)
