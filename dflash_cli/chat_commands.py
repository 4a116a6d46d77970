"""The table of a chat's slash commands, from which help, completion and errors are made too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from dflash_cli import slash_input, slash_overlay, slash_sessions, slash_settings, slash_talk
from dflash_cli.errors import UsageError, nearest
from dflash_cli.slash import Command
from dflash_cli.slash_settings import find_setting
from dflash_cli.slash_show import describe_setting

if TYPE_CHECKING:
    from dflash_cli.chat import Chat

MARK = "/"
LONGEST_NAME = 60  # of a command that does not exist, in an error
KEYS = (
    ("Alt-Enter", "Start a new line, as Ctrl-J does; pasted lines are one message."),
    ("Alt-E", "Go on in your editor ($VISUAL or $EDITOR), as Ctrl-X Ctrl-E does."),
    ("Tab", "Complete a slash command and what follows it."),
    ("F2", "Switch the overlay, in mid-answer too."),
    ("Ctrl-R", "Search what was typed before; what begins with a space is not kept."),
    ("Ctrl-C", "Stop the answer, or clear the line; twice at an empty line leaves."),
    ("Ctrl-D", "Leave."),
    ("//text", "Send a message that starts with a slash."),
)


def is_command(message: str) -> bool:
    """Whether a message is for the chat and not for the model; `//` escapes a slash."""
    return message.startswith(MARK) and not message.startswith(MARK * 2)


def unescape(message: str) -> str:
    """The message as the model gets it."""
    return message[1:] if message.startswith(MARK * 2) else message


def run_command(chat: Chat, message: str) -> None:
    """Do what a slash command asks. Raises UsageError for an unknown one, naming the nearest."""
    name, argument = (*message.split(None, 1), "")[:2]
    command = _BY_NAME.get(name.lower())
    if command is None:
        raise _unknown(chat, name, message)
    if argument and not command.arguments:
        raise UsageError(f"{command.name} takes nothing after it; found {argument!r}")
    command.handler(chat, argument)


def _unknown(chat: Chat, name: str, message: str) -> UsageError:
    """Several lines are perhaps a paste that was never meant as a command: they are given back, ready to be sent."""
    name = name[:LONGEST_NAME]
    way_out = "to send such a message, start it with //"
    if "\n" in message and chat.source.has_person:
        chat.source.prefill(MARK + message)
        way_out = "your message is at the prompt again, with // in front: Enter sends it"
    return UsageError(
        f"unknown command {name!r}{nearest(name, list(_BY_NAME)) or '; /help lists the commands'} ({way_out})"
    )


def _help(chat: Chat, name: str) -> None:
    if name:
        _help_on(chat, name)
        return
    rows: list[tuple[str, str]] = []
    for heading, commands in GROUPS:
        rows += [(heading, ""), *((_usage(each), each.help) for each in commands), ("", "")]
    chat.say_table([*rows, ("Keys", ""), *KEYS])


def _usage(command: Command) -> str:
    return f"{command.name} {command.arguments}".strip()


def _help_on(chat: Chat, name: str) -> None:
    """A command or, under a name that is none, a setting."""
    command = _BY_NAME.get(f"{MARK}{name.lower().lstrip(MARK)}")
    if command is not None:
        rows = [(_usage(command), command.help), ("also called", ", ".join(command.aliases)), ("", command.more)]
        chat.say_table([row for row in rows if row[1]])
        if command.name == "/overlay":
            chat.screen.draw(chat.overlay.legend())
        return
    try:
        setting = find_setting(name)
    except UsageError:
        names = [each.lstrip(MARK) for each in _BY_NAME]
        raise UsageError(
            f"there is no help on {name[:LONGEST_NAME]!r}{nearest(name.lstrip(MARK), names)}; /help lists the commands"
        ) from None
    chat.say_table(describe_setting(chat, setting))


def _help_words(_chat: Chat, before: Sequence[str]) -> Iterable[str]:
    return () if before else [each.name.lstrip(MARK) for each in COMMANDS]


GROUPS = (
    ("Help", (Command("/help", "[NAME]", "Show this, or more about a command or setting.", _help, words=_help_words),)),
    ("The conversation", (*slash_talk.COMMANDS, *slash_input.COMMANDS)),
    ("What you see", slash_overlay.COMMANDS),
    ("How it answers", slash_settings.COMMANDS),
    ("Saved chats", slash_sessions.COMMANDS),
)
COMMANDS = tuple(command for _, commands in GROUPS for command in commands)
_BY_NAME = {name: each for each in COMMANDS for name in (each.name, *each.aliases)}
