"""One of two processes for `test_ranks.py`: `python -m tests.train.ranks_job FOLDER`, with torchrun's environment.

What it finds goes to FOLDER/found-RANK.json, one scenario after the other, since a process takes seconds to start.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from dflash_cli.errors import DFlashError
from dflash_cli.train.launch import join, read_place
from dflash_cli.train.ranks import Ranks
from dflash_cli.train.report import Reporter
from dflash_cli.train.shared_answers import answer_together
from dflash_cli.train.signals import Stop
from tests.tiny import make_target
from tests.train.lessons import make_model
from tests.train.ranks_lessons import ANSWERED, LESSONS, make_trainer, wanted

STOPPED_AT, LOST_AT = 3, 2


def lessons(ranks: Ranks, folder: Path) -> dict[str, Any]:
    """Every way to learn, and what each process then holds."""
    found = {}
    for name, recipe in LESSONS.items():
        trainer = make_trainer(folder / name, recipe, ranks)
        if recipe.cache_features:
            trainer.cache_features(Stop())
        trainer.run(lambda: False)
        found[name] = sum(float(each.double().sum()) for each in trainer.weights().values())
    return found


def stopped(ranks: Ranks, folder: Path) -> int:
    """A signal comes to the second process alone."""
    trainer = make_trainer(folder / "stopped", LESSONS["adamw"], ranks)
    try:
        trainer.run(lambda: ranks.rank == 1 and trainer.state.step == STOPPED_AT)
    except KeyboardInterrupt:
        return trainer.state.step
    return -1


def resumed(ranks: Ranks, folder: Path) -> int:
    """A run that one process began."""
    trainer = make_trainer(folder / "begun", LESSONS["adamw"], ranks)
    begun = trainer.state.step
    trainer.run(lambda: False)
    return begun


def diverged(ranks: Ranks, folder: Path) -> str:
    """Features of one process are no numbers."""
    trainer = make_trainer(folder / "diverged", LESSONS["muon"], ranks)
    good = trainer.read
    factor = torch.nan if ranks.rank == 1 else 1.0
    trainer.read = lambda chosen: [each._replace(taps=each.taps * factor) for each in good(chosen)]
    return _told(lambda: trainer.run(lambda: False))


def other_data(ranks: Ranks, folder: Path) -> str:
    """One process reads something else."""
    trainer = make_trainer(folder / "other", LESSONS["muon"], ranks, seed=ranks.rank + 1)
    return _told(lambda: trainer.run(lambda: False))


def answers(ranks: Ranks, folder: Path) -> dict[str, list[int]]:
    """Of the target, to prompts."""
    target = make_model(folder / f"answering-{ranks.rank}", make_target(seed=5))
    read = wanted()
    return answer_together(read, ANSWERED, target, folder / "answers", Reporter(quiet=True), Stop(), ranks)


def lost(ranks: Ranks, folder: Path) -> str:
    """The second process dies in the middle of a run."""
    trainer = make_trainer(folder / "lost", LESSONS["muon"], ranks)

    def die() -> bool:
        if ranks.rank == 1 and trainer.state.step == LOST_AT:
            os._exit(9)
        return False

    return _told(lambda: trainer.run(die))


def _told(act: Callable[[], None]) -> str:
    try:
        act()
    except DFlashError as error:
        return str(error)
    return ""


def main(folder: Path) -> None:
    """All scenarios; the last ends one process."""
    place = read_place(os.environ)
    assert place is not None
    ranks = join(place, "cpu")
    found: dict[str, Any] = {}
    for scenario in (lessons, stopped, resumed, diverged, other_data, answers, lost):
        found[scenario.__name__] = scenario(ranks, folder)
        (folder / f"found-{place.rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    os._exit(0)  # there is nobody left to say goodbye to
