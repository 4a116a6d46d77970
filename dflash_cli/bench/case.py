"""One prompt to be answered by all that take part. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dflash_cli.bench.kinds import log_lines, prompts_of
from dflash_cli.errors import DFlashError

if TYPE_CHECKING:
    from dflash_cli.model import Model
    from dflash_cli.text import Message

FILLED = "Here is a log. Read it, then answer what comes after it.\n\n"


@dataclass(frozen=True)
class Question:
    """A conversation of a kind of text, before it is encoded."""

    kind: str
    messages: tuple[Message, ...]


@dataclass(frozen=True)
class Case:
    """Ids of a prompt. `context`: the length that was asked for, None where the prompt is as long as it is."""

    kind: str
    context: int | None
    ids: tuple[int, ...]


def own_questions(kinds: Sequence[str], samples: int) -> list[Question]:
    """The first `samples` of the benchmark's own prompts of each kind."""
    return [question_of(kind, text) for kind in kinds for text in prompts_of(kind)[:samples]]


def file_questions(path: str, samples: int, system: str | None) -> list[Question]:
    """The first prompts of a file: one a line in *.jsonl, else the whole text is one. Raises DFlashError."""
    from dflash_cli.prompts import read_prompts

    prompts = read_prompts([path], jsonl=path.lower().endswith(".jsonl"), system=system)
    return [Question(Path(path).stem, prompt.messages) for prompt in prompts[:samples]]


def question_of(kind: str, text: str) -> Question:
    """A question that is one text."""
    return Question(kind, ({"role": "user", "content": text},))


def encoded(model: Model, questions: Sequence[Question], contexts: Sequence[int]) -> list[Case]:
    """The prompts as ids; with `contexts`, each once for every length, filled up by a log that comes before it.

    A filled prompt has at least so many tokens, and at most those of a line of the log more.
    """
    if not contexts:
        return [Case(each.kind, None, tuple(_ids(model, each))) for each in questions]
    return [Case(each.kind, length, _filled(model, each, length)) for length in contexts for each in questions]


def _ids(model: Model, question: Question, filling: str = "") -> list[int]:
    *before, last = question.messages
    messages: list[Message] = [*before, {**last, "content": filling + last["content"]}]
    system = model.config.system
    if system and messages[0]["role"] != "system":
        messages.insert(0, {"role": "system", "content": system})
    return model.encode(messages)


def _filled(model: Model, question: Question, length: int) -> tuple[int, ...]:
    ids, lines = _ids(model, question), _Lines()
    if len(ids) > length:
        raise DFlashError(
            f"a prompt of kind {question.kind} has {len(ids)} tokens already; --contexts asks for {length}"
        )
    a_line = max(1, len(_ids(model, question, lines.first(1))) - len(_ids(model, question, FILLED)))
    count = max(0, (length - len(ids)) // (2 * a_line))
    while len(ids) < length:
        ids = _ids(model, question, lines.first(count))
        count += max(1, (length - len(ids)) // (2 * a_line))
    return tuple(ids)


class _Lines:
    """The log, made as far as it is asked for."""

    def __init__(self) -> None:
        self._made: list[str] = []
        self._more: Iterator[str] = log_lines()

    def first(self, count: int) -> str:
        """The filling with so many lines of it."""
        while len(self._made) < count:
            self._made.append(next(self._more))
        return FILLED + "\n".join(self._made[:count]) + "\n\n" if count else ""
