"""The prompt of a whole chat in a real terminal: keys, completion, the toolbar, the editor, resizing, being killed."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dflash_cli.toolbar import Status, render
from tests.test_chat import LONG
from tests.test_toolbar import plain
from tests.tmux import HAS_TMUX, Tmux
from tests.waiting import poll

pytestmark = HAS_TMUX
ANSWERS = ["First answer.", LONG, "Third."]
STATUS = Status("scripted", "scripted", "full", 0, 512, thinking="auto")
READY = "/help lists the commands, F2 switches the overlay, Ctrl-D leaves"


class ChatWindow(Tmux):
    """A chat in a window. What is on the screen now is what `screen` says."""

    def screen(self) -> list[str]:
        return [line.rstrip() for line in self("capture-pane", "-p", "-J").rstrip("\n").splitlines()]

    def keys(self, *keys: str) -> None:
        self("send-keys", *keys)

    def paste(self, text: str) -> None:
        self("set-buffer", text)
        self("paste-buffer", "-p")

    def see(self, text: str) -> list[str]:
        """Wait for a text on the screen."""
        return self.until(lambda lines: text in "\n".join(lines))

    def until(self, holds: Callable[[list[str]], bool]) -> list[str]:
        return poll(self.screen, holds)

    def resize(self, width: int, height: int, shown: str) -> None:
        """Wait for the redraw, which ends with the toolbar: a second resize within it would be another test."""
        self("resize-window", "-x", str(width), "-y", str(height))
        self.until(lambda lines: lines[-1] == shown)


@pytest.fixture
def window(tmp_path: Path, home: Path) -> Iterator[Callable[..., ChatWindow]]:
    """Opens a chat in a window of the given size, from a shell that says when it has ended."""
    opened = []

    def start(width: int, height: int, *args: str, **environment: str) -> ChatWindow:
        settings = {"HOME": str(home), "LC_ALL": "C.UTF-8", "PYTHONUTF8": "1", "OMP_NUM_THREADS": "1"} | environment
        chat = [sys.executable, "-m", "tests.chat_driver", str(tmp_path / "bytes"), json.dumps(ANSWERS), *args]
        program = ["env", "-u", "NO_COLOR", *(f"{name}={value}" for name, value in settings.items()), *chat]
        shell = f"{shlex.join(program)}; echo ended $?; stty -a | grep -o ' -\\?echo '; cat"
        tmux = ChatWindow(tmp_path, width, height, ["sh", "-c", shell])
        opened.append(tmux)
        tmux.see("ctx ")
        return tmux

    yield start
    for tmux in opened:
        tmux("kill-server")


def bar(lines: list[str]) -> str:
    """The toolbar."""
    (line,) = (line for line in lines if "ctx " in line)
    return line


def test_keys_completion_and_toolbar(window: Callable[..., ChatWindow], home: Path) -> None:
    history = home / ".local/state/dflash/history"
    history.parent.mkdir(parents=True)
    history.write_text("\n# then\n+an old question\n")
    tmux = window(100, 40)
    lines = tmux.see(READY)
    assert bar(lines) == "scripted · scripted · thinking auto · overlay full · ctx ⋅⋅⋅⋅⋅ 0/512"
    assert bar(lines) == plain(render(STATUS, 100))
    assert lines[lines.index(">") + 1] == bar(lines)

    tmux.keys("/ov")
    tmux.see("/overlay  Show what was guessed")
    tmux.keys("Tab", "Space", "Tab")
    tmux.see("tokens")
    tmux.keys("f", "Tab")
    tmux.until(lambda lines: "> /overlay full" in lines)
    tmux.keys("C-c", "F2")
    tmux.see("overlay off")

    tmux.keys("C-r", "old q")
    tmux.see("an old question")
    tmux.keys("Enter", "Enter")
    tmux.see("tok/s · τ")
    lines = tmux.until(lambda lines: "ctx " in lines[-1])
    assert "overlay off · ctx ⋅⋅⋅⋅⋅ 48/512 · τ 3.2 · " in bar(lines)
    assert lines[lines.index("> an old question") + 1] == "First answer."

    tmux.keys("F2", "F2")
    tmux.see("overlay full")
    tmux.paste("/usr/lib/x.py: line 3\n/overlay off")
    tmux.see("  /overlay off")
    tmux.keys("Enter")
    tmux.see("with // in front: Enter sends it")
    tmux.until(lambda lines: "> //usr/lib/x.py: line 3" in lines)
    tmux.keys("Enter")
    tmux.see("word3 ")
    tmux.keys("and then", "Enter")  # typed during the answer: it waits at the prompt
    tmux.keys("C-c")
    tmux.see("[interrupted]")
    tmux.until(lambda lines: "> and then" in lines)
    tmux.keys("!", "Enter")
    lines = tmux.see("Third.")
    assert "> and then!" in lines


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_the_editor(window: Callable[..., ChatWindow], tmp_path: Path) -> None:
    editor = tmp_path / "an-editor"
    tmux = window(80, 24, "--color", "never", EDITOR=script(editor, 'printf " more" >> "$1"'))
    assert re.search(r"\x1b\[[\d;]*[34][0-8]", tmux("capture-pane", "-p", "-e")) is None  # no colours
    tmux.keys("half a question", "M-e")
    tmux.until(lambda lines: "> half a question" in lines and "   more" in lines)
    tmux.keys("Enter")
    tmux.see("First answer.")
    tmux.keys("/edit some text", "Enter")
    tmux.see("word3 ")
    tmux.keys("C-c")
    tmux.see("[interrupted]")

    script(editor, "stty raw -echo; kill -9 $$")  # the terminal is as before, nevertheless
    tmux.keys("begun", "M-e")
    failed = "ended with signal 9"  # wrapped wherever the path before it is long
    tmux.until(lambda lines: failed in " ".join(" ".join(lines).split()))
    tmux.until(lambda lines: "> begun" in lines)
    tmux.keys("C-u", "/edit x", "Enter")
    tmux.until(lambda lines: " ".join(" ".join(lines).split()).count(failed) == 2)
    tmux.keys("hello", "Enter")
    tmux.see("Third.")


def test_resizing_duplicates_no_line_and_loses_none(window: Callable[..., ChatWindow]) -> None:
    tmux = window(100, 24)
    tmux.keys("/help", "Enter")
    tmux.see("Send a message that starts with a slash.")
    tmux.until(lambda lines: ">" in lines)
    before = tmux.text()
    before = before[before.index("> /help") : before.index(">")]
    for text in ("", "short", "漢字 👍 and then " + "long " * 25 + "end"):
        tmux.keys("C-u", text)
        tmux.see(text[-5:])
        for width, height in ((40, 24), (100, 24), (30, 24), (120, 24), (20, 24), (100, 24), (100, 10), (100, 24)):
            tmux.resize(width, height, plain(render(STATUS, width)))
        lines = tmux.text()
        start = lines.index("> /help")
        after = lines[start : start + len(before)]
        assert after == before
        rest = lines[start + len(before) :]
        assert sum(line.startswith(">") for line in rest) == 1, rest
        assert sum("ctx " in line for line in rest) == 1


def test_a_tiny_window(window: Callable[..., ChatWindow]) -> None:
    tmux = window(20, 5)
    assert bar(tmux.screen()) == "scripted · ctx 0/512"
    tmux.keys("/")
    tmux.see("/help")
    tmux.keys("C-c")
    tmux.keys("a message that is longer than the window is wide")
    tmux.see("wide")
    tmux.keys("Enter")
    tmux.see("accepted")
    for size in ("8x1", "1x1", "20x2", "60x10"):
        width, height = size.split("x")
        tmux("resize-window", "-x", width, "-y", height)
        time.sleep(0.2)
    tmux.keys("C-u", "x")
    tmux.until(lambda lines: "> x" in lines)
    assert "Traceback" not in "\n".join(tmux.text())


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds the process by /proc")
@pytest.mark.parametrize("how", ["C-c", "TERM"])
def test_the_terminal_is_sane_afterwards(window: Callable[..., ChatWindow], how: str) -> None:
    tmux = window(80, 24)
    if how == "TERM":
        tmux.keys("half")
        tmux.see("> half")
        pane = int(tmux("display", "-p", "#{pane_pid}"))
        (child,) = Path(f"/proc/{pane}/task/{pane}/children").read_text().split()
        os.kill(int(child), signal.SIGTERM)
    else:
        tmux.keys("C-c")
        tmux.see("again or")
        tmux.keys("C-c")
    lines = tmux.see(" echo")
    assert f"ended {143 if how == 'TERM' else 0}" in lines
    assert not any("ctx " in line for line in lines)
    tmux.keys("typed", "Enter")
    tmux.until(lambda lines: lines.count("typed") == 2)  # echoed, and by cat
