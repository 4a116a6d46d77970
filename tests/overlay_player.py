"""Plays an answer on the overlay without a model, as a process: `python -m tests.overlay_player`."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

from dflash_cli.events import BlockDrafted, BlockVerified, Event, Finished, Prefilled
from dflash_cli.overlay_live import Overlay

SECONDS_AN_EVENT = 0.001
DONE = "DONE"
ANSWER = (
    "# 漢字 and 😀 e\u0301 marks\n"
    + "\n".join(f"line {number} " + "word " * (number % 23) + "." for number in range(30))
    + "\n"
    + " ".join(f"long{number}" for number in range(80))
    + "\n\nthe end."
)


class ByteCodec:
    """An id is a byte. The part of a TextCodec that the overlay reads, without the time its libraries take to load."""

    def shows(self, token_id: int) -> bool:
        return token_id < 256

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(ids).decode("utf-8", "replace")


def events(text: bytes) -> list[Event]:
    """Blocks of three bytes; the last two of four drafts are always wrong."""
    made: list[Event] = [Prefilled(3, 0, (text[0],), 1.0)]
    for i in range(1, len(text), 3):
        new = tuple(text[i : i + 3])
        made += [BlockDrafted(i, (*new, 0)), BlockVerified(i, len(new) - 1, new, len(new) + 1, 1.0, 1.0)]
    return made


def play() -> None:
    codec: Any = ByteCodec()
    overlay = Overlay(sys.stdout, "full", "okabe-ito", has_color=True)
    with overlay.answer(codec, ()) as live:
        for event in events(ANSWER.encode()):
            live.add(event)
            time.sleep(SECONDS_AN_EVENT)
        live.add(Finished("stop", 9.0))
    sys.stdout.write(DONE + "\n")
    sys.stdout.flush()
    sys.stdin.readline()


if __name__ == "__main__":
    play()
