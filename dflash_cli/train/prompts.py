"""Prompts to train on: JSON lines (`prompt`, `messages`, ShareGPT `conversations`) or plain text. Imports no torch."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from dflash_cli.errors import DFlashError
from dflash_cli.prompts import file_text, messages_of
from dflash_cli.text import Message

Entry = TypeVar("Entry")
SHAREGPT = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "system": "system"}
TEXT_SUFFIX = ".txt"
JUDGED_ON = ("humaneval", "mt-bench", "mt_bench", "mtbench", "mbpp", "gsm8k-test", "gsm8k_test")
"""Sets that drafters are measured on: a line whose `source` names one is never trained on."""


@dataclass(frozen=True)
class TrainingPrompt:
    """A conversation up to the user's last turn. `answer`: what the file says came next, if anything.

    `answer_ids`: the target's own ids of it, where they were kept. `is_text`: of a text file; raw mode may cut it.
    """

    name: str
    messages: tuple[Message, ...]
    source: str
    answer: str | None = None
    answer_ids: tuple[int, ...] | None = None
    is_text: bool = False


@dataclass(frozen=True)
class BadLine:
    """A line that could not be read, and why."""

    reason: str


def read_prompts(
    files: tuple[str, ...], system: str | None, *, measuring: bool = False
) -> Iterator[TrainingPrompt | BadLine]:
    """The prompts of the files, in order. `measuring`: they are not trained on, so any set will do.

    Raises DFlashError where a file cannot be read.
    """
    for file in files:
        if Path(file).suffix.lower() == TEXT_SUFFIX:
            yield from read_text(file, system, measuring=measuring)
        else:
            yield from read_lines(file, functools.partial(_prompt, file, system, measuring))


def read_text(file: str, system: str | None, *, measuring: bool = False) -> Iterator[TrainingPrompt | BadLine]:
    """The prompts of a plain text file: its paragraphs, or its lines where it has no blank one between them."""
    source = source_of(file, {}, file, measuring=measuring)
    before: list[Message] = [{"role": "system", "content": system}] if system else []
    for number, text in paragraphs(_text_of(file)):
        try:
            _check_utf8(file, number, text)
        except DFlashError as error:
            yield BadLine(str(error))
            continue
        messages = (*before, {"role": "user", "content": text})
        yield TrainingPrompt(f"{file} line {number}", messages, source, is_text=True)


def _text_of(file: str) -> str:
    """The text of a file; bytes that are no UTF-8 become lone surrogates, which UTF-8 never gives."""
    return file_text(Path(file), errors="surrogateescape")


def _check_utf8(file: str, number: int, text: str) -> None:
    """Raises DFlashError where a text of `_text_of`, which begins in line `number`, has a byte that is no UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        line, byte = number + text.count("\n", 0, error.start), ord(text[error.start]) - 0xDC00
        raise DFlashError(f"{file} line {line} is not UTF-8 text: it has the byte 0x{byte:02x}") from None


def paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """(number of its first line, text) of what blank lines part; each line of a text that has none."""
    lines = enumerate(text.replace("\r\n", "\n").split("\n"), 1)
    parts = [list(part) for filled, part in itertools.groupby(lines, lambda line: bool(line[1].strip())) if filled]
    if len(parts) == 1:
        yield from parts[0]
        return
    for part in parts:
        yield part[0][0], "\n".join(line for _, line in part)


def read_lines(file: str, parse: Callable[[str, dict[str, Any]], Entry]) -> Iterator[Entry | BadLine]:
    """`parse(where, object)` of each line of a JSON-lines file; what it refuses comes as a BadLine."""
    # Not str.splitlines: U+2028 and its like are legal inside a JSON string.
    for number, line in enumerate(_text_of(file).split("\n"), 1):
        if not line.strip():
            continue
        where = f"{file} line {number}"
        try:
            _check_utf8(file, number, line)
            entry = json.loads(line)
            if not isinstance(entry, dict):
                raise DFlashError(f"{where} is a JSON {type(entry).__name__}; expected an object")
            yield parse(where, entry)
        except (ValueError, RecursionError) as error:
            yield BadLine(f"{where} is not valid JSON ({error})")
        except DFlashError as error:
            yield BadLine(str(error))


def refused(prompts: Iterable[TrainingPrompt | BadLine], add: Callable[[TrainingPrompt | BadLine], None]) -> list[str]:
    """`add(prompt)` of each, and why of those it did not take (DFlashError)."""
    reasons = []
    for prompt in prompts:
        try:
            add(prompt)
        except DFlashError as error:
            reasons.append(str(error))
    return reasons


def source_of(where: str, entry: dict[str, Any], file: str, *, measuring: bool = False) -> str:
    """The line's own `source`, or its file's name. Raises DFlashError for a set that drafters are judged on, unless
    it is there for `measuring`."""
    source = _text(where, "source", entry.get("source", Path(file).stem))
    if not measuring and any(name in source.lower() for name in JUDGED_ON):
        raise DFlashError(f"{where} comes from {source!r}, a set that drafters are judged on: never train on it")
    return source


def _text(where: str, key: str, value: object) -> str:
    if not isinstance(value, str):
        raise DFlashError(f"{where}: {key} is a JSON {type(value).__name__}; expected text")
    return value


def _prompt(file: str, system: str | None, measuring: bool, where: str, entry: dict[str, Any]) -> TrainingPrompt:
    source = source_of(where, entry, file, measuring=measuring)
    messages, answer = _turns(where, entry)
    own = _text(where, "system", entry["system"]) if entry.get("system") is not None else None
    prompt = TrainingPrompt(where, messages_of(where, messages, own or system), source, answer)
    if not prompt.messages[-1]["content"].strip():
        raise DFlashError(f"{where} has an empty prompt: there is nothing to answer")
    return prompt


def _turns(where: str, entry: dict[str, Any]) -> tuple[list[Any], str | None]:
    """Messages up to the user's last turn, and the text that followed it."""
    if isinstance(entry.get("prompt"), str):
        answer = entry.get("answer", entry.get("response"))
        return [{"role": "user", "content": entry["prompt"]}], answer if isinstance(answer, str) else None
    messages = _sharegpt(where, entry["conversations"]) if "conversations" in entry else entry.get("messages")
    if not isinstance(messages, list) or not messages:
        raise DFlashError(f"{where} has neither prompt (text) nor messages or conversations (lists)")
    answer = None
    while messages and isinstance(messages[-1], dict) and messages[-1].get("role") == "assistant":
        answer = messages[-1].get("content")
        messages = messages[:-1]
    if not messages:
        raise DFlashError(f"{where} has no turn of the user")
    return [_bare(each) for each in messages], answer if isinstance(answer, str) else None


def _bare(message: Any) -> Any:
    return {key: message.get(key) for key in ("role", "content")} if isinstance(message, dict) else message


def _sharegpt(where: str, turns: Any) -> list[Any]:
    good = isinstance(turns, list) and all(isinstance(turn, dict) for turn in turns)
    if not good:
        raise DFlashError(f"{where}: conversations is no list of objects with from and value")
    for turn in turns:
        if not isinstance(turn.get("from"), str) or turn["from"] not in SHAREGPT:
            raise DFlashError(f"{where}: a turn is from {turn.get('from')!r}; expected {', '.join(SHAREGPT)}")
    return [{"role": SHAREGPT[turn["from"]], "content": turn.get("value")} for turn in turns]
