"""Answers made by several processes: each adds to a part of its own, and the first joins the parts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dflash_cli.train.corpus import AnswerFile
from dflash_cli.train.data import ANSWERS, answer_file, answer_missing, how_answered, missing_answers
from dflash_cli.train.ranks import Ranks
from dflash_cli.train.reading import Read
from dflash_cli.train.report import Reporter
from dflash_cli.train.signals import Stop

if TYPE_CHECKING:
    from dflash_cli.model import Model
    from dflash_cli.train.recipe import Recipe


PART = re.compile(rf"{Path(ANSWERS).stem}-[0-9]+\.jsonl")


def answer_together(
    read: Read, recipe: Recipe, model: Model, work: Path, report: Reporter, stop: Stop, ranks: Ranks
) -> dict[str, list[int]]:
    """Let the target answer what has no answer yet; all answers. Raises as `AnswerFile` and `answer_missing` do.

    What an interrupted run left in parts, of however many processes, is joined first.
    """
    if ranks.first:
        join_parts(recipe, model, work)
    ranks.meet(stop)
    answers = answer_file(recipe, model, work)
    if ranks.alone:
        answer_missing(read, answers, recipe, model, report, stop)
        return answers.answers
    missing = missing_answers(read, answers.answers)
    if missing:
        part = AnswerFile(work / _part(str(ranks.rank)), how_answered(recipe, model))
        mine = [missing[i] for i in ranks.share([len(each.prompt_ids) + recipe.answer_tokens for each in missing])]
        answer_missing(replace(read, wanted=mine), part, recipe, model, report, stop)
        ranks.meet(stop)
        if ranks.first:
            join_parts(recipe, model, work)
            report.tell(f"{len(missing)} answers made by {ranks.size} processes in all")
        ranks.meet(stop)
    return answer_file(recipe, model, work).answers


def join_parts(recipe: Recipe, model: Model, work: Path) -> None:
    """Move the lines of all parts to the whole file. Raises DFlashError where it cannot be written; nothing is lost."""
    whole = answer_file(recipe, model, work)
    for part in parts(recipe, model, work):
        whole.add_lines(line for line in part.lines() if json.loads(line)["key"] not in whole.answers)
        whole.answers.update(part.answers)
        part.path.unlink()
        part.path.with_suffix(".json").unlink(missing_ok=True)


def parts(recipe: Recipe, model: Model, work: Path) -> Iterator[AnswerFile]:
    """What each process has added to its own file and is not joined yet. Raises DFlashError as `AnswerFile` does."""
    for path in sorted(work.glob(_part("*"))):
        if PART.fullmatch(path.name):  # a copy that somebody keeps beside them is not joined, and not deleted
            yield AnswerFile(path, how_answered(recipe, model))


def _part(name: str) -> str:
    return f"{Path(ANSWERS).stem}-{name}.jsonl"
