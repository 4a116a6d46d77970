"""What one process and two learn alike in `test_ranks.py`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dflash_cli.train.corpus import Wanted
from dflash_cli.train.data import Data, Read
from dflash_cli.train.ranks import Ranks
from dflash_cli.train.recipe import Recipe
from dflash_cli.train.report import Reporter
from dflash_cli.train.shape import config_dict, make_drafter
from dflash_cli.train.trainer import Trainer
from tests.tiny import MASK_ID, make_target
from tests.train.lessons import RECIPE, documents, make_model

SHORT = replace(RECIPE, steps=8, eval_every=4, save_every=3)
LESSONS = {
    # What Muon rounds to bfloat16 moves a loss by up to 6e-6 at its own rate, too near to 1e-5 for every machine.
    "muon": replace(SHORT, lr=1e-3),
    "adamw": replace(SHORT, optimizer="adamw", loss="d-pace", ema=0.9),
    "random": replace(SHORT, optimizer="adamw", masking="random", loss="kl", cache_features=True),
}
ANSWERED = replace(RECIPE, answer_tokens=6, rows=3)


def make_trainer(folder: Path, recipe: Recipe = SHORT, ranks: Ranks | None = None, seed: int = 1) -> Trainer:
    """A run on random documents, as one of `ranks`, that goes on where its folder says."""
    target = make_target(seed=5)
    model = make_model(folder / f"tokenizer-{ranks.rank if ranks else 0}", target)
    raw = config_dict(recipe, target.config, MASK_ID)
    drafter = make_drafter(recipe, raw, target, folder)
    data = Data(documents(11, seed=seed), documents(3, seed=2))
    trainer = Trainer(recipe, model, drafter, raw, data, folder / "out", Reporter(quiet=True), ranks)
    trainer.resume()
    return trainer


def wanted(count: int = 9) -> Read:
    """Prompts of different lengths that wait for answers."""
    read = Read()
    read.wanted = [
        Wanted(({"role": "user", "content": str(i)},), list(range(10, 13 + 2 * i)), "s") for i in range(count)
    ]
    return read
