"""What a slash command of a chat is. The commands are in `slash_*.py`, their table in `chat_commands.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dflash_cli.errors import UsageError, nearest

if TYPE_CHECKING:
    from dflash_cli.chat import Chat

PATHS = "\0paths"  # among the words: the files that are there may follow


def no_words(_chat: Chat, _before: Sequence[str]) -> Iterable[str]:
    """Nothing to complete."""
    return ()


@dataclass(frozen=True)
class Command:
    """One slash command. `arguments` is how help shows them; a command without takes none.

    `handler` gets the chat and the text after the name. `words` gives what may follow the complete words `before`
    (those after the name), for completion; `PATHS` among them stands for files.
    """

    name: str
    arguments: str
    help: str
    handler: Callable[[Chat, str], None]
    aliases: tuple[str, ...] = ()
    words: Callable[[Chat, Sequence[str]], Iterable[str]] = no_words
    more: str = ""
    """What `/help NAME` adds."""


def one_of(*choices: str) -> Callable[[Chat, Sequence[str]], Iterable[str]]:
    """`words` of a command that takes one of a few words."""
    return lambda _chat, before: () if before else choices


def check_choice(name: str, word: str, choices: Sequence[str]) -> None:
    """Raises UsageError, with the nearest, for a word that is none of `choices`; no word at all is fine."""
    if word and word not in choices:
        expected = " or ".join((", ".join(choices[:-1]), choices[-1]))
        raise UsageError(f"{name} takes {expected}; found {word!r}{nearest(word, list(choices))}")
