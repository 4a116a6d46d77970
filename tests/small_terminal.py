"""A terminal that knows what the overlay writes: enough to read the screen and the scroll-back as text."""

from __future__ import annotations

import re

from rich.cells import get_character_cell_size

TOKEN = re.compile(r"\x1b\[(\??)([\d;]*)([A-Za-z])|(.)", re.DOTALL)


class SmallTerminal:
    """No reflow: `resize` cuts nothing and moves nothing, as xterm does."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.rows: list[list[str]] = [[]]  # all there ever were; the last `height` of them are the screen
        self.soft: set[int] = set()  # rows that go on in the next one
        self.row = self.column = 0
        self.wraps, self.cursor = True, True

    def resize(self, width: int, height: int) -> None:
        self.width, self.height = width, height

    def write(self, text: str) -> None:
        for private, number, final, char in TOKEN.findall(text):
            if char:
                assert char == "\n" or char == "\r" or ord(char) >= 32, f"a raw control {char!r}"
                self._put(char)
            elif private:
                assert number in ("7", "25", "2026"), number
                self.wraps = final == "h" if number == "7" else self.wraps
                self.cursor = final == "h" if number == "25" else self.cursor
            elif final == "A":
                top = max(0, len(self.rows) - self.height)
                assert self.row - int(number) >= top, "the cursor would leave the screen"
                self.row -= int(number)
            elif final == "C":
                self.column += 1
            elif final == "K":
                del self.rows[self.row][self.column :]
            elif final == "J":
                assert self.column or self.row > max(0, len(self.rows) - self.height), "tmux keeps what this erases"
                del self.rows[self.row + 1 :], self.rows[self.row][self.column :]
                self.soft = {row for row in self.soft if row < self.row}
            else:
                assert final == "m", final

    def _put(self, char: str) -> None:
        cells = get_character_cell_size(char)
        if char == "\r":
            self.column = 0
        elif char == "\n":
            self._next_row()
        elif not cells:
            self.rows[self.row][self.column - 1] += char
        elif self.column + cells > self.width:
            if self.wraps:
                self.soft.add(self.row)
                self._next_row()
                self._put(char)
        else:
            self.rows[self.row][self.column :] = [char, *[""] * (cells - 1)]
            self.column += cells

    def _next_row(self) -> None:
        self.row, self.column = self.row + 1, 0
        if self.row == len(self.rows):
            self.rows.append([])

    @property
    def lines(self) -> list[str]:
        """Logical lines, scroll-back included: rows that the terminal itself wrapped are joined."""
        text = "".join("".join(row) + ("" if i in self.soft else "\n") for i, row in enumerate(self.rows))
        return text.split("\n")[:-1]
