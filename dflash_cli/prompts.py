"""Prompts from files, stdin and JSON lines, checked before any model is loaded. Imports no torch."""

from __future__ import annotations

import errno
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dflash_cli.errors import DFlashError, UsageError, nearest
from dflash_cli.terminal import is_terminal, stdin_bytes
from dflash_cli.text import Message

STDIN = "-"
ROLES = ("system", "user", "assistant")
KEYS = ["prompt", "messages", "system", "id"]
MESSAGE_KEYS = ["role", "content"]
SHOWN = 80  # characters of a name that is no file's: it may be a whole text


@dataclass(frozen=True)
class Prompt:
    """A conversation to answer. `name` says where it came from; `id` is a JSON line's own, passed through."""

    name: str
    messages: tuple[Message, ...]
    id: Any = None


def read_prompts(files: Sequence[str], *, jsonl: bool, system: str | None) -> list[Prompt]:
    """One prompt a file (`-` is stdin), or one a line with `jsonl`. Raises DFlashError, UsageError."""
    if not files and is_terminal(sys.stdin):
        raise UsageError("no prompt: name a file, pipe a text into `dflash run -`, or use `dflash chat`")
    prompts: list[Prompt] = []
    for file in files or [STDIN]:
        name, text = ("stdin", _stdin_text()) if file == STDIN else (file, file_text(Path(file)))
        if jsonl:
            prompts += _lines(name, text, system)
        else:
            prompts.append(_checked(Prompt(name, _conversation(text.removesuffix("\n").removesuffix("\r"), system))))
    if not prompts:
        raise DFlashError(f"{', '.join(files) or 'stdin'} has no prompts: expected one JSON object a line")
    return prompts


def _conversation(text: str, system: str | None) -> tuple[Message, ...]:
    first = ({"role": "system", "content": system},) if system else ()
    return (*first, {"role": "user", "content": text})


def _stdin_text() -> str:
    return _decoded("stdin", stdin_bytes().read())


def file_text(path: Path, *, errors: str = "strict") -> str:
    """The text of a file. Raises DFlashError where it cannot be read or is no UTF-8; `errors` as of `bytes.decode`."""
    try:
        return _decoded(str(path), path.read_bytes(), errors)
    except OSError as error:
        text = str(path)
        short = text if len(text) <= SHOWN else text[:SHOWN] + "..."
        is_missing = error.errno in (errno.ENOENT, errno.ENAMETOOLONG, errno.ENOTDIR)
        hint = '; to answer a text that is not in a file: echo "text" | dflash run -' if is_missing else ""
        raise DFlashError(f"the prompt file {short} cannot be read: {error.strerror or error}{hint}") from None


def _decoded(name: str, data: bytes, errors: str = "strict") -> str:
    try:
        return data.decode("utf-8-sig", errors)
    except UnicodeDecodeError as error:
        raise DFlashError(
            f"{name} is not UTF-8 text: byte 0x{data[error.start]:02x} at position {error.start}; convert it first"
        ) from None


def _lines(name: str, text: str, system: str | None) -> Iterator[Prompt]:
    # Not str.splitlines: U+2028 and its like are legal inside a JSON string.
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield _checked(_from_line(f"{name} line {number}", line, system))


def _from_line(where: str, line: str, system: str | None) -> Prompt:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DFlashError(f"{where} is not JSON ({error}); expected an object with prompt or messages") from None
    if isinstance(entry, str):
        entry = {"prompt": entry}
    if not isinstance(entry, dict):
        raise DFlashError(f"{where} is a JSON {type(entry).__name__}; expected an object with prompt or messages")
    _check_keys(where, entry, KEYS)
    if entry.get("prompt") is not None and entry.get("messages") is not None:
        raise DFlashError(f"{where} has both prompt and messages; expected one of them")
    own = entry.get("system", system)
    if own is not None and not isinstance(own, str):
        raise DFlashError(f"{where}: system is a JSON {type(own).__name__}; expected text")
    if isinstance(entry.get("prompt"), str):
        return Prompt(where, _conversation(entry["prompt"], own), entry.get("id"))
    return Prompt(where, messages_of(where, entry.get("messages"), own), entry.get("id"))


def _check_keys(where: str, entry: dict[str, Any], known: list[str]) -> None:
    if unknown := [key for key in entry if key not in known]:
        hint = nearest(unknown[0], known) or f"; expected {', '.join(known)}"
        raise DFlashError(f"{where} has an unknown key {unknown[0]!r}{hint}")


def messages_of(where: str, value: object, system: str | None) -> tuple[Message, ...]:
    """A checked list of messages that ends with the user's, `system` put before it. Raises DFlashError."""
    if not isinstance(value, list) or not value:
        raise DFlashError(f"{where} has neither prompt (text) nor messages (a list); it needs one of them")
    messages: list[Message] = []
    for each in value:
        good = isinstance(each, dict) and each.get("role") in ROLES and isinstance(each.get("content"), str)
        if not good:
            raise DFlashError(f"{where}: a message must have role ({', '.join(ROLES)}) and content (text)")
        _check_keys(f"{where}: a message", each, MESSAGE_KEYS)
        messages.append({"role": each["role"], "content": each["content"]})
    if messages[-1]["role"] != "user":
        raise DFlashError(f"{where}: the last message is the {messages[-1]['role']}'s; expected the user's")
    if system and messages[0]["role"] != "system":
        messages.insert(0, {"role": "system", "content": system})
    return tuple(messages)


def _checked(prompt: Prompt) -> Prompt:
    if not prompt.messages[-1]["content"].strip():
        raise DFlashError(f"the prompt from {prompt.name} is empty: there is nothing to answer")
    return prompt
