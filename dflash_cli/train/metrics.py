"""The figures of a run, one JSON object a line, and for TensorBoard where that is asked for. Imports no torch."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dflash_cli.errors import DFlashError
from dflash_cli.paths import write_private
from dflash_cli.train.report import Reporter
from dflash_cli.train.tensorboard import Board


class Metrics:
    """Lines are added as they come; a disk that is full costs lines, not the run."""

    def __init__(self, path: Path, report: Reporter, board: Board | None = None) -> None:
        self.path, self.report, self.board = path, report, board
        self._failed = False

    def cut(self, step: int) -> None:
        """Forget what is later than `step`: the run goes on from there. Makes the file."""
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.is_file() else []
        except (OSError, UnicodeDecodeError) as error:
            raise DFlashError(f"the metrics {self.path} cannot be read ({error}); remove the file") from error
        kept = [line for line in lines if _step(line) <= step]
        write_private(self.path, "".join(line + "\n" for line in kept).encode())
        self._on_board(lambda board: board.start(step))

    def add(self, entry: dict[str, Any]) -> None:
        """One more line."""
        self._on_board(lambda board: board.add(entry))
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
        except OSError as error:
            if not self._failed:
                self.report.tell(f"warning: cannot write {self.path}: {error.strerror}; training goes on without it")
            self._failed = True

    def entries(self) -> list[dict[str, Any]]:
        """What was added so far, as far as it can be read."""
        try:
            lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return []
        return [json.loads(line) for line in lines if _step(line) < float("inf")]

    def close(self) -> None:
        """No more is added."""
        self._on_board(Board.close)

    def _on_board(self, act: Callable[[Board], None]) -> None:
        if self.board is None:
            return
        try:
            act(self.board)
        except (OSError, DFlashError) as error:
            # What follows half a record is never read.
            folder, self.board = self.board.folder, None
            why = error.strerror if isinstance(error, OSError) else error
            self.report.tell(f"warning: cannot write to {folder}: {why}; training goes on without TensorBoard")


def _step(line: str) -> float:
    """The step of a line; of a damaged one, later than all."""
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return float("inf")
