from __future__ import annotations

import pytest
from prompt_toolkit.layout.screen import Char, Screen

from dflash_cli.prompt_resize import folds, row_widths, rows_above


@pytest.mark.parametrize(
    ("widths", "y", "x", "columns", "expected"),
    [
        ([10], 0, 10, 100, 0),
        ([100, 40], 1, 40, 100, 1),
        ([100, 40], 1, 39, 40, 3),
        ([100, 40], 1, 41, 40, 4),
        ([0, 5], 1, 5, 40, 1),
        ([80, 81, 0, 3], 3, 0, 40, 6),
        ([30], 0, 30, 20, 1),
        ([3], 0, 3, 0, 3),
    ],
)
def test_rows_above(widths: list[int], y: int, x: int, columns: int, expected: int) -> None:
    assert rows_above(widths, y, x, columns) == expected


def test_row_widths() -> None:
    screen = Screen()
    screen.height = 3
    for x, char in enumerate("a 漢 "):
        screen.data_buffer[0][x] = Char(char)
    screen.data_buffer[2][4] = Char("b")
    assert row_widths(screen) == [4, 0, 5]


def test_terminals_that_cut() -> None:
    assert folds({"TERM": "xterm-256color"})
    assert not folds({"TERM": "xterm", "XTERM_VERSION": "XTerm(390)"})
    assert not folds({"TERM": "screen", "STY": "1.pts-0"})
    assert not folds({"TERM": "linux"})
