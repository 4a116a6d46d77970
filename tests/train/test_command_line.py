"""The command in a model card makes the same drafter again, and tells nothing of the machine."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dflash_cli.config import Config
from dflash_cli.train import command as command_module
from dflash_cli.train.command import train_command
from dflash_cli.train.command_line import command_line, without_place
from dflash_cli.train.recipe import Recipe

RECIPE = Recipe(
    prompts=("/home/ann/my prompts.jsonl", "b.jsonl"), taps=(1, 3), lr=0.01, skip_bad=True, push_to_hub="ann/x"
)
CONFIG = Config(model="smollm2-135m", draft="none", dtype="float32", system="it's $HOME", raw=True, quiet=True)


def test_the_command_of_a_card() -> None:
    assert command_line(RECIPE, CONFIG, "embedded:smollm2-135m") == (
        "dflash train-drafter --model smollm2-135m --dtype float32 --system 'it'\"'\"'s $HOME' --raw "
        "--prompts 'my prompts.jsonl' --prompts b.jsonl --skip-bad --taps 1,3 --lr 0.01 --push-to-hub ann/x --out DIR"
    )


def test_typed_again_it_is_the_same_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[Any, Any]] = []

    class Recorded:
        def __init__(self, recipe: Recipe, config: Config, *_: object) -> None:
            made.append((recipe, config))

        def run(self, **_: object) -> None: ...

    monkeypatch.setattr(command_module, "Run", Recorded)
    line = command_line(RECIPE, CONFIG, "x")
    result = CliRunner().invoke(train_command, shlex.split(line)[2:], catch_exceptions=False)
    assert result.exit_code == 0
    ((recipe, config),) = made
    assert recipe.as_dict() == RECIPE.as_dict() | {"prompts": ["my prompts.jsonl", "b.jsonl"]}
    assert (config.model, config.dtype, config.system, config.raw) == ("smollm2-135m", "float32", "it's $HOME", True)


def test_folders_lose_their_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my model").mkdir()
    monkeypatch.chdir(tmp_path)
    for name in (str(tmp_path / "my model"), "my model", "./my model/"):
        assert without_place(name) == "my model"
    assert without_place("Qwen/Qwen3-4B@main") == "Qwen/Qwen3-4B@main"
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert command_line(Recipe(), Config(), "Qwen/Qwen3-4B").startswith(
        "torchrun --nproc-per-node=4 -m dflash_cli train-drafter --model Qwen/Qwen3-4B --out"
    )
