"""The plan: every stage with its size and time, the same whatever is there already, and nothing is written."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dflash_cli.errors import DFlashError
from dflash_cli.model import Model
from dflash_cli.train import plan as plan_module
from dflash_cli.train.corpus import Wanted
from dflash_cli.train.data import answer_file
from dflash_cli.train.plan import Plan, Stage, plan
from dflash_cli.train.reading import Read
from dflash_cli.train.recipe import Recipe
from dflash_cli.train.shape import config_dict
from tests.tiny import MASK_ID, make_target
from tests.train.lessons import RECIPE, documents, make_model

TIME = r", about [\d.]+ (s|min|h)"


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Model:
    monkeypatch.setattr(plan_module, "matmul_rate", lambda like: 1e7)  # slow enough for each stage to take seconds
    return make_model(tmp_path / "tokenizer", make_target())


def wanted(count: int) -> list[Wanted]:
    return [Wanted(({"role": "user", "content": str(i)},), [7, i], "sums") for i in range(count)]


def plan_of(recipe: Recipe, model: Model, num_steps: int = 200) -> Plan:
    return Plan(recipe, model, config_dict(recipe, model.target.config, MASK_ID), documents(6), 3, num_steps)


def test_every_stage_has_its_size_and_time(model: Model, tmp_path: Path) -> None:
    recipe = replace(RECIPE, synthesize=20, steps=250, cache_features=True, answer_tokens=24)
    lines = plan(recipe, model, Read(documents=documents(6), wanted=wanted(4)), tmp_path / "out" / "work", 20)
    for pattern in (
        "prompts to write: 20, 72 tokens each where none ends sooner" + TIME,
        "answers to make: 24, 24 tokens each where none ends sooner, 1,448 of prompts before them" + TIME,
        r"documents: [345], \d+ tokens, \d+ on average, about [\d.]+ blocks each",
        "features: cached, .* on disk" + TIME,
        r"training: 250 steps of 4 documents, muon 0.003, loss d-pace" + TIME,
        r"measuring: 3 times, [123] prompts, at most 16 tokens each" + TIME,
        "in all: " + TIME[2:],
    ):
        assert [line for line in lines if re.fullmatch(pattern, line)], (pattern, lines)
    assert not (tmp_path / "out").exists()


def test_the_total_is_the_sum_of_the_stages(model: Model) -> None:
    recipe = replace(RECIPE, answer_tokens=24)
    stages = plan_of(recipe, model).stages(5, wanted(4))
    assert [each.seconds == 0 for each in stages] == [False, False, True, True, False, False]
    more = plan_of(recipe, model).stages(10, wanted(4))
    assert more[0].seconds == pytest.approx(2 * (stages[0].seconds or 0))
    assert (more[1].seconds or 0) > (stages[1].seconds or 0)
    # A loss that compares with few ids is faster, and each measurement takes its time.
    faster = plan_of(replace(recipe, loss_vocabulary=64, eval_every=50), model).stages(0, [])
    slower = plan_of(replace(recipe, eval_every=100), model).stages(0, [])
    assert (faster[-2].seconds or 0) < (slower[-2].seconds or 0)
    assert faster[-1].seconds == pytest.approx(2 * (slower[-1].seconds or 0))


def test_a_servers_time_is_not_known(model: Model, tmp_path: Path) -> None:
    recipe = replace(RECIPE, engine="http://localhost:1/v1")
    lines = plan(recipe, model, Read(documents=documents(6), wanted=wanted(4)), tmp_path, 0)
    assert any(line.startswith("answers to make: 4") and line.endswith("by the server http://localhost:1/v1")
               for line in lines)  # fmt: skip
    assert any(re.fullmatch("in all: .*, besides what the server takes", line) for line in lines)
    assert Stage("x", None).line == Stage("x").line == "x"


def snapshot(folder: Path) -> dict[str, Any]:
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.rglob("*") if path.is_file()}


def test_the_files_of_a_run_at_work_stay_as_they_are(model: Model, tmp_path: Path) -> None:
    """Half a line is being written by it, and what several processes have made is not joined yet."""
    recipe, work = replace(RECIPE, answer_tokens=24), tmp_path / "work"
    made = [(each, [5, 6, 7], "stop") for each in wanted(4)]
    answer_file(recipe, model, work).add(made[:2], lambda *_: None)
    whole = work / "answers.jsonl"
    (work / "answers-1.jsonl").write_text(json.dumps({"key": made[2][0].key, "answer_ids": [5, 6]}) + '\n{"messa')
    whole.write_bytes(whole.read_bytes() + b'{"messages": [{"ro')
    (work / "answers.json").unlink()
    before = snapshot(work)
    lines = plan(recipe, model, Read(documents=documents(6), wanted=wanted(4)), work, 0)
    assert any(line.startswith("answers to make: 1, ") for line in lines)
    assert snapshot(work) == before


def test_answers_to_other_prompts_do_not_count(model: Model, tmp_path: Path) -> None:
    made = [(each, [5, 6, 7], "stop") for each in wanted(4)]
    answer_file(RECIPE, model, tmp_path).add(made[:2], lambda *_: None)
    asked = wanted(6)[3:]
    for read in (Read(wanted=asked), Read(wanted=asked[:1], measured_on=documents(2))):
        lines = plan(RECIPE, model, read, tmp_path, 0)
        assert any(line.startswith(f"answers to make: {len(read.wanted)}, ") for line in lines)
        assert any(line.startswith("documents: none yet") for line in lines)
    with pytest.raises(DFlashError, match="there are 1 documents to train on"):  # as the run would say
        plan(RECIPE, model, Read(wanted=wanted(1)), tmp_path, 0)


def test_prompts_to_write_are_weighed(model: Model, tmp_path: Path) -> None:
    recipe = replace(RECIPE, steps=None, batch=1, epochs=1, synthesize=8, weight=("self-synthesised=0.5", "sums=2"))
    lines = plan(recipe, model, Read(wanted=wanted(3)), tmp_path, 8)
    assert any(line.startswith("training: 10 steps") for line in lines)
