"""One turn: all that is known of it, and its blocks in order. Imports no torch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dflash_cli.overlay import Block
from dflash_cli.overlay_render import Look
from dflash_cli.overlay_strip import block_cells
from dflash_cli.stats_store.row import blocks_of
from dflash_cli.stats_store.tables import lengths_bars, number, share
from dflash_cli.terminal import printable

if TYPE_CHECKING:
    from dflash_cli.trace import Recording

NO_BLOCKS = "its blocks were not kept; `--trace FILE` keeps those of later turns"


def turn_view(row: Mapping[str, Any], blocks: Sequence[Sequence[float]] | None, width: int, look: Look) -> Group:
    """The figures of a row of the store, and its strip."""
    lines = Table.grid(padding=(0, 1))
    lines.add_column(no_wrap=True)
    lines.add_column(overflow="fold")
    for name, text in _told(row):
        lines.add_row(name, Text(printable(text)))
    parts: list[RenderableType] = [lines, Text()]
    if blocks is None:
        parts += [lengths_bars({int(length): count for length, count in row["lengths"].items()}), Text(NO_BLOCKS)]
    else:
        parts += strip_lines([Block(*map(int, each[:4])) for each in blocks], width, look)
    return Group(*parts)


def _told(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    time = datetime.fromtimestamp(row["time"] / 1e3).astimezone()
    yield f"turn {row['id']}", f"{time:%Y-%m-%d %H:%M:%S}, by {row['command']} of dflash {row['version']}"
    yield "pair", f"{row['pair']}: {row['target']} {row['target_hash']}".rstrip()
    yield "drafter", f"{row['drafter'] or 'none, plain decoding'} {row['drafter_hash']}".rstrip()
    quantised = "" if row["quantisation"] == "none" else f", from {row['quantisation']}"
    together = "" if row["batch"] == 1 else f", {row['batch']} answers together"
    yield "computed", f"{row['backend']}, {row['dtype']}, {row['device']}{quantised}{together}"
    yield "sampling", ", ".join(_sampling(row))
    thinking = {None: "", 0: ", thinking off", 1: ", thinking on"}[row["thinking"]]
    yield "answer", f"{row['kind']}{thinking}, end: {row['reason']}"
    reused = f", {row['reused_tokens']} reused" if row["reused_tokens"] else ""
    thought = f", {row['thinking_tokens']} of thinking" if row["thinking_tokens"] else ""
    yield "tokens", f"prompt {row['prompt_tokens']}{reused}; answer {row['new_tokens']}{thought}"
    accepted = f"{share(row['acceptance_rate'])} of {row['drafted']} drafts accepted"
    width = f"{'up to ' if row['adaptive'] == 1 else ''}{row['block_size']}"
    few = f", drafts of {row['draft_vocabulary']} ids" if row["draft_vocabulary"] > 0 else ""
    yield "speculation", f"τ {number(row['tau'])} over {row['passes']} blocks of {width}, {accepted}{few}"
    times = ", ".join(f"{name} {row[f'{name}_ms'] / 1e3:.2f}" for name in ("draft", "verify", "other"))
    yield "speed", f"{number(row['tokens_per_s'], 1)} tok/s, first token after {row['ttft_ms']:.0f} ms"
    yield "seconds", f"decoding {row['decode_ms'] / 1e3:.2f}: {times}"


def _sampling(row: Mapping[str, Any]) -> Iterator[str]:
    yield f"temperature {row['temperature']:g}" if row["temperature"] else "greedy"
    neutral = {"top_k": 0, "top_p": 1, "min_p": 0, "repetition_penalty": 1, "presence_penalty": 0, "seed": None}
    for name, value in neutral.items():
        if row[name] != value:
            yield f"{name} {row[name]}"


def strip_lines(blocks: Sequence[Block], width: int, look: Look) -> list[RenderableType]:
    """All blocks, a sign a slot, as many on a line as there is room for; plain passes are a dot."""
    lines: list[RenderableType] = []
    line = Text()
    for block in blocks:
        cells = block_cells(block, look) if block.drafted else Text(look.glyphs.unreached)
        if line.plain and len(line) + 1 + len(cells) > width:
            lines.append(line)
            line = Text()
        line = Text(" ").join([line, cells]) if line.plain else cells
    return [*lines, line]


def recording_blocks(recording: Recording) -> list[Block]:
    """The blocks of a recorded answer."""
    return [Block(*map(int, each[:4])) for each in json.loads(blocks_of(recording))]
