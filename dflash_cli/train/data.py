"""From the files of a recipe to documents: read, answered by the target where need be, checked, and held out."""

from __future__ import annotations

import hashlib
import time
from array import array
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflash_cli.errors import DFlashError, UsageError, nearest
from dflash_cli.train.corpus import AnswerFile, Wanted, answers
from dflash_cli.train.documents import (
    SHORTEST_ANSWER,
    Document,
    Mixture,
    encoded,
    given_answer,
    longest,
    make_document,
    read_corpus,
    split,
    without_repeats,
)
from dflash_cli.train.precision import precision, quantised
from dflash_cli.train.prompts import BadLine, TrainingPrompt, read_prompts, refused
from dflash_cli.train.raw_text import as_beginning, check_template
from dflash_cli.train.report import Reporter
from dflash_cli.train.saved_chats import CHATS, SOURCE, SavedChats
from dflash_cli.train.signals import Stop
from dflash_cli.train.synthesis import PromptFile

if TYPE_CHECKING:
    from dflash_cli.model import Model
    from dflash_cli.train.recipe import Recipe

LISTED = 20  # bad lines told one by one
CONTEXT = "the target's context"
ANSWERS, WRITTEN = "answers.jsonl", "prompts.jsonl"


@dataclass
class Read:
    """What the files of a recipe hold: documents, prompts that want an answer, prompts to measure on, bad lines."""

    documents: list[Document] = field(default_factory=list)
    wanted: list[Wanted] = field(default_factory=list)
    measured_on: list[Document] = field(default_factory=list)
    bad: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Data:
    """What is trained on and what is held out."""

    train: list[Document]
    held: list[Document]
    weights: dict[str, float] = field(default_factory=dict)
    """How often the documents of a source are drawn, 1 where none is given."""

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


def read_files(recipe: Recipe, model: Model, written: PromptFile, report: Reporter) -> Read:
    """All files and the prompts the target has written, checked and encoded; saved chats, as `written` lies.

    Raises DFlashError for bad lines, unless they may be skipped, and for a target that takes no messages; UsageError
    for a weight of no source, and for saved chats, also of an earlier run's file, in what everyone will see.
    """
    check_template(model)
    read = Read()
    for entry in read_corpus(recipe.corpus, model):
        if isinstance(entry, BadLine):
            read.bad.append(entry.reason)
        elif document := make_document(*entry, longest(recipe, model)):
            read.documents.append(document)
    asked = chain(read_prompts(recipe.prompts, model.config.system), written.prompts(model, recipe.synthesize))
    to_measure = read_prompts(recipe.eval_prompts, model.config.system)
    read.bad += refused(asked, lambda prompt: _add_prompt(read, prompt, recipe, model))
    read.bad += refused(to_measure, lambda prompt: _add_measured(read, prompt, recipe, model))
    if recipe.from_sessions:
        _add_chats(read, SavedChats(written.path.with_name(CHATS)), recipe, model, report)
    _tell_bad(read, recipe, report)
    _check_weights(read, recipe)
    if recipe.public and SOURCE in _sources(read):
        raise UsageError(f"{SOURCE!r} and --public: a drafter may repeat your saved chats; leave one of them out")
    return read


def _sources(read: Read) -> set[str]:
    return {each.source for each in read.documents} | {each.source for each in read.wanted}


def _check_weights(read: Read, recipe: Recipe) -> None:
    known = sorted(_sources(read))
    for name in recipe.source_weights:
        if name not in known:
            hint = nearest(name, known) or f"; there are {', '.join(known)}"
            raise UsageError(f"--weight: no prompt to train on comes from {name!r}{hint}")


def _add_prompt(read: Read, prompt: TrainingPrompt | BadLine, recipe: Recipe, model: Model) -> None:
    prompt = _usable(prompt, recipe, model)
    ids = encoded(model, prompt.messages, prompt.name)
    _check_length(ids, prompt.name, *min((recipe.max_tokens, "--max-tokens"), (model.max_len, CONTEXT)))
    if not recipe.keep_answers:
        read.wanted.append(Wanted(prompt.messages, ids, prompt.source))
    elif document := make_document(ids, given_answer(model, prompt), prompt.source, longest(recipe, model)):
        read.documents.append(document)


def _add_measured(read: Read, prompt: TrainingPrompt | BadLine, recipe: Recipe, model: Model) -> None:
    prompt = _usable(prompt, recipe, model)
    ids = encoded(model, prompt.messages, prompt.name)
    _check_length(ids, prompt.name, model.max_len, CONTEXT)
    read.measured_on.append(Document(array("i", ids), len(ids), prompt.source))


def _usable(prompt: TrainingPrompt | BadLine, recipe: Recipe, model: Model) -> TrainingPrompt:
    if isinstance(prompt, BadLine):
        raise DFlashError(prompt.reason)
    return as_beginning(prompt, recipe, model) if prompt.is_text and model.config.raw else prompt


def _add_chats(read: Read, chats: SavedChats, recipe: Recipe, model: Model, report: Reporter) -> None:
    """What cannot be used is told and left out: a chat is no file that could be corrected."""
    if unused := refused(chats.prompts(model), lambda prompt: _add_prompt(read, prompt, recipe, model)):
        report.tell(f"left out: {len(unused)} turns of saved chats, such as {unused[0]}")


def _check_length(ids: list[int], name: str, most: int, limit: str) -> None:
    if len(ids) + SHORTEST_ANSWER > most:
        raise DFlashError(f"{name}: the prompt has {len(ids)} tokens and {limit} is {most}")


def _tell_bad(read: Read, recipe: Recipe, report: Reporter) -> None:
    if read.bad and not recipe.skip_bad:
        more = f" (and {len(read.bad) - 1} more)" if len(read.bad) > 1 else ""
        raise DFlashError(f"{read.bad[0]}{more}. Correct the file, or pass --skip-bad to leave such lines out")
    for reason in read.bad[:LISTED]:
        report.tell(f"left out: {reason}")
    if len(read.bad) > LISTED:
        report.tell(f"left out: {len(read.bad) - LISTED} more lines")


def how_answered(recipe: Recipe, model: Model) -> dict[str, Any]:
    """What the answers depend on, besides the prompts."""
    return {
        "engine": None if recipe.engine is None else "server",
        "target": model.pair.target,
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
    parts = split(without_repeats(everything, set()), recipe.holdout, recipe.seed)
    return Data(*parts, recipe.source_weights)
