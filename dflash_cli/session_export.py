"""A conversation as a Markdown page or a JSON object, and as a file. Imports no torch."""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from dflash_cli.errors import DFlashError, UsageError
from dflash_cli.paths import write_private
from dflash_cli.terminal import printable

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

    from dflash_cli.stats import AnswerStats

SCHEMA = 1
SYSTEM, USER, ANSWER = "System", "You", "Answer"
SENTINEL = "end"
_MEANS_SOMETHING = re.compile(r"([\\`*_{}\[\]<>#!|&~])")


class Turn(Protocol):
    """What is read of a turn (`conversation.Turn`)."""

    @property
    def prompt(self) -> str:
        """What the person wrote."""

    @property
    def answer(self) -> str:
        """What came back, without the thinking."""

    @property
    def thinking(self) -> str:
        """The thinking, without tags; empty where there is none."""

    @property
    def stats(self) -> AnswerStats:
        """The answer's figures."""

    @property
    def interrupted(self) -> bool:
        """Whether the answer has no end of its own."""


def to_json(title: str, model_name: str, system: str | None, turns: Sequence[Turn]) -> str:
    """A JSON object with a newline: `schema`, `title`, `model`, `system` (or null) and `turns`.

    Of a turn: `prompt`, `thinking`, `answer`, `interrupted` and the figures under their names in `run --json`. What
    could act on a terminal, and what UTF-8 cannot hold, stands as JSON's own escapes.
    """
    page = {
        "schema": SCHEMA,
        "title": title,
        "model": model_name,
        "system": system,
        "turns": [_as_dict(turn) for turn in turns],
    }
    text = json.dumps(page, ensure_ascii=False, indent=2)
    for char in sorted(set(text)):
        if printable(char) != char:
            text = text.replace(char, f"\\u{ord(char):04x}")
    return text + "\n"


def _as_dict(turn: Turn) -> dict[str, object]:
    stats = turn.stats
    return {
        "prompt": turn.prompt,
        "thinking": turn.thinking,
        "answer": turn.answer,
        "interrupted": turn.interrupted,
        "finish_reason": stats.reason,
        "prompt_tokens": stats.prompt_tokens,
        "new_tokens": len(stats.ids),
        "reused_tokens": stats.reused_tokens,
        "acceptance": stats.acceptance(),
        "timings": stats.timings(),
    }


def to_markdown(title: str, model_name: str, system: str | None, turns: Sequence[Turn]) -> str:
    """A Markdown page, to be read: with symbols for what could act on a terminal.

    A text that could change what is around it stands in a fence, where it is shown as it is.
    """
    parts = [f"# {_escaped(title)}", f"Model: {_code(model_name)}"]
    if system:
        parts += [f"## {SYSTEM}", _verbatim(printable(system))]
    for turn in turns:
        parts += [f"## {USER}", _verbatim(printable(turn.prompt)), f"## {ANSWER}"]
        if turn.thinking.strip():
            parts += ["<details>\n<summary>Thinking</summary>", _page(printable(turn.thinking)), "</details>"]
        if turn.answer.strip():
            parts.append(_page(printable(turn.answer)))
        parts.append(f"*{_escaped(turn.stats.summary())}*")
    return "\n\n".join(parts) + "\n"


def _escaped(text: str) -> str:
    return _MEANS_SOMETHING.sub(r"\\\1", _one_line(text))


def _one_line(text: str) -> str:
    return printable(" ".join(text.split()))


def _code(text: str) -> str:
    text = _one_line(text)
    marks = "`" * (_longest_run(text) + 1)
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{marks}{space}{text}{space}{marks}"


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)


def _fenced(text: str, language: str) -> str:
    marks = "`" * max(3, _longest_run(text) + 1)
    return f"{marks}{language}\n{text}\n{marks}"


def _verbatim(text: str) -> str:
    """A person's text: as it is where Markdown means nothing else by it, else in a fence."""
    tokens = _parser().parse(text)
    inside = tokens[1].children or [] if len(tokens) == 3 and tokens[0].type == "paragraph_open" else []
    is_plain = len(inside) == 1 and inside[0].type == "text" and inside[0].content == text
    return text if is_plain else _fenced(text, "text")


def _page(text: str) -> str:
    """A model's text, which is Markdown: in a fence where it would reach beyond its end or pass for another part."""
    text = text.strip("\n")
    env: dict[str, object] = {}
    tokens = _parser().parse(f"{text}\n\n{SENTINEL}\n", env)
    is_closed = len(tokens) > 3 and tokens[-3].level == 0 and tokens[-2].content == SENTINEL
    has_html = any("html" in each.type for token in tokens for each in (token, *(token.children or ())))
    headings = [after.content for token, after in pairwise(tokens) if token.type == "heading_open"]
    passes_for_part = not {SYSTEM, USER, ANSWER}.isdisjoint(headings)
    # A link's definition holds for the whole page.
    reaches_out = has_html or passes_for_part or "references" in env
    return _fenced(text, "markdown") if reaches_out or not is_closed else text


@functools.cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark").enable(["table", "strikethrough"])


WRITERS: dict[str, Callable[[str, str, str | None, Sequence[Turn]], str]] = {".md": to_markdown, ".json": to_json}


def write_export(
    path: Path,
    title: str,
    model_name: str,
    system: str | None,
    turns: Sequence[Turn],
    *,
    overwrite: bool = False,
    to_replace: str = "remove it first",
) -> Path:
    """Write the conversation to a new file that only the user can read (mode 0600); gives its path.

    Raises UsageError for a name that ends neither in .md nor in .json, DFlashError for a file that exists (unless
    `overwrite`; `to_replace` is what a person can do then) or that cannot be written.
    """
    try:
        path = path.expanduser()
    except RuntimeError:
        raise UsageError(f"cannot write {path}: there is no user with that home folder") from None
    writer = WRITERS.get(path.suffix.lower())
    if writer is None:
        raise UsageError(f"{path} says nothing about its format; expected a name that ends in {' or '.join(WRITERS)}")
    if not _is_folder(path.parent):
        raise DFlashError(f"cannot write {path}: the folder {path.parent} does not exist")
    data = writer(title, model_name, system, turns).encode("utf-8", "replace")
    if overwrite:
        write_private(path, data)
    else:
        _write_new(path, data, to_replace)
    return path


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a name that is too long
        return False


def _write_new(path: Path, data: bytes, to_replace: str) -> None:
    try:
        # Asked of the system, not looked up before: the file may come between.
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise DFlashError(f"{path} exists and is not overwritten; name another file, or {to_replace}") from None
    except OSError as err:
        raise DFlashError(f"cannot write {path}: {err.strerror or err}") from err
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as err:
        path.unlink(missing_ok=True)
        raise DFlashError(f"cannot write {path}: {err.strerror or err}") from err
