"""Which documents each step of a run learns from: it depends on the step's number alone."""

from __future__ import annotations

import math

from dflash_cli.train.data import Data
from dflash_cli.train.documents import Mixture
from dflash_cli.train.recipe import Recipe

LENGTHS = ("steps", "epochs")  # choices that say how long a run is, and nothing else


def count_steps(recipe: Recipe, data: Data) -> int:
    """Steps of a run: asked for, or so many that each document is used `epochs` times, weights aside."""
    return recipe.steps or math.ceil(data.mixture.size * recipe.epochs / recipe.batch)


def indices(step: int, recipe: Recipe, mixture: Mixture) -> list[tuple[int, int]]:
    """(times drawn before, index) of the documents of a step: epoch after epoch, each in an order of its own."""
    count = mixture.size
    places = range(step * recipe.batch, (step + 1) * recipe.batch)
    orders = {epoch: mixture.order(recipe.seed, epoch) for epoch in {place // count for place in places}}
    return [orders[place // count][place % count] for place in places]
