"""The figures as a picture: histogram, survival, τ by day, time split. Needs matplotlib. Imports no torch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflash_cli.picture import BLUE, GREY, ORANGE, drawn, require_matplotlib
from dflash_cli.stats_store.output_file import check_name, write_file
from dflash_cli.stats_store.views import by, overview

if TYPE_CHECKING:
    from dflash_cli.stats_store.selection import Selection
    from dflash_cli.stats_store.store import StatsStore
    from dflash_cli.stats_store.views import Group, Overview

SUFFIXES = (".png", ".svg")


def write_plot(store: StatsStore, selection: Selection, path: Path) -> Path:
    """Write the picture. Raises DFlashError: a name of another kind, no matplotlib, an unwritable file."""
    check_name(path, *SUFFIXES)
    figure = require_matplotlib()(figsize=(11, 7), layout="constrained")
    view = overview(store, selection)
    axes = figure.subplots(2, 2).flatten()
    _lengths(axes[0], view)
    _survival(axes[1], view)
    _days(axes[2], by(store, selection, "day"))
    _time(axes[3], view)
    tau = "" if view.figures.tau is None else f", τ {view.figures.tau:.2f}"
    figure.suptitle(f"{view.figures.turns:,} turns{tau}")
    write_file(path, drawn(figure, path))
    return path


def _lengths(axes: Any, view: Overview) -> None:
    axes.bar(list(view.lengths), list(view.lengths.values()), color=BLUE)
    axes.set(title="Acceptance lengths", xlabel="tokens committed by a verify pass", ylabel="blocks")
    axes.xaxis.get_major_locator().set_params(integer=True)


def _survival(axes: Any, view: Overview) -> None:
    places = range(1, len(view.positions) + 1)
    axes.plot(places, [each.survival for each in view.positions], marker="o", color=BLUE, label="survival")
    conditional = [each.conditional for each in view.positions]
    axes.plot(places, conditional, marker="s", linestyle="--", color=ORANGE, label="conditional acceptance")
    axes.set(title="Drafts by position", xlabel="draft position", ylim=(0, 1.02))
    axes.xaxis.get_major_locator().set_params(integer=True)
    if view.positions:
        axes.legend()


def _days(axes: Any, days: list[Group]) -> None:
    axes.plot(range(len(days)), [each.figures.tau for each in days], marker="o", color=BLUE)
    shown = sorted({0, len(days) // 2, len(days) - 1})
    axes.set_xticks(shown, [days[index].name for index in shown])
    axes.set(title="Acceptance length τ by day", ylim=(0, None))


def _time(axes: Any, view: Overview) -> None:
    left = 0.0
    for (name, ms, _), color in zip(view.figures.time_split, (ORANGE, BLUE, GREY), strict=True):
        axes.barh([0], [ms / 1e3], left=left, color=color, label=f"{name} {ms / 1e3:,.1f} s")
        left += ms / 1e3
    axes.set(title="Decoding time", xlabel="seconds", yticks=[], ylim=(-0.5, 1.2))  # the legend stands over the bar
    axes.legend(loc="upper right")
