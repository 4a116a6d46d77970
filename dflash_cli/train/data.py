"""From what was read to documents: answered by the target where need be, and some of them held out."""

from __future__ import annotations

import hashlib
import time
from array import array
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflash_cli.errors import DFlashError
from dflash_cli.stats_store.checkpoint import checkpoint_hash
from dflash_cli.train.corpus import CHECKPOINT, AnswerFile, Wanted, answers
from dflash_cli.train.documents import Document, Mixture, make_document, split, without_repeats
from dflash_cli.train.precision import precision, quantised
from dflash_cli.train.reading import Read
from dflash_cli.train.report import Reporter
from dflash_cli.train.signals import Stop

if TYPE_CHECKING:
    from dflash_cli.model import Model
    from dflash_cli.train.recipe import Recipe

ANSWERS, WRITTEN = "answers.jsonl", "prompts.jsonl"


@dataclass(frozen=True)
class Data:
    """What is trained on and what is held out."""

    train: list[Document]
    held: list[Document]
    weights: dict[str, float] = field(default_factory=dict)
    """How often the documents of a source are drawn, 1 where none is given."""
    doubtful: int = 0
    """How many of those held out may have been trained on in an earlier sitting."""

    @cached_property
    def mixture(self) -> Mixture:
        """Which documents an epoch has."""
        return Mixture(self.train, self.weights)

    @property
    def answer_tokens(self) -> int:
        """Tokens that are learned from in all documents."""
        return sum(len(document.ids) - document.start for document in self.train)

    @property
    def answers(self) -> Iterator[array[int]]:
        """The answers that are learned from."""
        return (document.ids[document.start :] for document in self.train)

    @property
    def fingerprint(self) -> str:
        """Changes with any token of the data, and with what its weights are of."""
        digest = hashlib.sha256()
        for document in [*self.train, *self.held]:
            digest.update(document.start.to_bytes(4, "big") + document.ids.tobytes())
        if self.weights:
            digest.update(repr(self.mixture.parts).encode())
        return digest.hexdigest()

    @property
    def sources(self) -> dict[str, int]:
        """How many documents of each source are trained on."""
        return dict(Counter(document.source for document in self.train).most_common())


def how_answered(recipe: Recipe, model: Model) -> dict[str, Any]:
    """What the answers depend on, besides the prompts."""
    return {
        "engine": None if recipe.engine is None else "server",
        "target": model.pair.target,
        CHECKPOINT: None if recipe.engine else checkpoint_hash(model.pair.target) or None,
        "dtype": None if recipe.engine else precision(model.target)["dtype"],
        "quantize": None if recipe.engine else quantised(model.target),
        "thinking": model.thinking,
        "template": hashlib.sha256(repr(model.encode([{"role": "user", "content": "x"}])).encode()).hexdigest()[:16],
        "answer_tokens": recipe.answer_tokens,
        "temperature": recipe.temperature,
        "top_k": recipe.top_k,
        "top_p": recipe.top_p,
        "seed": recipe.seed if recipe.temperature else None,
    }


def answer_file(recipe: Recipe, model: Model, work: Path) -> AnswerFile:
    """The answers made so far. Raises DFlashError where they were made differently."""
    return AnswerFile(work / ANSWERS, how_answered(recipe, model))


def missing_answers(read: Read, answers: dict[str, list[int]]) -> list[Wanted]:
    """Prompts without an answer, in the corpus or among `answers`; each once."""
    known = answers.keys() | {document.key for document in read.documents}
    return list({each.key: each for each in read.wanted if each.key not in known}.values())


def answer_missing(read: Read, file: AnswerFile, recipe: Recipe, model: Model, report: Reporter, stop: Stop) -> None:
    """Let the target answer every prompt that has no answer yet. Raises KeyboardInterrupt where it was stopped."""
    missing = missing_answers(read, file.answers)
    if not missing:
        return
    begun, tokens, done = time.perf_counter(), 0, 0
    with report.stage("answers", len(missing)) as advance:

        def told(prompt_tokens: int, answer_tokens: int) -> None:
            nonlocal tokens, done
            tokens, done = tokens + prompt_tokens + answer_tokens, done + 1
            advance(done, f"{tokens / (time.perf_counter() - begun):.0f} tokens/s")
            stop.check()

        with closing(_made(missing, recipe, model, report, stop)) as made:
            file.add(made, told)
    rate = tokens / (time.perf_counter() - begun)
    report.tell(f"{len(missing)} answers made, {rate:.0f} tokens/s (prompts and answers)")


def _made(
    missing: list[Wanted], recipe: Recipe, model: Model, report: Reporter, stop: Stop
) -> Generator[tuple[Wanted, list[int], str]]:
    if recipe.engine is None:
        yield from answers(model, missing, recipe)
        return
    from dflash_cli.train.served import Served

    yield from Served(model, recipe, report).answers(missing, stop.check)


def collect(read: Read, answers: dict[str, list[int]], recipe: Recipe) -> Data:
    """Documents of the corpus and of the answers, each prompt once, with some held out."""
    made = (
        make_document(each.prompt_ids, answers[each.key], each.source, recipe.max_tokens)
        for each in read.wanted
        if each.key in answers
    )
    everything: Iterable[Document] = [*read.documents, *(document for document in made if document is not None)]
    if read.measured_on:
        held = without_repeats(read.measured_on, set())
        train = without_repeats(everything, {document.key for document in held})
        if not train:
            raise DFlashError("every prompt to train on is also in --eval-prompts; there is nothing left to learn from")
        return Data(train, held, recipe.source_weights)
    train, held = split(without_repeats(everything, set()), recipe.holdout, read.held_before)
    doubtful = sum(not all(document.key in keys for keys in read.held_before) for document in held)
    return Data(train, held, recipe.source_weights, doubtful)
