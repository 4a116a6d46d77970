"""Slash commands for saved chats."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dflash_cli.errors import DFlashError, UsageError
from dflash_cli.interrupts import uninterrupted
from dflash_cli.session_options import saved_names
from dflash_cli.slash import PATHS, Command

if TYPE_CHECKING:
    from dflash_cli.chat import Chat

UNTITLED = "Chat"
LISTED = 20  # chats that /sessions shows


def _save(chat: Chat, name: str) -> None:
    if chat.log is None:
        _begin(chat, name or None)
    elif name:
        chat.log.rename(name)
    assert chat.log is not None
    when = "saved as" if chat.log.is_saved else "to be saved, with its first answer, as"
    chat.say(f"this chat is {when} {chat.log.name!r}")


def _begin(chat: Chat, name: str | None) -> None:
    """Save from now on a chat that has not been saved so far, with the turns it has."""
    from dflash_cli.session_store import SessionStore

    chat.log = SessionStore().open_new(name)
    chat.log.note(chat.conversation.model, chat.conversation.decoder)
    chat.log.append_turns(chat.conversation.turns)


def _load(chat: Chat, name: str) -> None:
    if not name:
        raise UsageError("/load takes the name of a saved chat; /sessions lists them")
    if chat.log is not None and chat.log.is_saved and chat.log.name == name:
        raise UsageError(f"this chat is {name!r}")
    old = chat.log
    try:
        uninterrupted(lambda: _go_on(chat, name))  # no turn of one chat may go to the file of the other
    finally:
        if old is not None and chat.log is not old:
            old.close()


def _go_on(chat: Chat, name: str) -> None:
    from dflash_cli.session_store import SessionStore

    log = SessionStore().resume(name)
    try:
        chat.conversation.take_up(log.state.turns, log.state.system)
    except BaseException:
        log.close()
        raise
    chat.log = log
    chat.say(log.describe(chat.conversation.model))


def _sessions(chat: Chat, _argument: str) -> None:
    from dflash_cli.session_store import SessionStore

    store = SessionStore()
    names = store.names()
    if not names:
        chat.say(f"no chat is saved in {store.folder}")
        return
    listed = store.summaries(LISTED)
    chat.say_table([(each.name, f"{each.when}  {each.size:<9}  {each.pair}  {each.text}") for each in listed])
    if len(names) > LISTED:
        chat.say(f"{len(names) - LISTED} more: `dflash sessions list`")


def _export(chat: Chat, file: str) -> None:
    from dflash_cli.session_export import write_export
    from dflash_cli.session_records import in_words

    model, turns = chat.conversation.model, chat.conversation.turns
    if not file:
        raise UsageError("/export takes a file: NAME.md or NAME.json")
    if not turns:
        raise DFlashError("there is no turn to export yet")
    title = UNTITLED if chat.log is None else chat.log.name
    path = write_export(Path(file), title, model.pair.name, model.config.system, turns)
    chat.say(f"{in_words(len(turns))} written to {path}")


def _names(_chat: Chat, before: Sequence[str]) -> Iterable[str]:
    return () if before else saved_names()


COMMANDS = (
    Command("/save", "[NAME]", "Say where this chat is saved; with NAME, call it so.", _save),
    Command("/load", "NAME", "Go on with a saved chat.", _load, words=_names),
    Command("/sessions", "", "List the saved chats.", _sessions),
    Command(
        "/export",
        "FILE.md|FILE.json",
        "Write this chat to a file.",
        _export,
        words=lambda _chat, before: () if before else (PATHS,),
    ),
)
