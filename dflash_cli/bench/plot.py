"""The measurements as a picture: speeds by kind, and how a step is spent. Needs matplotlib. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflash_cli.picture import BLUE, GREY, ORANGE, drawn, require_matplotlib
from dflash_cli.stats_store.output_file import write_file

if TYPE_CHECKING:
    from dflash_cli.bench.rows import Row

PARTS = (("draft_ms", "draft", ORANGE), ("verify_ms", "verify", BLUE), ("overhead_ms", "other", GREY))
LIGHT = "#DDDDDD"


def write_plot(rows: Sequence[Row], title: str, path: Path) -> None:
    """Write the picture, as PNG or SVG by the name. Raises DFlashError."""
    height = 2.5 + 0.28 * len(rows)
    figure = require_matplotlib()(figsize=(12, height), layout="constrained")
    speeds, steps = figure.subplots(1, 2)
    names = _names(rows)
    _speeds(speeds, rows, names)
    _steps(steps, rows, names)
    figure.suptitle(title)
    write_file(path, drawn(figure, path))


def _names(rows: Sequence[Row]) -> list[str]:
    """Each row by what tells it from the others."""
    parts = {
        "kind": [row.kind for row in rows],
        "backend": [row.backend for row in rows],
        "dtype": [row.dtype for row in rows],
        "quantize": [row.quantize for row in rows],
        "batch": [f"batch {row.batch}" for row in rows],
        "context": [f"{row.context} tokens" for row in rows],
        "temperature": [f"T {row.temperature:g}" for row in rows],
    }
    shown = [values for values in parts.values() if len(set(values)) > 1]
    return [", ".join([row.label, *(values[index] for values in shown)]) for index, row in enumerate(rows)]


def _speeds(axes: Any, rows: Sequence[Row], names: Sequence[str]) -> None:
    speeds = [row.tokens_per_s or 0.0 for row in rows]
    errors = [(row.spread or 0.0) * speed / 2 for row, speed in zip(rows, speeds, strict=True)]
    axes.barh(range(len(rows)), speeds, xerr=errors, color=[BLUE if row.name == "dflash" else GREY for row in rows])
    for place, row in enumerate(rows):
        if row.speedup is not None and row.name != "plain":
            axes.annotate(f" {row.speedup:.2f}×", (speeds[place] + errors[place], place), va="center", fontsize=8)
    axes.set(title="Speed (bars: spread over rounds)", xlabel="tokens a second")
    axes.set_yticks(range(len(rows)), names, fontsize=8)
    axes.margins(x=0.15)
    axes.invert_yaxis()


def _steps(axes: Any, rows: Sequence[Row], names: Sequence[str]) -> None:
    left = [0.0] * len(rows)
    for field, label, color in PARTS:
        values = [getattr(row, field) or 0.0 for row in rows]
        axes.barh(range(len(rows)), values, left=left, color=color, label=label)
        left = [before + value for before, value in zip(left, values, strict=True)]
    whole = [0.0 if row.verify_ms is not None else row.step_ms or 0.0 for row in rows]
    if any(whole):
        axes.barh(range(len(rows)), whole, color=LIGHT, label="not told apart")
    limits = [(place, row.limit_ms) for place, row in enumerate(rows) if row.limit_ms is not None]
    if limits:
        axes.scatter([ms for _, ms in limits], [place for place, _ in limits], marker="|", s=150, color="black",
                     label="limit of the memory", zorder=3)  # fmt: skip
    axes.set(title="Time of a step", xlabel="milliseconds")
    axes.set_yticks(range(len(names)), [""] * len(names))
    axes.invert_yaxis()
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=5, fontsize=8, frameon=False)
