"""What a chat shows: remarks on stderr, and each answer, drawn live or as a plain stream."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from dflash_cli.answer_text import Said
from dflash_cli.config import Config
from dflash_cli.terminal import AnswerOutput, is_terminal, printable


class Screen:
    """All that a chat shows but the answers: remarks, figures and errors, on stderr."""

    def __init__(self, config: Config) -> None:
        self.is_quiet = config.quiet
        self.has_color = config.wants_color(sys.stderr)

    def say(self, text: str) -> None:
        """A remark; dim where there are colours, nothing with --quiet."""
        if not self.is_quiet:
            self.insist(text)

    def insist(self, text: str) -> None:
        """A remark that --quiet does not silence."""
        self._print(text if self.has_color else f"dflash: {text}", dim=True)

    def table(self, rows: Sequence[tuple[str, str]]) -> None:
        """Rows of a name and a text, the texts aligned."""
        width = max(len(name) for name, _ in rows)
        self._print("\n".join(f"{name:<{width}}  {text}" for name, text in rows))

    def fail(self, text: str) -> None:
        """An error, in one line."""
        self._print(f"dflash: error: {' '.join(text.split())}", fg="red")

    def think(self, text: str) -> None:
        """A piece of a model's thinking, without a newline of its own."""
        self._print(text, newline=False, dim=True)

    def _print(self, text: str, *, newline: bool = True, **style: Any) -> None:
        text = printable(text)
        click.secho(text, err=True, nl=newline, color=self.has_color, **(style if self.has_color else {}))


class PlainAnswer:
    """An answer as it comes, where nothing is drawn: the answer on stdout, thinking (if it is shown) on stderr."""

    def __init__(self, output: AnswerOutput, think: Callable[[str], None] | None) -> None:
        """`think` takes the pieces of the thinking; None leaves them out."""
        self._output, self._think = output, think
        self._has_thought = self._is_shown = False

    def add(self, said: Said) -> None:
        """Show what became certain."""
        if said.thinking and self._think is not None:
            self._think(said.thinking)
            self._has_thought = True
        if said.answer:
            self._end_thinking()
            self._output.write(said.answer)
            self._is_shown = True

    def end(self, *, interrupted: bool = False, lost: bool = False) -> None:
        """The answer is over. `lost`: it never began."""
        if lost:
            return
        self._end_thinking()
        if interrupted and self._output.on_terminal and self._is_shown:
            self._output.write("\n")  # the terminal has written ^C on the line
        self._output.end()

    def break_off(self) -> None:
        """An error is on its way: end the line that was begun."""
        self._end_thinking()
        if self._is_shown:
            self._output.end()

    def _end_thinking(self) -> None:
        if self._has_thought and self._think is not None:
            self._think("\n\n")
        self._has_thought = False


def shows_thinking(config: Config) -> bool:
    """Whether thinking is shown: as asked, else on terminals only."""
    if config.show_thinking is not None:
        return config.show_thinking
    return is_terminal(sys.stdout) and is_terminal(sys.stderr)
