"""`dflash models`: the aliases, what is in the cache, and how well each pair is expected to draft."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from dflash_cli.fetch import cached, size_on_disk
from dflash_cli.fetch_progress import megabytes
from dflash_cli.model_store import models_dir
from dflash_cli.models import AUTO_DEFAULTS, GB, PAIRS, SMALL_DEFAULT, Pair

HEADINGS = ("alias", "target", "drafter", "expected acceptance length")


@click.command("models", short_help="List models, what is cached, and expected acceptance.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def models_command(as_json: bool) -> None:
    """List the known pairs of target and drafter, what of them is cached, and the acceptance to expect.

    Acceptance length: tokens committed for each pass of the target. Any folder, .gguf file or hub id works as --model,
    too.
    """
    pairs = [_describe(pair) for pair in PAIRS.values()]
    if as_json:
        report = {"default": "auto", "default_rule": _default_rule(), "cache": str(models_dir()), "models": pairs}
        click.echo(json.dumps(report, indent=2))
    elif sys.stdout.isatty():
        _print_table(pairs)
    else:
        _print_plain(pairs)


def _describe(pair: Pair) -> dict[str, Any]:
    return {
        "alias": pair.name,
        "target": _where(pair.target),
        "drafter": _where(pair.drafter) if pair.drafter else None,
        "thinking": pair.thinking,
        "expected": {kind: [low, high] for kind, low, high in pair.expected},
        "expected_source": pair.expected_source,
        "note": pair.note,
    }


def _where(source: str) -> dict[str, Any]:
    folder = cached(source)
    return {
        "source": source,
        "cached": folder is not None,
        "bytes": None if folder is None else size_on_disk(folder),
        "path": None if folder is None else str(folder),
    }


def _default_rule() -> str:
    gpu = "".join(f"{alias} with {needed // GB} GB of GPU memory free, " for alias, needed in AUTO_DEFAULTS)
    return f"{gpu}otherwise {SMALL_DEFAULT}"


def _row(pair: dict[str, Any]) -> tuple[str, ...]:
    expected = ", ".join(f"{kind} {low:g}-{high:g}" for kind, (low, high) in pair["expected"].items())
    return pair["alias"], _cell(pair["target"]), _cell(pair["drafter"]), expected


def _cell(where: dict[str, Any] | None) -> str:
    if where is None:
        return "none"
    state = f"cached, {megabytes(where['bytes'])}" if where["cached"] else "not cached"
    return f"{where['source']} ({state})"


def _footer(pairs: list[dict[str, Any]]) -> list[str]:
    sources: dict[str, list[str]] = {}
    for pair in pairs:
        sources.setdefault(pair["expected_source"], []).append(pair["alias"])
    lines = [f"Default: {_default_rule()}."]
    lines += [f"Expected for {', '.join(aliases)}: {source}." for source, aliases in sources.items()]
    return [*lines, f"Converted models: {models_dir()} ({megabytes(_store_bytes(models_dir()))})."]


def _store_bytes(folder: Path) -> int:
    return size_on_disk(folder) if folder.is_dir() else 0


def _print_plain(pairs: list[dict[str, Any]]) -> None:
    rows = [HEADINGS, *(_row(pair) for pair in pairs)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADINGS) - 1)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        click.echo("  ".join([*cells, row[-1]]))
    click.echo("\n" + "\n".join(_footer(pairs)))


def _print_table(pairs: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console, table = Console(), Table(*HEADINGS, show_lines=True)
    for pair in pairs:
        table.add_row(*(escape(cell) for cell in _row(pair)))
    console.print(table)
    for line in _footer(pairs):
        console.print(escape(line), highlight=False, soft_wrap=True)
