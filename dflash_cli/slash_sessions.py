"""Slash commands for saved chats."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dflash_cli.errors import DFlashError, UsageError
from dflash_cli.session_options import saved_names
from dflash_cli.slash import PATHS, Command

if TYPE_CHECKING:
    from dflash_cli.chat import Chat
    from dflash_cli.session_log import SessionLog

UNTITLED = "Chat"
LISTED = 20  # chats that /sessions shows


def _save(chat: Chat, name: str) -> None:
    if chat.log is None:
        chat.log = _log_of(chat)
    if name:
        chat.log.rename(name)
    when = "saved as" if chat.log.is_saved else "to be saved, with its first answer, as"
    chat.say(f"this chat is {when} {chat.log.name!r}")


def _log_of(chat: Chat) -> SessionLog:
    """A log for a chat that has not been saved so far, with the turns it has."""
    from dflash_cli.session_store import SessionStore

    log = SessionStore().open_new()
    log.note(chat.conversation.model, chat.conversation.decoder)
    for turn in chat.conversation.turns:
        log.append_turn(turn)
    return log


def _load(chat: Chat, name: str) -> None:
    from dflash_cli.session_store import SessionStore

    if not name:
        raise UsageError("/load takes the name of a saved chat; /sessions lists them")
    if chat.log is not None and chat.log.is_saved and chat.log.name == name:
        raise UsageError(f"this chat is {name!r}")
    log = SessionStore().resume(name)
    try:
        chat.conversation.take_up(log.state.turns, log.state.system)
    except BaseException:
        log.close()
        raise
    old, chat.log = chat.log, log
    chat.say(log.describe(chat.conversation.model))
    if old is not None:
        old.close()


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
