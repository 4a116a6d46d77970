"""All views on one page that needs no other file and no script. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from dflash_cli.stats_store.definitions import DEFINITIONS
from dflash_cli.stats_store.output_file import check_name, write_file
from dflash_cli.stats_store.regression import regressions
from dflash_cli.stats_store.tables import HEADINGS, figure_cells, number, share
from dflash_cli.stats_store.views import GROUPS, by, overview
from dflash_cli.terminal import printable

if TYPE_CHECKING:
    from dflash_cli.stats_store.figures import Figures
    from dflash_cli.stats_store.selection import Selection
    from dflash_cli.stats_store.store import StatsStore
    from dflash_cli.stats_store.views import Group

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: #222; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; } th, td { padding: .15rem .8rem .15rem 0; text-align: right; }
th:first-child, td:first-child { text-align: left; } th { border-bottom: 1px solid #999; }
.bar { width: 22rem; } .bar div { background: #0072b2; height: .9rem; }
.big { font-size: 1.6rem; margin-right: 2rem; } .alert { color: #b00020; font-weight: bold; }
dt { font-weight: bold; } dd { margin: 0 0 .5rem 0; }
@media (prefers-color-scheme: dark) { body { background: #111; color: #ddd; } .bar div { background: #56b4e9; }
  .alert { color: #ff6b81; } }
"""


def write_report(store: StatsStore, selection: Selection, path: Path) -> Path:
    """Write the page. Raises DFlashError: a name that is not .html, a file that cannot be written."""
    check_name(path, ".html", ".htm")
    write_file(path, page("dflash stats", STYLE, "\n".join(_parts(store, selection))).encode("utf-8"))
    return path


def page(title: str, style: str, body: str, *, policy: str = POLICY) -> str:
    """A whole page. `policy` forbids the browser to load anything else."""
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{text(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def text(value: str) -> str:
    """Text for a page: nothing in it is markup, and what could hide or reorder text is made visible."""
    return escape(printable(value), quote=True)


def _parts(store: StatsStore, selection: Selection) -> Iterator[str]:
    view = overview(store, selection)
    yield "<h1>What speculation did</h1>"
    yield f"<p>{text(selection.words or 'All turns')}; made {datetime.now(UTC):%Y-%m-%d %H:%M} UTC.</p>"
    yield _headline(view.figures)
    for alert in regressions(store, selection):
        yield f'<p class="alert">Regression: {text(alert.text)}</p>'
    most, total = max(view.lengths.values(), default=0), sum(view.lengths.values())
    yield "<h2>Acceptance lengths</h2>"
    yield _bars((str(each), count / most, f"{count:,} ({count / total:.0%})") for each, count in view.lengths.items())
    yield "<h2>Survival by draft position</h2>"
    yield _bars(
        (str(place), each.survival or 0.0, f"{share(each.survival)}, conditional {share(each.conditional)}")
        for place, each in enumerate(view.positions, 1)
    )
    yield "<h2>Decoding time</h2>"
    yield _time(view.figures)
    for what in GROUPS:
        yield f"<h2>By {what}</h2>"
        yield _table(what, by(store, selection, what))
    meanings = "".join(f"<dt>{text(name)}</dt><dd>{text(meaning)}</dd>" for name, meaning in DEFINITIONS)
    yield f"<h2>Definitions</h2><dl>{meanings}</dl>"


def _headline(figures: Figures) -> str:
    speedup = "speed-up not measured" if figures.speedup is None else f"{figures.speedup:.2f}× plain decoding"
    told = (
        f"{figures.turns:,} turns", f"{figures.new_tokens:,} tokens", f"τ {number(figures.tau)}",
        f"{share(figures.rate)} of drafts accepted", f"{number(figures.tokens_per_s, 1)} tok/s", speedup,
    )  # fmt: skip
    return "<p>" + " ".join(f'<span class="big">{text(each)}</span>' for each in told) + "</p>"


def _time(figures: Figures) -> str:
    return _bars((name, part, f"{ms / 1e3:,.2f} s ({part:.0%})") for name, ms, part in figures.time_split)


def _bars(rows: Iterable[tuple[str, float, str]]) -> str:
    cells = (
        f'<tr><td>{text(label)}</td><td class="bar"><div style="width:{size:.1%}"></div></td><td>{text(told)}</td></tr>'
        for label, size, told in rows
    )
    return f"<table>{''.join(cells)}</table>"


def _table(what: str, groups: Sequence[Group]) -> str:
    head = "".join(f"<th>{text(each)}</th>" for each in (what, *HEADINGS))
    rows = (
        "".join(f"<td>{text(cell)}</td>" for cell in (each.name or "?", *figure_cells(each.figures))) for each in groups
    )
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"
