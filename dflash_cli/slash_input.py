"""Slash commands for writing messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dflash_cli.editor import edit
from dflash_cli.slash import Command

if TYPE_CHECKING:
    from dflash_cli.chat import Chat


def _edit(chat: Chat, text: str) -> None:
    last = chat.conversation.turns[-1] if chat.conversation.turns else chat.last_turn
    saved = edit(text or (last.prompt if last else ""))
    if saved is None:
        chat.say("nothing was saved, so nothing is sent")
    elif not saved.strip():
        chat.say("the text is empty, so nothing is sent")
    else:
        chat.submit(saved)


COMMANDS = (Command("/edit", "[TEXT]", "Write a message in your editor; without TEXT, change your last one.", _edit),)
