"""Slash commands that change how answers are made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dflash_cli.errors import UsageError
from dflash_cli.slash import Command, check_choice, one_of

if TYPE_CHECKING:
    from dflash_cli.chat import Chat

ON_OFF = ("on", "off")


def _system(chat: Chat, text: str) -> None:
    chat.conversation.configure(system=text or None)
    chat.say("the system prompt is set" if text else "no system prompt but the template's own")


def _think(chat: Chat, word: str) -> None:
    model = chat.conversation.model
    if not model.codec.supports_thinking:
        raise UsageError(f"{model.pair.name} cannot switch thinking: its chat template has no such switch")
    check_choice("/think", word, ON_OFF)
    if word:
        chat.conversation.configure(thinking=word == "on")
    chat.say(thinking_line(chat.conversation.model.thinking))


def thinking_line(thinking: bool | None) -> str:
    """The state of the template's switch in words."""
    return "thinking " + {None: "as the template decides", True: "on", False: "off"}[thinking]


COMMANDS = (
    Command("/system", "[TEXT]", "Set the system prompt; without TEXT, the template's own.", _system),
    Command("/think", "[on|off]", "Let the model think before it answers.", _think, words=one_of(*ON_OFF)),
)
