"""What `dflash doctor` finds, and how it is shown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

OK, WARNING, FATAL = "ok", "warning", "fatal"
EXIT_CODES = {OK: 0, WARNING: 1, FATAL: 2}
MARKS = {OK: "✓", WARNING: "!", FATAL: "✗"}
ASCII_MARKS = {OK: "+", WARNING: "!", FATAL: "x"}
COLORS = {OK: "green", WARNING: "yellow", FATAL: "red"}


@dataclass(frozen=True)
class Check:
    """One finding. `advice` is empty where there is nothing to do."""

    name: str
    status: str
    value: str
    advice: str = ""


def overall(checks: Sequence[Check]) -> str:
    """The worst status of all."""
    return max((check.status for check in checks), key=EXIT_CODES.__getitem__, default=OK)


def as_json(checks: Sequence[Check]) -> str:
    """One object: `{"status": ..., "checks": [{"name", "status", "value", "advice"}]}`."""
    return json.dumps({"status": overall(checks), "checks": [asdict(check) for check in checks]}, indent=2)


def as_text(checks: Sequence[Check], *, color: bool, unicode: bool) -> list[str]:
    """One aligned line a check: mark, name, value, advice."""
    import click

    from dflash_cli.cli import one_line

    marks, arrow = (MARKS, "→") if unicode else (ASCII_MARKS, "->")
    width = max((len(check.name) for check in checks), default=0)
    lines = []
    for check in checks:
        mark = click.style(marks[check.status], fg=COLORS[check.status]) if color else marks[check.status]
        advice = f" {arrow} {check.advice}" if check.advice else ""
        lines.append(f"{mark} {check.name.ljust(width)}  {one_line(check.value + advice)}")
    return lines
