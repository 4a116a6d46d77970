"""Answers of the target to prompts, made here in a batch or by a server, and kept line by line: none is made twice."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backends import create_backend
from dflash_cli.errors import DFlashError
from dflash_cli.events import BlockVerified, Finished, Prefilled
from dflash_cli.paths import ensure_private, write_private
from dflash_cli.request import Request
from dflash_cli.sampling import SamplingParams
from dflash_cli.speculative import Decoder
from dflash_cli.train.documents import prompt_key

if TYPE_CHECKING:
    from dflash_cli.model import Model
    from dflash_cli.text import Message
    from dflash_cli.train.recipe import Recipe


CHECKPOINT = "checkpoint"  # of how answers were made: an older version did not say it, and it may be gone from the disk


@dataclass(frozen=True)
class Wanted:
    """A prompt that waits for its answer."""

    messages: tuple[Message, ...]
    prompt_ids: list[int]
    source: str

    @property
    def key(self) -> str:
        """The same for equal prompts."""
        return prompt_key(self.prompt_ids)


class AnswerFile:
    """Answers in `path`, one JSON object a line: messages, answer_ids, finish, source and the prompt's key.

    `how` says how they are made; a file made in another way is refused. Lines are only ever added, and nothing is
    written before the first.
    """

    def __init__(self, path: Path, how: dict[str, Any]) -> None:
        """Raises DFlashError where the file was made differently, or it or the one beside it is damaged."""
        self.path, self.how = path, how
        self._sidecar = path.with_suffix(".json")
        self._says_how = self._check_how()
        self.answers: dict[str, list[int]] = {}
        for number, line in enumerate(self.lines(), 1):
            try:
                entry = json.loads(line)
                self.answers[str(entry["key"])] = [int(each) for each in entry["answer_ids"]]
            except (ValueError, KeyError, TypeError):
                raise DFlashError(f"{path} line {number} is damaged; remove that line") from None

    def _check_how(self) -> bool:
        """Whether all that is known of it is written down."""
        if not self._sidecar.is_file():
            return False
        try:
            found = json.loads(self._sidecar.read_bytes())
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise DFlashError(
                f"{self._sidecar} is damaged; remove it and {self.path.name}, and the answers are made again"
            )
        for key, value in self.how.items():
            before = found.get(key)
            if before != value and not (key == CHECKPOINT and None in (before, value)):
                raise DFlashError(
                    f"the answers in {self.path} were made with {key} {before!r}, now it is {value!r}; "
                    "use another --out, or remove that file and the one beside it"
                )
        return found.get(CHECKPOINT) is not None or self.how.get(CHECKPOINT) is None

    def lines(self) -> list[bytes]:
        """The whole lines, without one that is being written or was cut off while it was."""
        data = self.path.read_bytes() if self.path.is_file() else b""
        return data[: data.rfind(b"\n") + 1].splitlines(keepends=True)

    def add_lines(self, lines: Iterable[bytes]) -> None:
        """Add lines as they come, each at once. Raises DFlashError where they cannot be written; what is there stays.

        What cannot be made whole any more, a line cut off by the end of another process, goes first.
        """
        ensure_private(self.path.parent)
        if not self._says_how:
            write_private(self._sidecar, json.dumps(self.how, indent=1).encode())
            self._says_how = True
        try:
            if self.path.is_file():
                os.truncate(self.path, sum(map(len, self.lines())))
            with self.path.open("ab") as file:
                self.path.chmod(0o600)
                for line in lines:
                    file.write(line)
                    file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise DFlashError(f"cannot write {self.path}: {error.strerror}; the answers in it are kept") from error

    def add(self, made: Iterable[tuple[Wanted, list[int], str]], told: Callable[[int, int], None]) -> None:
        """Take answers (see `answers`) and add each as it comes. `told(prompt tokens, answer tokens)`.

        Raises DFlashError where the file cannot be written; what is in it stays.
        """
        self.add_lines(self._taken(made, told))

    def _taken(
        self, made: Iterable[tuple[Wanted, list[int], str]], told: Callable[[int, int], None]
    ) -> Iterator[bytes]:
        for each, ids, reason in made:
            entry = {"messages": list(each.messages), "answer_ids": ids, "finish": reason, "source": each.source}
            yield json.dumps(entry | {"key": each.key}).encode() + b"\n"
            self.answers[each.key] = ids  # it is written by now
            told(len(each.prompt_ids), len(ids))


def answers(model: Model, wanted: Sequence[Wanted], recipe: Recipe) -> Iterator[tuple[Wanted, list[int], str]]:
    """(prompt, answer ids, why it ended), as they finish. A finished row takes the next prompt at once."""
    # By length, because a step reads every row's cache up to the longest; that one first, which needs the most memory.
    wanted = sorted(wanted, key=lambda each: -len(each.prompt_ids))
    max_len = min(model.max_len, len(wanted[0].prompt_ids) + recipe.answer_tokens)
    rows = min(recipe.rows, len(wanted))
    backend = create_backend(model.config.backend, model.target, None, max_len=max_len, batch_size=rows)
    params = SamplingParams(recipe.temperature, recipe.top_k, recipe.top_p)
    requests = (_request(model, each, params, recipe) for each in wanted)
    for index, ids, reason in finished(Decoder(backend), requests):
        yield wanted[index], ids, reason


def finished(decoder: Decoder, requests: Iterable[Request]) -> Iterator[tuple[int, list[int], str]]:
    """(number of the request, ids of its answer, why it ended), as they finish."""
    made: dict[int, list[int]] = {}
    for index, event in decoder.generate_many(requests):
        if isinstance(event, Prefilled | BlockVerified):
            made.setdefault(index, []).extend(event.new_ids)
        elif isinstance(event, Finished):
            yield index, made.pop(index), event.reason


def _request(model: Model, each: Wanted, params: SamplingParams, recipe: Recipe) -> Request:
    params = replace(params, seed=request_seed(recipe.seed, each.prompt_ids))
    return Request(each.prompt_ids, params, recipe.answer_tokens, model.codec.stop_ids)


def request_seed(seed: int, ids: Sequence[int]) -> int:
    """63 bits that differ from prompt to prompt."""
    return int(prompt_key([seed, *ids]), 16) >> 1
