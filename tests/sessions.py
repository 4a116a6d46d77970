"""Turns and saved chats for tests."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from dflash_cli.conversation import Turn
from dflash_cli.session_store import SessionStore
from dflash_cli.stats import AnswerStats

ROOT = Path(__file__).parent.parent


def turn(prompt: str = "What?", answer: str = "That.", **figures: Any) -> Turn:
    """A finished turn."""
    figures = {"ids": [1, 2, 3], "lengths": [2], "begun": 1.25, "reason": "stop", **figures}
    return Turn(prompt=prompt, text=answer, thinking="", answer=answer, stats=AnswerStats(**figures))


def saved(store: SessionStore, name: str, *turns: Turn) -> Path:
    """The file of a chat with these turns, closed."""
    log = store.open_new(name)
    for each in turns or (turn(),):
        log.append_turn(each)
    log.close()
    return store.path(name)


def records(path: Path) -> list[Any]:
    """The records of a file, each line of it a whole one."""
    data = path.read_bytes()
    assert data.endswith(b"\n")
    return [json.loads(line) for line in data[:-1].split(b"\n")]


def python(code: str, *args: str, **kwargs: Any) -> subprocess.Popen[str]:
    """Another process, whose stdout and stdin are pipes."""
    command = [sys.executable, "-c", code, *args]
    return subprocess.Popen(command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **kwargs)
