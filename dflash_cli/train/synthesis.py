"""Prompts that the target writes itself: what it expects people to say, sampled from the start of a user's turn."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from backends import create_backend
from dflash_cli.errors import DFlashError
from dflash_cli.paths import ensure_private
from dflash_cli.request import Request
from dflash_cli.sampling import SamplingParams
from dflash_cli.speculative import Decoder
from dflash_cli.train.corpus import finished, request_seed
from dflash_cli.train.prompts import TrainingPrompt
from dflash_cli.train.report import Reporter
from dflash_cli.train.signals import Stop

if TYPE_CHECKING:
    from dflash_cli.model import Model
    from dflash_cli.train.recipe import Recipe

SOURCE = "self-synthesised"
MOST_TOKENS = 72  # of a prompt; one that has not ended by then is dropped
SHORTEST = 15  # characters
TRIES = 8  # for each prompt that is wanted
PARAMS = SamplingParams(temperature=1.0, top_p=0.95)


class PromptFile:
    """Prompts in `path`, one JSON object a line, with the number of the draw each came from. Lines are only added."""

    def __init__(self, path: Path) -> None:
        """Raises DFlashError for a damaged line before the last."""
        self.path = path
        self.texts: list[str] = []
        self.next_number = 0
        if path.is_file():
            self._read()

    def _read(self) -> None:
        data = self.path.read_bytes()
        end = data.rfind(b"\n") + 1
        for number, line in enumerate(data[:end].splitlines(), 1):
            try:
                entry = json.loads(line)
                self.texts.append(str(entry["prompt"]))
                self.next_number = max(self.next_number, int(entry["number"]) + 1)
            except (ValueError, KeyError, TypeError):
                raise DFlashError(f"{self.path} line {number} is damaged; remove that line") from None

    def prompts(self, model: Model, count: int) -> Iterator[TrainingPrompt]:
        """The first `count` prompts as if they had been read from a file."""
        for number, text in enumerate(self.texts[:count], 1):
            yield TrainingPrompt(f"{self.path} line {number}", tuple(model.conversation(text)), SOURCE)

    def write(self, model: Model, recipe: Recipe, report: Reporter, stop: Stop) -> None:
        """Let the target write until there are as many as asked for. Raises DFlashError, KeyboardInterrupt."""
        if len(self.texts) >= recipe.synthesize:
            return
        ensure_private(self.path.parent)
        seen = set(self.texts)
        try:
            if self.path.is_file():  # a line that was cut off while it was written
                os.truncate(self.path, self.path.read_bytes().rfind(b"\n") + 1)
            with self.path.open("a") as file, report.stage("prompts", recipe.synthesize, len(seen)) as advance:
                self.path.chmod(0o600)
                for number, text in written(model, self.next_number, recipe):
                    stop.check()
                    if len(text) < SHORTEST or text in seen:
                        continue
                    seen.add(text)
                    self.texts.append(text)
                    file.write(json.dumps({"prompt": text, "source": SOURCE, "number": number}) + "\n")
                    file.flush()
                    advance(len(self.texts), "")
                    if len(self.texts) == recipe.synthesize:
                        return
        except OSError as error:
            raise DFlashError(f"cannot write {self.path}: {error.strerror}; the prompts in it are kept") from error
        report.tell(f"warning: the target wrote {len(self.texts)} different prompts, fewer than {recipe.synthesize}")


def written(model: Model, first: int, recipe: Recipe) -> Iterator[tuple[int, str]]:
    """(number of the draw, text) of user turns that the target ended itself."""
    prefix = user_prefix(model)
    rows = min(recipe.rows, recipe.synthesize)
    max_len = min(model.max_len, len(prefix) + MOST_TOKENS)
    backend = create_backend(model.config.backend, model.target, None, max_len=max_len, batch_size=rows)
    numbers = range(first, first + TRIES * recipe.synthesize)
    requests = (_request(model, prefix, number, recipe) for number in numbers)
    for index, ids, reason in finished(Decoder(backend), requests):
        if reason == "stop":
            yield numbers[index], model.codec.decode(ids[:-1]).strip()


def _request(model: Model, prefix: list[int], number: int, recipe: Recipe) -> Request:
    return Request(prefix, replace(PARAMS, seed=request_seed(recipe.seed, [number])), MOST_TOKENS, model.codec.stop_ids)


def user_prefix(model: Model) -> list[int]:
    """Ids of a conversation up to where the user speaks. Raises DFlashError in raw mode, which has no such place."""
    if model.config.raw:
        raise DFlashError("--synthesize needs a chat template, and --raw uses none; pass --prompts")
    one, other = (model.encode(model.conversation(text)) for text in ("a", "Z"))
    return [each for each, _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))]
