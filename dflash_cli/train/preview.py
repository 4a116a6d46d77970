"""A training sample as it is learned, shown before the first step: mistakes in the data are seen here."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from dflash_cli.terminal import printable

if TYPE_CHECKING:
    from dflash_cli.model import Model
    from dflash_cli.text import TextCodec
    from dflash_cli.train.blocks import Row
    from dflash_cli.train.documents import Document
    from dflash_cli.train.learner import Learner

MOST_TOKENS = 60  # of the answer


def show_sample(document: Document, learner: Learner, model: Model) -> None:
    """Show a document as the first step learns from it, on stderr; nothing where the run is quiet."""
    if model.config.quiet:
        return
    (_, row), *_ = learner.rows([(0, 0, document)])
    click.echo(preview(document, row, model.codec, color=model.config.wants_color(sys.stderr)), err=True)


def preview(document: Document, row: Row, codec: TextCodec, *, color: bool) -> str:
    """The end of the prompt, the answer with what is learned in green, and the first block: input above labels."""
    learned = {
        int(anchor) + 1 + int(slot)
        for anchor, slots in zip(row.anchors, row.counts, strict=True)
        for slot in slots.nonzero()
    }
    shown = range(max(0, document.start - 12), min(len(document.ids), document.start + MOST_TOKENS))
    pieces = [_piece(codec, document.ids[at], at in learned, at < document.start, color) for at in shown]
    count = sum(document.start <= at < len(document.ids) for at in learned)
    slots = [_quoted(codec, int(each)) for each in row.labels[0][row.counts[0]]]
    masks = int((row.inputs[0, 1:] != row.labels[0]).sum())
    lines = [
        f"a sample ({document.source}): {document.start} prompt and {len(document.ids) - document.start} answer "
        f"tokens, {len(row.anchors)} blocks, {count} tokens learned" + ("" if color else " (in brackets)"),
        "".join(pieces),
        f"its first block: from {_quoted(codec, int(row.inputs[0, 0]))}{f' and {masks} masks' if masks else ''} to "
        + " ".join(slots),
    ]
    return "\n".join(lines)


def _piece(codec: TextCodec, token: int, learned: bool, given: bool, color: bool) -> str:
    text = printable(codec.token_text(token))
    if not color:
        return f"[{text}]" if learned else text
    return click.style(text, fg="green" if learned else None, dim=given or None)


def _quoted(codec: TextCodec, token: int) -> str:
    return repr(printable(codec.token_text(token)))
