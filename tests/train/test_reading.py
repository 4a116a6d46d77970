"""From files to what is read: what does not fit or cannot be encoded is a bad line, with its place."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dflash_cli.errors import DFlashError
from dflash_cli.model import Model
from dflash_cli.train.reading import Read, read_files
from dflash_cli.train.recipe import Recipe
from dflash_cli.train.report import Reporter
from dflash_cli.train.synthesis import PromptFile
from tests.tiny import make_target
from tests.train.lessons import RECIPE, make_model

FILES = replace(RECIPE, prompts=(), skip_bad=True)
BROKEN = "\ud800"  # half of a character, which JSON can say and no tokenizer takes


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return make_model(tmp_path / "tokenizer", make_target())  # its context holds 256 tokens, a byte each


def read(model: Model, recipe: Recipe, folder: Path, report: Reporter | None = None) -> Read:
    return read_files(recipe, model, PromptFile(folder / "written.jsonl"), report or Reporter(quiet=True))


def write(path: Path, entries: Sequence[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return str(path)


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


@pytest.mark.parametrize(("max_tokens", "limit"), [(1024, "the target's context is 256"), (100, "--max-tokens is 100")])
def test_a_prompt_must_leave_room_in_the_smaller_limit(
    model: Model, tmp_path: Path, max_tokens: int, limit: str
) -> None:
    file = write(tmp_path / "p.jsonl", [{"prompt": "short"}, {"prompt": "x" * 260}])
    found = read(model, replace(FILES, prompts=(file,), max_tokens=max_tokens), tmp_path)
    assert len(found.wanted) == 1
    (reason,) = found.bad
    assert reason.startswith(f"{file} line 2: the prompt has ")
    assert reason.endswith(f"tokens and {limit}")


def test_prompts_to_measure_on_must_fit_the_context(model: Model, tmp_path: Path) -> None:
    """And nothing else: they are not cut to what is learned from."""
    entries = [{"prompt": "x" * 260}, {"prompt": "y" * 120}, {"prompt": BROKEN}, {"prompt": ""}]
    recipe = replace(FILES, eval_prompts=(write(tmp_path / "e.jsonl", entries),), max_tokens=100)
    found = read(model, recipe, tmp_path)
    assert len(found.measured_on) == 1
    assert [reason.partition("e.jsonl ")[2][:6] for reason in found.bad] == ["line 1", "line 3", "line 4"]
    assert "the target's context is 256" in found.bad[0]
    with pytest.raises(DFlashError, match=r"e\.jsonl line 1: .*\(and 2 more\)\. Correct the file, or pass --skip-bad"):
        read(model, replace(recipe, skip_bad=False), tmp_path)


def test_given_answers_are_cut_to_the_context(model: Model, tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", [{"messages": user("x"), "answer_ids": [7] * 400}])
    prompts = write(tmp_path / "p.jsonl", [{"prompt": "y", "answer": "z" * 400}])
    recipe = replace(FILES, corpus=(corpus,), prompts=(prompts,), keep_answers=True, max_tokens=1024)
    assert [len(each.ids) for each in read(model, recipe, tmp_path).documents] == [256, 256]


@pytest.mark.parametrize("raw", [False, True])
def test_text_that_cannot_be_encoded_is_named(model: Model, tmp_path: Path, raw: bool) -> None:
    model = model.with_config(raw=raw)
    corpus = write(tmp_path / "c.jsonl", [{"messages": user(BROKEN), "answer_ids": [7, 7]}])
    prompts = write(tmp_path / "p.jsonl", [{"prompt": BROKEN, "answer": "x"}, {"prompt": "x", "answer": BROKEN}])
    found = read(model, replace(FILES, corpus=(corpus,), prompts=(prompts,), keep_answers=True), tmp_path)
    places = [f"{corpus} line 1", f"{prompts} line 1", f"{prompts} line 2"]
    assert [reason.partition(": ")[0] for reason in found.bad] == places
    assert all("lone surrogate" in reason for reason in found.bad)


def test_answers_with_nothing_to_learn_are_told(
    model: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are no mistake of the file: an earlier run's answers may be of one token, or its limit was higher."""
    entries = [{"messages": user(text), "answer_ids": ids} for text, ids in (("x", [7, 7]), ("y" * 90, [7] * 5))]
    corpus = write(tmp_path / "c.jsonl", [*entries, {"messages": user("z"), "answer_ids": [7]}])
    prompts = write(tmp_path / "p.jsonl", [{"prompt": "y", "answer": "a"}, {"prompt": "z", "answer": "ab"}])
    recipe = replace(FILES, corpus=(corpus,), prompts=(prompts,), keep_answers=True, skip_bad=False, max_tokens=80)
    found = read(model, recipe, tmp_path, Reporter())
    assert len(found.documents) == 3
    told = capsys.readouterr().err
    assert f"left out: 2 answers with nothing to learn, such as {corpus} line 2: " in told
    assert "of prompt and 5 of answer, cut at 80" in told


@pytest.mark.parametrize("name", ["humaneval", "mt-bench", "mbpp"])
def test_sets_that_drafters_are_judged_on_are_for_measuring(model: Model, tmp_path: Path, name: str) -> None:
    file = write(tmp_path / f"{name}.jsonl", [{"prompt": "x"}])
    text = tmp_path / f"{name}.txt"
    text.write_text("One.")
    found = read(model, replace(FILES, eval_prompts=(file, str(text))), tmp_path)
    assert [each.source for each in found.measured_on] == [name, name]
    assert found.bad == []
    with pytest.raises(DFlashError, match="never train on it"):
        read(model, replace(FILES, prompts=(file,), skip_bad=False), tmp_path)
