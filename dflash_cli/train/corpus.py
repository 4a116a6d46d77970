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
from dflash_cli.sampling import SamplingParams
from dflash_cli.speculative import Decoder, Request
from dflash_cli.train.documents import prompt_key

if TYPE_CHECKING:
    from dflash_cli.model import Model
    from dflash_cli.text import Message
    from dflash_cli.train.recipe import Recipe


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

    `how` says how they are made; a file made in another way is refused. Lines are only ever added.
    """

    def __init__(self, path: Path, how: dict[str, Any]) -> None:
        """Raises DFlashError where the file was made differently, or it or the one beside it is damaged."""
        self.path = path
        ensure_private(path.parent)
        self._check_how(path.with_suffix(".json"), how)
        self.answers: dict[str, list[int]] = {}
        if path.is_file():
            self._read()

    def _check_how(self, sidecar: Path, how: dict[str, Any]) -> None:
        if not sidecar.is_file():
            write_private(sidecar, json.dumps(how, indent=1).encode())
            return
        try:
            found = json.loads(sidecar.read_bytes())
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise DFlashError(f"{sidecar} is damaged; remove it and {self.path.name}, and the answers are made again")
        for key in how:
            if found.get(key) != how[key]:
                raise DFlashError(
                    f"the answers in {self.path} were made with {key} {found.get(key)!r}, now it is {how[key]!r}; "
                    "use another --out, or remove that file and the one beside it"
                )

    def _read(self) -> None:
        data = self.path.read_bytes()
        end = data.rfind(b"\n") + 1
        if end < len(data):  # a line that was cut off while it was written
            os.truncate(self.path, end)
        for number, line in enumerate(data[:end].splitlines(), 1):
            try:
                entry = json.loads(line)
                self.answers[str(entry["key"])] = [int(each) for each in entry["answer_ids"]]
            except (ValueError, KeyError, TypeError):
                raise DFlashError(f"{self.path} line {number} is damaged; remove that line") from None

    def add(self, made: Iterable[tuple[Wanted, list[int], str]], told: Callable[[int, int], None]) -> None:
        """Take answers (see `answers`) and add each as it comes. `told(prompt tokens, answer tokens)`.

        Raises DFlashError where the file cannot be written; what is in it stays.
        """
        try:
            with self.path.open("a", encoding="utf-8") as file:
                self.path.chmod(0o600)
                for each, ids, reason in made:
                    entry = {
                        "messages": list(each.messages),
                        "answer_ids": ids,
                        "finish": reason,
                        "source": each.source,
                    }
                    file.write(json.dumps(entry | {"key": each.key}) + "\n")
                    file.flush()
                    self.answers[each.key] = ids
                    told(len(each.prompt_ids), len(ids))
        except OSError as error:
            raise DFlashError(f"cannot write {self.path}: {error.strerror}; the answers in it are kept") from error


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
