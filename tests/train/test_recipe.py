"""Choices: files of a recipe are relative to it, flags win, what a run may change when it goes on."""

from __future__ import annotations

import itertools
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from dflash_cli.errors import UsageError
from dflash_cli.train.optim import schedule
from dflash_cli.train.recipe import CHECK_PROMPTS, CHOICES, Recipe, for_check, make_recipe
from dflash_cli.train.shape import default_taps


def test_files_of_a_recipe_are_relative_to_it(tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text('prompts = ["a.jsonl", "/b.jsonl"]\nlr = 1\ncache_features = true\n')
    recipe = make_recipe(str(tmp_path / "r.toml"), {"lr": 0.5})
    assert recipe.prompts == (str(tmp_path / "a.jsonl"), "/b.jsonl")
    assert (recipe.lr, recipe.learning_rate, recipe.cache_features) == (0.5, 0.5, True)


def test_every_choice_has_a_flag_of_its_own() -> None:
    flags = [flag for choice in CHOICES.values() for flag in choice.flags]
    assert len(flags) == len(set(flags)) == len(fields(Recipe))
    assert all(flag.startswith("--") for flag in flags)


def test_what_may_change_when_a_run_goes_on() -> None:
    recipe = Recipe(prompts=("p",))
    assert replace(recipe, threads=2, eval_every=7).differences(recipe.as_dict()) == []
    assert replace(recipe, lr=0.1, batch=2).differences(recipe.as_dict()) == ["lr", "batch"]


@pytest.mark.parametrize(
    "given", [{}, {"corpus": ("c",), "keep_answers": True}, {"synthesize": 3, "keep_answers": True}]
)
def test_recipes_without_answers_to_learn_from_are_refused(given: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        make_recipe(None, given)


def test_gamma_is_of_the_losses_that_have_it() -> None:
    assert make_recipe(None, {"prompts": ("p",), "loss": "ce", "gamma": 3.0}).decay(8) == 3.0
    with pytest.raises(UsageError, match=r"--gamma does not go with --loss d-pace.*add --loss ce"):
        make_recipe(None, {"prompts": ("p",), "gamma": 3.0})


@pytest.mark.parametrize("wrong", [{"temperature": 0.7}, {"keep_answers": True}])
def test_a_check_needs_greedy_answers_and_few_prompts(wrong: dict[str, Any]) -> None:
    recipe = Recipe(prompts=("p",), synthesize=20_000)
    assert for_check(recipe) == replace(recipe, synthesize=CHECK_PROMPTS)
    assert for_check(replace(recipe, synthesize=3)).synthesize == 3
    (name,) = wrong
    with pytest.raises(UsageError, match=f"--check expects full blocks.*leave out --{name.replace('_', '-')}$"):
        for_check(replace(recipe, **wrong))


def test_the_rate_rises_then_falls_to_a_tenth() -> None:
    rates = [schedule(step, 100, 0.04) for step in range(101)]
    assert rates[:4] == [0.25, 0.5, 0.75, 1.0]
    assert rates[4] == 1.0
    assert all(later <= earlier for earlier, later in itertools.pairwise(rates[4:]))
    assert rates[100] == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("num_layers", "taps"),
    [
        (24, (1, 6, 11, 16, 21)),
        (28, (1, 7, 13, 19, 25)),
        (36, (1, 9, 17, 25, 33)),
        (40, (1, 10, 19, 28, 37)),
        (64, (1, 16, 31, 46, 61)),
        (5, (1, 2)),
        (2, (1,)),
    ],
)
def test_taps_are_the_published_ones(num_layers: int, taps: tuple[int, ...]) -> None:
    assert default_taps(num_layers) == taps
