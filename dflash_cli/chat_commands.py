"""The table of a chat's slash commands, from which help, completion and errors are made too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dflash_cli import slash_overlay, slash_settings, slash_talk
from dflash_cli.errors import UsageError, nearest
from dflash_cli.slash import Command

if TYPE_CHECKING:
    from dflash_cli.chat import Chat

MARK = "/"
KEYS = (
    ("Alt-Enter", "Start a new line; pasted lines are one message."),
    ("Ctrl-R", "Search what was typed before."),
    ("Ctrl-C", "Stop the answer, or clear the line; twice at an empty line leaves."),
    ("Ctrl-D", "Leave."),
)


def is_command(message: str) -> bool:
    """Whether a message is for the chat and not for the model; `//` escapes a slash."""
    return message.startswith(MARK) and not message.startswith(MARK * 2)


def unescape(message: str) -> str:
    """The message as the model gets it."""
    return message[1:] if message.startswith(MARK * 2) else message


def run_command(chat: Chat, message: str) -> None:
    """Do what a slash command asks. Raises UsageError for an unknown one, naming the nearest."""
    name, _, argument = message.partition(" ") if " " in message else message.partition("\n")
    argument = argument.strip()
    command = _BY_NAME.get(name.lower())
    if command is None:
        hint = nearest(name, list(_BY_NAME)) or "; /help lists the commands"
        raise UsageError(f"unknown command {name!r}{hint} (to send such a message, start it with //)")
    if argument and not command.arguments:
        raise UsageError(f"{command.name} takes nothing after it; found {argument!r}")
    command.handler(chat, argument)


def _help(chat: Chat, _argument: str) -> None:
    rows = [(" ".join((each.name, each.arguments)).strip(), each.help) for each in COMMANDS]
    rows += [*KEYS, ("//text", "Send a message that starts with a slash.")]
    chat.say_table(rows)


COMMANDS = (
    Command("/help", "", "Show this.", _help),
    *slash_settings.COMMANDS,
    *slash_overlay.COMMANDS,
    *slash_talk.COMMANDS,
)
_BY_NAME = {name: each for each in COMMANDS for name in (each.name, *each.aliases)}
