"""Slash commands for what is shown of an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dflash_cli.overlay import MODES
from dflash_cli.slash import Command, check_choice, one_of

if TYPE_CHECKING:
    from dflash_cli.chat import Chat


def _overlay(chat: Chat, word: str) -> None:
    check_choice("/overlay", word, MODES)
    if word:
        chat.overlay.switch(word)
    chat.say(chat.overlay.describe())


COMMANDS = (
    Command(
        "/overlay",
        "[off|tokens|full]",
        "Show what was drafted, kept and corrected.",
        _overlay,
        words=one_of(*MODES),
    ),
)
