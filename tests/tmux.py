"""A real terminal to look at: tmux, where it is installed."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_S, poll

ROOT = Path(__file__).parent.parent
HAS_TMUX = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


class Tmux:
    """A private tmux server with one window."""

    def __init__(self, folder: Path, width: int, height: int, command: Sequence[str]) -> None:
        self.socket = str(folder / "tmux")
        self("-f", "/dev/null", "new-session", "-d", "-x", str(width), "-y", str(height), shlex.join(command))

    def __call__(self, *args: str) -> str:
        done = subprocess.run(
            ["tmux", "-u", "-S", self.socket, *args],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        return done.stdout

    def text(self) -> list[str]:
        """Scroll-back and screen, rows that the terminal wrapped joined."""
        return [line.rstrip() for line in self("capture-pane", "-p", "-J", "-S", "-").splitlines()]

    def wait(self, text: str) -> list[str]:
        return poll(self.text, lambda lines: text in "\n".join(lines))
