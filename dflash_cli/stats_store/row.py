"""The figures of one answer as the statistics keep them: no text of a prompt or an answer. Imports no torch."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import astuple, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from dflash_cli.events import BlockDrafted, BlockVerified
from dflash_cli.stats_store.kind import kind_of

if TYPE_CHECKING:
    from dflash_cli.model import Model
    from dflash_cli.speculative import Decoder
    from dflash_cli.stats import AnswerStats
    from dflash_cli.trace import Recording

SHALLOW = 512  # tokens of context below which all is one depth; above, a depth is a power of two


@dataclass(frozen=True)
class Hashes:
    """Of the checkpoints, see `checkpoint_hash`; "" where it is not known."""

    target: str = ""
    drafter: str = ""


@dataclass(frozen=True)
class Row:
    """A row of the table `turns`, but for its id.

    `time`: of the end, milliseconds since 1970 (UTC). `day`: the same in local time, ISO 8601. `batch`: answers
    decoded together. `depth`: the power of two that the prompt's tokens reach, 0 below SHALLOW. `lengths`: a JSON
    object, acceptance length to blocks. `positions`: a JSON array of [drafted, tested, accepted], the first draft's
    first (see `stats.Position`). `adaptive`: 1 where each block was as wide as paid, `block_size` at most; 0 where all
    were that wide; -1 where that is not known. `draft_vocabulary`: how many ids drafts were chosen from; 0 where from
    all, -1 where that is not known.
    """

    time: int
    day: str
    command: str
    version: str
    pair: str
    target: str
    drafter: str
    target_hash: str
    drafter_hash: str
    backend: str
    device: str
    dtype: str
    quantisation: str
    batch: int
    block_size: int
    context: int | None
    thinking: int | None
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    seed: int | None
    kind: str
    depth: int
    prompt_tokens: int
    reused_tokens: int
    new_tokens: int
    thinking_tokens: int
    reason: str
    interrupted: int
    ttft_ms: float
    prefill_ms: float
    decode_ms: float
    draft_ms: float
    verify_ms: float
    other_ms: float
    committed: int
    passes: int
    accepted: int
    drafted: int
    tau: float | None
    acceptance_rate: float | None
    tokens_per_s: float | None
    lengths: str
    positions: str
    adaptive: int = -1
    draft_vocabulary: int = -1


@dataclass(frozen=True)
class Baseline:
    """Plain decoding as it was measured: `tokens` after the first, in `ms`. A row of the table `baselines`."""

    time: int
    target: str
    target_hash: str
    backend: str
    device: str
    dtype: str
    tokens: int
    ms: float
    quantisation: str = "none"


PLACE = ("target", "target_hash", "backend", "device", "dtype", "quantisation")
"""What plain decoding depends on: the columns in which a turn and its baseline agree."""


@dataclass(frozen=True)
class Entry:
    """What one answer leaves. `blocks`: its passes in order, a JSON array of `BLOCK`, "" where they are not kept."""

    row: Row
    blocks: str = ""

    @property
    def values(self) -> tuple[object, ...]:
        """Of the row, in the order of its fields."""
        return astuple(self.row)


BLOCK = ("drafted", "reached", "accepted", "length", "draft_ms", "verify_ms")
"""What is kept of a pass: as in `overlay.Block`, and its times."""


def row_of(model: Model, decoder: Decoder, stats: AnswerStats, text: str, command: str, hashes: Hashes) -> Row:
    """The row of an answer that is over now; `text` is read for its kind only."""
    from dflash_cli.stats_store.checkpoint import quantisation_of
    from dflash_cli.trace import head_of

    head, params, now = head_of(model, decoder), model.params, time.time()
    draft_ids = decoder.backend.draft_ids if head.drafter else None
    return Row(
        time=round(now * 1e3),
        day=day_of(now),
        command=command,
        version=head.program,
        pair=head.pair,
        target=head.target,
        drafter=head.drafter or "",
        target_hash=hashes.target,
        drafter_hash=hashes.drafter if head.drafter else "",
        backend=head.backend,
        device=head.device,
        dtype=head.dtype,
        quantisation=quantisation_of(head.target, decoder.backend.quantize),
        batch=decoder.backend.batch_size,
        block_size=head.block_size,
        context=stats.context,
        thinking=None if model.thinking is None else int(model.thinking),
        temperature=params.temperature,
        top_k=params.top_k,
        top_p=params.top_p,
        min_p=params.min_p,
        repetition_penalty=params.repetition_penalty,
        presence_penalty=params.presence_penalty,
        seed=params.seed,
        kind=kind_of(text, stats.thinking_tokens, len(stats.ids)),
        adaptive=int(decoder.depth is not None),
        draft_vocabulary=0 if draft_ids is None else len(draft_ids),
        **figures_of(stats),
    )


def figures_of(stats: AnswerStats) -> dict[str, Any]:
    """The columns that are figures."""
    return {
        "depth": depth_of(stats.prompt_tokens),
        "prompt_tokens": stats.prompt_tokens,
        "reused_tokens": stats.reused_tokens,
        "new_tokens": len(stats.ids),
        "thinking_tokens": stats.thinking_tokens,
        "reason": stats.reason,
        "interrupted": int(stats.reason == "interrupted"),
        "ttft_ms": stats.ttft_ms,
        "prefill_ms": stats.prefill_ms,
        "decode_ms": stats.decode_ms,
        "draft_ms": stats.draft_ms,
        "verify_ms": stats.verify_ms,
        "other_ms": stats.other_ms,
        "committed": stats.all.tokens,
        "passes": stats.all.passes,
        "accepted": stats.all.accepted,
        "drafted": stats.all.drafted,
        "tau": stats.tau,
        "acceptance_rate": stats.rate,
        "tokens_per_s": stats.tokens_per_s,
        "lengths": json.dumps(dict(sorted(Counter(stats.lengths).items()))),
        "positions": json.dumps([[each.drafted, each.tested, each.accepted] for each in stats.positions]),
    }


def blocks_of(recording: Recording) -> str:
    """The passes of a recorded answer in order, as JSON."""
    blocks, drafts = [], 0
    for step in recording.steps:
        event = step.event
        if isinstance(event, BlockDrafted):
            drafts = len(event.ids)
        elif isinstance(event, BlockVerified):
            drafted = max(drafts, event.num_drafted) if event.num_drafted else 0
            times = [round(event.draft_ms, 3), round(event.verify_ms, 3)]
            blocks.append([drafted, event.num_drafted, event.accepted, len(event.new_ids), *times])
            drafts = 0
    return json.dumps(blocks, separators=(",", ":"))


def baseline_of(row: Row, plain: AnswerStats) -> Baseline:
    """Of plain decoding by the target of `row`, measured in the same place."""
    facts = {name: getattr(row, name) for name in ("time", *PLACE)}
    return Baseline(**facts, tokens=max(0, len(plain.ids) - 1), ms=plain.decode_ms)


def depth_of(tokens: int) -> int:
    """The depth that so many tokens of context are counted under."""
    return 0 if tokens < SHALLOW else 1 << (tokens.bit_length() - 1)


def day_of(seconds: float) -> str:
    """The local day of a time in seconds since 1970."""
    return datetime.fromtimestamp(seconds).astimezone().date().isoformat()
