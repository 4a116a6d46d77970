"""What the answers and the data depend on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dflash_cli.errors import DFlashError
from dflash_cli.model import Model
from dflash_cli.train.data import Data, answer_file, how_answered
from dflash_cli.train.documents import Document
from tests.tiny import make_target
from tests.train.lessons import RECIPE, documents, make_model


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return make_model(tmp_path / "tokenizer", make_target())  # its context holds 256 tokens, a byte each


def test_answers_of_a_quantised_target_are_others(model: Model, tmp_path: Path) -> None:
    served = replace(RECIPE, engine="http://localhost:1/v1")
    old = {key: value for key, value in how_answered(RECIPE, model).items() if key != "quantize"}
    sidecar = tmp_path / "answers.json"
    sidecar.write_text(json.dumps(old))
    answer_file(RECIPE, model, tmp_path)  # from before there was the choice
    model.target.quantize = "int8"
    assert how_answered(served, model)["quantize"] is None
    with pytest.raises(DFlashError, match="made with quantize None, now it is 'int8'"):
        answer_file(RECIPE, model, tmp_path)
    sidecar.unlink()
    answer_file(RECIPE, model, tmp_path).add_lines([])
    model.target.quantize = "none"
    with pytest.raises(DFlashError, match="made with quantize 'int8', now it is None"):
        answer_file(RECIPE, model, tmp_path)


def test_answers_of_other_weights_are_others(model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def made_with(checkpoint: str) -> None:
        monkeypatch.setattr("dflash_cli.train.data.checkpoint_hash", lambda _source: checkpoint)
        answer_file(RECIPE, model, tmp_path).add_lines([])

    made_with("aaa")
    made_with("aaa")
    made_with("")  # gone from the disk
    with pytest.raises(DFlashError, match="made with checkpoint 'aaa', now it is 'bbb'"):
        made_with("bbb")
    old = json.loads((tmp_path / "answers.json").read_text())
    del old["checkpoint"]
    (tmp_path / "answers.json").write_text(json.dumps(old))
    made_with("bbb")
    with pytest.raises(DFlashError, match="made with checkpoint 'bbb', now it is 'ccc'"):
        made_with("ccc")
    assert how_answered(replace(RECIPE, engine="http://localhost:1/v1"), model)["checkpoint"] is None


def test_sources_are_of_the_data_where_they_are_weighed() -> None:
    docs, held = documents(6), documents(2, seed=9)
    renamed = [Document(each.ids, each.start, "s0") for each in docs]
    assert Data(docs, held).fingerprint == Data(renamed, held).fingerprint
    weights = {"s0": 2.0}
    assert Data(docs, held, weights).fingerprint != Data(renamed, held, weights).fingerprint
    assert Data(docs, held, weights).fingerprint == Data(documents(6), held, dict(weights)).fingerprint
