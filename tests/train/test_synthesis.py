"""Prompts that the target writes: from the user's place in the template, each once, as many as asked for."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dflash_cli.errors import DFlashError
from dflash_cli.model import Model
from dflash_cli.train import synthesis
from dflash_cli.train.report import Reporter
from dflash_cli.train.signals import Stop
from dflash_cli.train.synthesis import PromptFile, user_prefix
from tests.byte_tokenizer import IM_END, IM_START
from tests.tiny import make_target
from tests.train.lessons import RECIPE, make_model

QUIET = Reporter(quiet=True)
WANTED = replace(RECIPE, synthesize=5, rows=3)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Model:
    monkeypatch.setattr(synthesis, "SHORTEST", 1)
    target = make_target(seed=2)
    target.lm_head.weight.data[IM_END] *= 4  # it ends its turns
    return make_model(tmp_path / "tokenizer", target)


def write(path: Path, model: Model, count: int) -> list[str]:
    file = PromptFile(path)
    file.write(model, replace(WANTED, synthesize=count), QUIET, Stop())
    return file.texts


def test_the_users_place_comes_from_the_template(model: Model) -> None:
    assert user_prefix(model) == [IM_START, *b"user\n"]
    with pytest.raises(DFlashError, match="needs a chat template"):
        user_prefix(model.with_config(raw=True))


def test_prompts_are_different_and_can_be_used(tmp_path: Path, model: Model) -> None:
    texts = write(tmp_path / "p.jsonl", model, 5)
    assert len(set(texts)) == 5
    found = list(PromptFile(tmp_path / "p.jsonl").prompts(model, 3))
    assert [prompt.messages[-1]["content"] for prompt in found] == texts[:3]
    assert {prompt.source for prompt in found} == {"self-synthesised"}


def test_writing_goes_on_after_a_cut_line_with_new_draws(tmp_path: Path, model: Model) -> None:
    path = tmp_path / "p.jsonl"
    first = write(path, model, 4)
    path.write_text(path.read_text() + '{"prompt": "cut o')
    assert PromptFile(path).texts == first
    more = write(path, model, 7)
    assert more[:4] == first
    assert len(set(more)) == 7
    numbers = [json.loads(line)["number"] for line in path.read_text().splitlines()]
    assert len(set(numbers)) == 7


def test_a_target_that_repeats_itself_is_told_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, model: Model
) -> None:
    monkeypatch.setattr(synthesis, "SHORTEST", 1000)
    PromptFile(tmp_path / "p.jsonl").write(model, WANTED, Reporter(), Stop())
    assert "wrote 0 different prompts, fewer than 5" in capsys.readouterr().err
