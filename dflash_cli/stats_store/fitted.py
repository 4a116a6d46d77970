"""Tables and bars that fit any terminal: names are cut, columns left out, bars shortened; a number never is cut.

Imports no torch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from dflash_cli.terminal import printable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

GAP = 2  # blanks between columns
LEAST = 10  # columns that a name keeps
BAR = 40  # columns of the longest bar
SHORTEST = 4  # of a longest bar that still says something


class FittedTable:
    """Rows under headings; the first `texts` columns are text, the rest numbers.

    Where there is no room the columns of `names` are cut, then those of `spare` are left out, the first first.
    """

    def __init__(
        self, headings: Sequence[str], rows: Iterable[Sequence[str]], *, texts: int = 1, names: Collection[str] = (),
        spare: Sequence[str] = (),
    ) -> None:  # fmt: skip
        lines = [[printable(" ".join(cell.split())) for cell in row] for row in rows]
        self._lefts = set(headings[:texts])
        self._names, self._spare = names or headings[:1], spare
        self._columns = {heading: [line[index] for line in lines] for index, heading in enumerate(headings)}
        self._widths = {name: max(map(cell_len, (name, *cells))) for name, cells in self._columns.items()}

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """See rich."""
        widths, left_out = self._fit(options.max_width)
        table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
        for name, width in widths.items():
            justify = "left" if name in self._lefts else "right"
            table.add_column(name, justify=justify, no_wrap=True, overflow="ellipsis", width=width)  # type: ignore[arg-type]
        for cells in zip(*(self._columns[name] for name in widths), strict=True):
            table.add_row(*map(Text, cells))
        yield table
        if left_out:
            yield Text(f"(no room for {', '.join(left_out)})", "dim")

    def _fit(self, room: int) -> tuple[dict[str, int], list[str]]:
        """The width of each column that is shown, and the columns that are not."""
        widths, left_out = dict(self._widths), []
        for spare in self._spare:
            if self._least(widths) <= room:
                break
            if widths.pop(spare, None) is not None:
                left_out.append(spare)
        while _total(widths) > room:
            cut = max((name for name in self._names if name in widths), key=lambda name: widths[name], default="")
            if not cut or widths[cut] <= LEAST:
                break
            widths[cut] -= 1
        return widths, left_out

    def _least(self, widths: dict[str, int]) -> int:
        """What the columns take with their names cut."""
        return _total({name: min(width, LEAST) if name in self._names else width for name, width in widths.items()})


def _total(widths: dict[str, int]) -> int:
    return sum(widths.values()) + GAP * (len(widths) - 1)


class FittedBars:
    """A bar for each (label, size from 0 to 1, what stands behind it), under a title."""

    def __init__(self, rows: Iterable[tuple[str, float, str]], title: str) -> None:
        self._rows, self._title = list(rows), title

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """See rich."""
        yield Text(self._title, "italic")
        labels = max((cell_len(label) for label, _, _ in self._rows), default=0)
        told = max((cell_len(text) for _, _, text in self._rows), default=0)
        room = min(BAR, options.max_width - labels - told - 2 * GAP)
        table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), show_header=False)
        table.add_column(justify="right", no_wrap=True)
        if room >= SHORTEST:
            table.add_column(no_wrap=True)
        table.add_column(justify="right")
        for label, size, text in self._rows:
            bar = [Text("█" * max(round(size * room), int(size > 0)), "cyan")] if room >= SHORTEST else []
            table.add_row(label, *bar, text)
        yield table
