"""What a chat shows: remarks on stderr, and each answer, drawn live or as a plain stream."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import click
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from dflash_cli.answer_text import Said
from dflash_cli.config import Config
from dflash_cli.live_answer import terminal_size
from dflash_cli.terminal import AnswerOutput, is_terminal, printable
from dflash_cli.wrapping import wrap_words

GAP = "  "
LEAST_ROOM = 20  # columns for the texts of a table; with less they begin at the terminal's first one


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
        """Rows of a name and a text, the texts aligned; a long one goes on below itself."""
        shown = [(printable(name), printable(text)) for name, text in rows]
        indent = max(cell_len(name) for name, _ in shown) + len(GAP)
        room = _columns() - indent
        lines = []
        for name, text in shown:
            first, *others = _in_rows(text, room) if room >= LEAST_ROOM else [text]
            lines.append(f"{set_cell_size(name, indent)}{first}".rstrip())
            lines += [f"{' ' * indent}{each}".rstrip() for each in others]
        self._print("\n".join(lines))

    def draw(self, lines: Sequence[Text]) -> None:
        """Lines with styles of their own, which need colours."""
        console = Console(
            stderr=True, force_terminal=self.has_color, color_system="auto" if self.has_color else None, no_color=False
        )
        for line in lines:
            console.print(line, soft_wrap=True, highlight=False)

    def fail(self, text: str) -> None:
        """An error, in one line."""
        self._print(f"dflash: error: {' '.join(text.split())}", fg="red")

    def think(self, text: str) -> None:
        """A piece of a model's thinking, without a newline of its own."""
        self._print(text, newline=False, dim=True)

    def _print(self, text: str, *, newline: bool = True, **style: Any) -> None:
        text = "\n".join(_in_rows(printable(text), _columns())) if newline else printable(text)
        click.secho(text, err=True, nl=newline, color=self.has_color, **(style if self.has_color else {}))


def _columns() -> int:
    """Of the terminal that remarks go to; 0 where they go elsewhere."""
    return terminal_size(sys.stderr)[0] if is_terminal(sys.stderr) else 0


def _in_rows(text: str, width: int) -> list[str]:
    """Cut between words where it is too wide; as it is for no width."""
    return [row.plain for row in wrap_words(Text(text), width)] if width > 0 else [text]


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
