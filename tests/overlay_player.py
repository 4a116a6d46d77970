"""Plays an answer on the overlay without a model, as a process: `python -m tests.overlay_player [OPTIONS]`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any

from dflash_cli.events import BlockDrafted, BlockVerified, Event, Finished, Prefilled
from dflash_cli.overlay_live import Overlay
from tests.waiting import poll

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


def long_answer(tokens: int) -> str:
    """So many tokens of numbered lines, some of them longer than a terminal is wide."""
    text = "".join(f"{number} " + "abcdefgh " * (number % 19) + "\n" for number in range(tokens))
    return text[:tokens].rstrip() + "."


def events(text: bytes, wrong: bytes = b"\0") -> list[Event]:
    """Blocks of three bytes; after two good drafts comes `wrong`, never kept."""
    made: list[Event] = [Prefilled(3, 0, (text[0],), 1.0)]
    for i in range(1, len(text), 3):
        new = tuple(text[i : i + 3])
        drafts = (*new[:-1], *wrong)
        made += [BlockDrafted(i, drafts), BlockVerified(i, len(new) - 1, new, len(drafts), 1.0, 1.0)]
    return made


def play(text: bytes, wrong: bytes, mode: str, seconds: float, holds: dict[str, str]) -> None:
    """`holds`: where a line has come, the mode that somebody must have switched to before the answer goes on."""
    codec: Any = ByteCodec()
    said = b""
    overlay = Overlay(sys.stdout, mode, "okabe-ito", has_color=True)
    with overlay.answer(codec, (), markdown=False) as live:
        for event in events(text, wrong):
            live.add(event)
            time.sleep(seconds)
            said += bytes(getattr(event, "new_ids", ()))
            for line in [line for line in holds if f"line {line} ".encode() in said]:
                expected = holds.pop(line)
                poll(lambda: overlay.mode, lambda mode, expected=expected: mode == expected)
        live.add(Finished("stop", 9.0))
    sys.stdout.write(f"{DONE} {overlay.mode} {overlay.take_typed()!r}\n")
    sys.stdout.flush()
    sys.stdin.readline()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, help="a long answer of so many")
    parser.add_argument("--hex", default=ANSWER.encode().hex(), help="the answer")
    parser.add_argument("--wrong", default="00", help="drafts that are thrown away, in hex")
    parser.add_argument("--mode", default="full")
    parser.add_argument("--seconds", type=float, default=SECONDS_AN_EVENT, help="between events")
    parser.add_argument("--hold", nargs="*", default=[], metavar="LINE:MODE", help="wait there for this mode")
    arguments = parser.parse_args()
    answer = long_answer(arguments.tokens).encode() if arguments.tokens else bytes.fromhex(arguments.hex)
    play(
        answer,
        bytes.fromhex(arguments.wrong),
        arguments.mode,
        arguments.seconds,
        dict(each.split(":") for each in arguments.hold),
    )
