"""Rows of the statistics for tests, made from events as a real answer's are."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

from rich.console import Console, RenderableType

from dflash_cli.events import BlockVerified, Event, Finished, Prefilled
from dflash_cli.stats import AnswerStats
from dflash_cli.stats_store.row import Entry, Row, depth_of, figures_of

FACTS: dict[str, Any] = {
    "time": 1_769_860_800_000, "day": "2026-01-31", "command": "chat", "version": "1.0", "pair": "p", "target": "t",
    "drafter": "d", "target_hash": "aa", "drafter_hash": "bb", "backend": "eager", "device": "cpu", "dtype": "float32",
    "quantisation": "none", "batch": 1, "block_size": 4, "context": 512, "thinking": None, "temperature": 0.0,
    "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0, "seed": None,
    "kind": "prose", "adaptive": 0, "draft_vocabulary": 0,
}  # fmt: skip
Pass = tuple[int, int]  # accepted, verified


def stats_of(passes: Sequence[Pass], *, prompt: int = 10, draft_ms: float = 1.0, verify_ms: float = 2.0) -> AnswerStats:
    """Of an answer whose passes kept and verified so many drafts; a bonus comes with each. 5 ms a pass."""
    events: list[Event] = [Prefilled(prompt, 4, (7,), 50.0)]
    for accepted, verified in passes:
        events.append(BlockVerified(10, accepted, (5,) * (accepted + 1), verified, draft_ms, verify_ms))
    events.append(Finished("stop", 5.0 * len(passes)))
    stats = AnswerStats(context=512)
    for event in events:
        stats.add(event)
    return stats


def entry(passes: Sequence[Pass] = ((2, 3), (0, 3)), blocks: str = "", prompt: int = 10, **facts: Any) -> Entry:
    """An answer, with other facts or figures than the usual ones."""
    values = {**FACTS, **figures_of(stats_of(passes, prompt=prompt)), **facts}
    return Entry(Row(**values), blocks)


def slow(passes: Sequence[Pass], factor: float, **facts: Any) -> Entry:
    """An answer that took `factor` times as long."""
    ms = 5.0 * len(passes) * factor
    return entry(passes, decode_ms=ms, **facts)


def shown(view: RenderableType, width: int) -> str:
    """What a terminal of that width shows, without blanks at the ends of lines."""
    output = io.StringIO()
    Console(file=output, width=width).print(view)
    return "\n".join(line.rstrip() for line in output.getvalue().split("\n"))


def depth(prompt: int) -> int:
    return depth_of(prompt)


def decoded(text: str) -> Any:
    return json.loads(text)
