"""What saved chats may be called: names that stay inside their folder on every system."""

from __future__ import annotations

import re
import secrets
import unicodedata
from collections.abc import Iterable
from datetime import datetime

from dflash_cli.errors import UsageError

MAX_LENGTH = 80
MAX_BYTES = 200  # a file name has at most 255, and temporary files have longer names
PUNCTUATION = " .-_"
RANDOM_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"
_WINDOWS_DEVICES = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|com\d|lpt\d)(\..*)?", re.IGNORECASE | re.ASCII)


def check_name(name: str) -> str:
    """`name` in Unicode's composed form (NFC). Raises UsageError for one that cannot be a file's on every system."""
    name = unicodedata.normalize("NFC", name)
    if problem := _problem(name):
        raise UsageError(
            f"a chat cannot be called {name!r}: {problem}. Names have letters, digits, spaces, dots, dashes and "
            f"underscores, at most {MAX_LENGTH}, and start with a letter, a digit or an underscore"
        )
    return name


def is_name(name: str) -> bool:
    """Whether `name` is one just as it stands."""
    return unicodedata.normalize("NFC", name) == name and not _problem(name)


def _problem(name: str) -> str:
    """What is wrong with a name, or an empty string."""
    if not name:
        return "it is empty"
    if len(name) > MAX_LENGTH or len(name.encode("utf-8", "replace")) > MAX_BYTES:
        return f"it is too long ({len(name)} characters)"
    if wrong := next((each for each in name if not _is_allowed(each)), None):
        return f"{wrong!r} is not allowed"
    if name[0] != "_" and not _is_letter_or_digit(name[0]):
        return f"it starts with {name[0]!r}"
    if name[-1] in " .":
        return f"it ends with {name[-1]!r}"
    return "Windows keeps that name for a device" if _WINDOWS_DEVICES.fullmatch(name) else ""


def _is_allowed(char: str) -> bool:
    # Marks: the accents and vowel signs without which many scripts cannot be written.
    return char in PUNCTUATION or _is_letter_or_digit(char) or unicodedata.category(char).startswith("M")


def _is_letter_or_digit(char: str) -> bool:
    return unicodedata.category(char).startswith("L") or unicodedata.category(char) == "Nd"


def same_name(name: str, names: Iterable[str]) -> str | None:
    """The one of `names` that a system that ignores case would take for `name`, or None."""
    return next((each for each in names if fold_name(each) == fold_name(name)), None)


def fold_name(name: str) -> str:
    """The name as a system that ignores case compares it."""
    return unicodedata.normalize("NFC", name.casefold())


def default_name(now: datetime) -> str:
    """A name from the time, with a short random end: two chats may begin in the same minute."""
    return f"{now:%Y-%m-%d-%H%M}-{''.join(secrets.choice(RANDOM_LETTERS) for _ in range(3))}"


def free_variant(name: str, names: Iterable[str]) -> str:
    """`name` with the first number, from 2 on, that gives one none of `names` is."""
    taken, number = list(names), 2
    while True:
        stem = name
        while len(f"{stem}-{number}".encode()) > MAX_BYTES or len(f"{stem}-{number}") > MAX_LENGTH:
            stem = stem[:-1]
        if same_name(f"{stem}-{number}", taken) is None:
            return f"{stem}-{number}"
        number += 1
