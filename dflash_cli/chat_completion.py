"""Completion at the prompt: slash commands by name, then what each of them says may follow. Imports no torch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dflash_cli.chat_commands import COMMANDS, is_command
from dflash_cli.slash import PATHS, Command
from dflash_cli.terminal import printable

if TYPE_CHECKING:
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document

    from dflash_cli.chat import Chat


@dataclass(frozen=True)
class Candidate:
    """`text` may stand in place of the last `length` characters. `label` is how a list shows it, `meta` what it is."""

    text: str
    length: int
    label: str
    meta: str = ""


def is_name(text: str) -> bool:
    """Whether the text up to the cursor is the name of a slash command, or the beginning of one, and no more."""
    return is_command(text.lstrip()) and len(text.split()) == 1 and not text[-1].isspace()


def candidates(chat: Chat, text: str) -> list[Candidate]:
    """What may complete the text up to the cursor, which a slash command begins; nothing for any other text."""
    text = text.lstrip()
    if not is_command(text):
        return []
    if is_name(text):
        return list(_names(text))
    name = text.split(None, 1)[0]
    command = next((each for each in COMMANDS if name.lower() in (each.name, *each.aliases)), None)
    return [] if command is None else _arguments(chat, command, text[len(name) :].lstrip())


def _names(typed: str) -> Iterator[Candidate]:
    named = [(each.name, each.help) for each in COMMANDS]
    named += [(alias, f"The same as {each.name}.") for each in COMMANDS for alias in each.aliases]
    for name, meaning in named:
        if name.startswith(typed.lower()):
            yield Candidate(name, len(typed), name, meaning)


def _arguments(chat: Chat, command: Command, after: str) -> list[Candidate]:
    """What `words` says may stand where a word begins. The last one is not the only one tried: names of sessions and

    files may have spaces, so from the first place on that a file may stand in, all that follows is its name.
    """
    starts = [match.start() for match in re.finditer(r"\S+", after)]
    if not after or after[-1].isspace():
        starts.append(len(after))
    found: list[Candidate] = []
    for start in starts:
        words, typed = list(command.words(chat, after[:start].split())), after[start:]
        found += _matching(words, typed)
        if PATHS in words:
            return [*found, *_files(typed)]
    return found


def _matching(words: Iterable[str], typed: str) -> Iterator[Candidate]:
    for word in dict.fromkeys(words):
        if word != PATHS and word.casefold().startswith(typed.casefold()):
            yield Candidate(word, len(typed), word)


def _files(typed: str) -> Iterator[Candidate]:
    from prompt_toolkit.completion import CompleteEvent, PathCompleter
    from prompt_toolkit.document import Document

    folder, _, name = typed.rpartition("/")
    if typed.startswith("~") and not folder:
        home = Path(typed).expanduser() if typed == "~" else Path(typed)
        if home.is_dir():
            yield Candidate(f"{typed}/", len(typed), f"{typed}/")
        return

    def is_shown(path: str) -> bool:
        return name.startswith(".") or not Path(path).name.startswith(".")

    files = PathCompleter(expanduser=True, file_filter=is_shown)
    for each in files.get_completions(Document(typed), CompleteEvent()):
        slash = "/" if each.display_text.endswith("/") else ""
        yield Candidate(typed + each.text + slash, len(typed), each.display_text)


def completer(chat: Callable[[], Chat | None]) -> Completer:
    """`candidates` for prompt-toolkit; `chat` gives the chat once there is one. No error ends the prompt."""
    from prompt_toolkit.completion import Completer, Completion

    class CommandCompleter(Completer):
        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:  # noqa: ARG002
            try:
                found = candidates(here, document.text_before_cursor) if (here := chat()) is not None else []
            except Exception:  # words come from files, folders and the network's copies: no word is no reason to end
                return
            for each in found:
                yield Completion(each.text, -each.length, printable(each.label), printable(each.meta))

    return CommandCompleter()
