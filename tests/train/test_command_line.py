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


def test_a_quantised_target_is_said() -> None:
    """What it answers, and so what is learned, is another thing."""
    assert "--quantize int8" in command_line(Recipe(), Config(quantize="int8"), "x")


def test_folders_lose_their_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my model").mkdir()
    monkeypatch.chdir(tmp_path)
    for name in (str(tmp_path / "my model"), "my model", "./my model/"):
        assert without_place(name) == "my model"
    assert without_place("Qwen/Qwen3-4B@main") == "Qwen/Qwen3-4B@main"


@pytest.mark.parametrize(
    ("size", "local", "start"),
    [
        ("1", "1", "dflash"),
        ("4", "4", "torchrun --nproc-per-node=4 -m dflash_cli"),
        ("4", None, "torchrun --nproc-per-node=4 -m dflash_cli"),
        ("4", "0", "torchrun --nproc-per-node=4 -m dflash_cli"),
        ("4", "many", "torchrun --nproc-per-node=4 -m dflash_cli"),
        ("16", "8", "torchrun --nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=HOST:PORT --nproc-per-node=8"),
        ("3", "2", "torchrun --nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=HOST:PORT --nproc-per-node=2"),
    ],
)
def test_as_many_processes_on_as_many_machines(
    monkeypatch: pytest.MonkeyPatch, size: str, local: str | None, start: str
) -> None:
    monkeypatch.setenv("WORLD_SIZE", size)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    if local is not None:
        monkeypatch.setenv("LOCAL_WORLD_SIZE", local)
    line = command_line(Recipe(), Config(), "Qwen/Qwen3-4B")
    assert line.startswith(start)
    assert line.endswith("train-drafter --model Qwen/Qwen3-4B --out DIR")


@pytest.mark.parametrize("place", ["/home/ann/", "C:\\Users\\ann\\", "//ann/"])
def test_a_server_and_its_folders_are_not_told(place: str) -> None:
    line = command_line(Recipe(engine="http://ann:8000/v1", engine_model=f"{place}Qwen3-4B"), Config(), "x")
    assert line == "dflash train-drafter --model x --engine URL --engine-model Qwen3-4B --out DIR"
    assert "--engine-model Qwen/Qwen3-4B " in command_line(Recipe(engine_model="Qwen/Qwen3-4B"), Config(), "x")


def test_a_system_prompt_may_name_an_address() -> None:
    system = "/see https://example.org, then answer"
    assert f"--system '{system}' " in command_line(Recipe(), Config(system=system), "x")
