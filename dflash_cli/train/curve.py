"""How acceptance grew with what was trained on: rows for a terminal and a card, and a picture. Imports no torch."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from dflash_cli.errors import DFlashError
from dflash_cli.overlay_render import UNICODE, Glyphs, glyphs_for
from dflash_cli.paths import write_private
from dflash_cli.picture import BLUE, GREY, ORANGE, drawn, require_matplotlib
from dflash_cli.terminal import printable
from dflash_cli.train.report import Reporter

Point = tuple[int, int, float]
"""(step, answer tokens trained on, tau)."""
Item = TypeVar("Item")

MOST_ROWS = 12
WIDTH = 32
SMOOTHED = 50  # points of the smoothed loss
LIGHT = "#CCCCCC"
OTHERS = (ORANGE, "#009E73", "#CC79A7", "#D55E00", "#56B4E9")  # of the same palette
STYLES = ("--", ":", "-.")


def thinned(items: Sequence[Item], most: int) -> list[Item]:
    """At most `most` of them, evenly, always with the last."""
    if len(items) <= most:
        return list(items)
    last = len(items) - 1
    return [items[round(index * last / (most - 1))] for index in range(most)]


def curve_lines(curve: Sequence[Point], glyphs: Glyphs = UNICODE) -> list[str]:
    """A row a measurement with a bar from 1, which is plain decoding, and what the last doubling brought."""
    top = max((tau for *_, tau in curve), default=1.0)
    rows = []
    for _, tokens, tau in thinned(curve, MOST_ROWS):
        bar = glyphs.accepted * (round((tau - 1) / (top - 1) * WIDTH) if top > 1 else 0)
        rows.append(f"{tokens:>15,}  {tau:5.2f}  {bar}".rstrip())
    if not rows:
        return []
    gained = last_doubling(curve)
    outlook = [] if gained is None else [f"the last doubling of the tokens brought {gained:+.2f}"]
    return [f"{'answer tokens':>15}  {glyphs.tau:>5}", *rows, *outlook]


def last_doubling(curve: Sequence[Point]) -> float | None:
    """By how much tau has changed since half of the tokens; None where nothing was measured so early."""
    points = [(tokens, tau) for _, tokens, tau in curve]
    half = points[-1][0] / 2 if points else 0.0
    if half == 0 or points[0][0] > half:
        return None
    before = max(index for index, (tokens, _) in enumerate(points) if tokens <= half)
    (x0, y0), (x1, y1) = points[before], points[before + 1]
    return points[-1][1] - (y0 + (y1 - y0) * (half - x0) / (x1 - x0))


def show_curve(curve: Sequence[Point], entries: Sequence[dict[str, Any]], picture: Path, report: Reporter) -> None:
    """Tell the curve in rows, and draw it where that can be done; a disk that is full costs the picture.

    The curve may begin before the lines of the metrics do, with earlier sittings.
    """
    for line in curve_lines(curve, glyphs_for(sys.stderr.encoding if sys.stderr else None)):
        report.tell(line)
    if not curve or not entries:
        return
    try:
        write_picture(curve, entries, picture)
    except DFlashError as error:
        report.tell(str(error))
    else:
        report.tell(f"the curve is drawn in {picture}")


def write_picture(curve: Sequence[Point], entries: Sequence[dict[str, Any]], path: Path) -> None:
    """Loss and tau against answer tokens, from the curve and the lines of the metrics. Raises DFlashError."""
    figure = require_matplotlib("a picture of the curve")(figsize=(9, 7), layout="constrained")
    loss, tau = figure.subplots(2, 1, sharex=True)
    steps = [each for each in entries if "loss" in each]
    _losses(loss, steps)
    _taus(tau, curve, steps, [each for each in entries if "tau" in each])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a source's name may have signs that the font lacks
        content = drawn(figure, path)
    write_private(path, content)


def _losses(axes: Any, steps: Sequence[dict[str, Any]]) -> None:
    places, values = [each["tokens"] for each in steps], [each["loss"] for each in steps]
    axes.plot(places, values, color=LIGHT, linewidth=0.8)
    count = max(1, len(values) // SMOOTHED)
    groups = range(0, len(values) - count + 1, count)
    means = [sum(values[at : at + count]) / count for at in groups]
    axes.plot([places[at + count // 2] for at in groups], means, color=BLUE)
    axes.set(title="Loss of a step, and its mean over several", ylabel="loss")


def _taus(
    axes: Any, curve: Sequence[Point], steps: Sequence[dict[str, Any]], measured: Sequence[dict[str, Any]]
) -> None:
    axes.plot([each["tokens"] for each in steps], [each["proxy_tau"] for each in steps], color=LIGHT, linewidth=0.8,
              label="in training")  # fmt: skip
    sources = sorted({source for each in measured for source in each.get("tau_by_source", {})})
    for index, source in enumerate(sources if len(sources) > 1 else []):
        points = [(each["tokens"], each["tau_by_source"][source]) for each in measured
                  if source in each.get("tau_by_source", {})]  # fmt: skip
        style = STYLES[index // len(OTHERS) % len(STYLES)]
        label = "held out: " + printable(source).replace("$", r"\$")  # not the begin of a formula
        axes.plot(*zip(*points, strict=True), color=OTHERS[index % len(OTHERS)], linestyle=style, label=label)
    axes.plot([tokens for _, tokens, _ in curve], [tau for *_, tau in curve], color=BLUE, marker="o",
              label="held out: all")  # fmt: skip
    axes.set(title="Acceptance length τ", xlabel="answer tokens trained on", ylabel="tokens a verify pass")
    axes.grid(color=GREY, alpha=0.3)
    axes.legend(fontsize=8)
