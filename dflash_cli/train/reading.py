"""The files of a recipe, line by line: checked, encoded, and what cannot be used told with its place."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from dflash_cli.errors import DFlashError, UsageError, nearest
from dflash_cli.train.corpus import Wanted
from dflash_cli.train.documents import (
    SHORTEST_ANSWER,
    Document,
    encoded,
    given_answer,
    longest,
    make_document,
    read_corpus,
)
from dflash_cli.train.prompts import BadLine, TrainingPrompt, read_prompts, refused
from dflash_cli.train.raw_text import as_beginning, check_template
from dflash_cli.train.report import Reporter
from dflash_cli.train.saved_chats import CHATS, SOURCE, SavedChats
from dflash_cli.train.sittings import read_sittings
from dflash_cli.train.source_kinds import is_this_machine
from dflash_cli.train.synthesis import SOURCE as WRITTEN_ITSELF
from dflash_cli.train.synthesis import PromptFile

if TYPE_CHECKING:
    from dflash_cli.model import Model
    from dflash_cli.train.recipe import Recipe

LISTED = 20  # bad lines told one by one
CONTEXT = "the target's context"


@dataclass
class Read:
    """What the files of a recipe hold: documents, prompts that want an answer, prompts to measure on, bad lines.

    `short`: answers with too little to learn from, told with their place. `held_before`: keys of the prompts that each
    sitting of the drafter it begins with held out.
    """

    documents: list[Document] = field(default_factory=list)
    wanted: list[Wanted] = field(default_factory=list)
    measured_on: list[Document] = field(default_factory=list)
    bad: list[str] = field(default_factory=list)
    short: list[str] = field(default_factory=list)
    held_before: Sequence[Collection[str]] = ()

    @property
    def sources(self) -> set[str]:
        """Names of all sources that are trained on."""
        return {each.source for each in self.documents} | {each.source for each in self.wanted}


def read_files(recipe: Recipe, model: Model, written: PromptFile, report: Reporter) -> Read:
    """All files and the prompts the target has written, checked and encoded; saved chats, as `written` lies.

    Raises DFlashError for bad lines, unless they may be skipped, and for a target that takes no messages; UsageError
    for a weight of no source, and for saved chats, also of an earlier run's file, where others would see them.
    """
    check_template(model)
    read = Read(held_before=_held_before(recipe))
    for entry in read_corpus(recipe.corpus, model):
        if isinstance(entry, BadLine):
            read.bad.append(entry.reason)
        else:
            _add_answered(read, *entry, longest(recipe, model))
    asked = chain(read_prompts(recipe.prompts, model.config.system), written.prompts(model, recipe.synthesize))
    to_measure = read_prompts(recipe.eval_prompts, model.config.system, measuring=True)
    read.bad += refused(asked, lambda prompt: _add_prompt(read, prompt, recipe, model))
    read.bad += refused(to_measure, lambda prompt: _add_measured(read, prompt, recipe, model))
    if recipe.from_sessions:
        _add_chats(read, SavedChats(written.path.with_name(CHATS)), recipe, model, report)
    _tell_bad(read, recipe, report)
    if read.short:
        report.tell(f"left out: {len(read.short)} answers with nothing to learn, such as {read.short[0]}")
    _check_weights(read, recipe)
    _check_private(read, recipe)
    return read


def _held_before(recipe: Recipe) -> list[set[str]]:
    """Of a drafter without a record nothing is known: one sitting that held out none of these prompts."""
    if recipe.warm_start is None:
        return []
    return [set(sitting.held) for sitting in read_sittings(Path(recipe.warm_start))] or [set()]


def _check_weights(read: Read, recipe: Recipe) -> None:
    known = sorted(read.sources | ({WRITTEN_ITSELF} if recipe.synthesize else set()))
    for name in recipe.source_weights:
        if name not in known:
            hint = nearest(name, known) or f"; there are {', '.join(known)}"
            raise UsageError(f"--weight: no prompt to train on comes from {name!r}{hint}")


def _check_private(read: Read, recipe: Recipe) -> None:
    if recipe.public and SOURCE in read.sources:
        raise UsageError(f"{SOURCE!r} and --public: a drafter may repeat your saved chats; leave one of them out")
    asks = recipe.engine is not None and not recipe.keep_answers and not is_this_machine(recipe.engine)
    if asks and any(each.source == SOURCE for each in read.wanted):
        raise UsageError(f"{SOURCE!r} would send your saved chats to another machine's --engine; leave one of them out")


def _add_answered(read: Read, name: str, ids: list[int], answer: list[int], source: str, most: int) -> None:
    if document := make_document(ids, answer, source, most):
        read.documents.append(document)
    else:
        read.short.append(f"{name}: {len(ids)} tokens of prompt and {len(answer)} of answer, cut at {most}")


def _add_prompt(read: Read, prompt: TrainingPrompt | BadLine, recipe: Recipe, model: Model) -> None:
    prompt = _usable(prompt, recipe, model)
    ids = encoded(model, prompt.messages, prompt.name)
    _check_length(ids, prompt.name, *min((recipe.max_tokens, "--max-tokens"), (model.max_len, CONTEXT)))
    if recipe.keep_answers:
        answer = given_answer(model, prompt)
        _add_answered(read, prompt.name, ids, answer, prompt.source, longest(recipe, model))
    else:
        read.wanted.append(Wanted(prompt.messages, ids, prompt.source))


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
