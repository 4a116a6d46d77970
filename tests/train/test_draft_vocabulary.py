"""Which ids are drafted: counted in the answers, filled up, shipped beside the weights, and measured as shipped."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backends import DRAFT_VOCABULARY
from backends.draft_vocabulary import read_draft_ids
from backends.drafter import Drafter
from dflash_cli.errors import DFlashError
from dflash_cli.train import trainer as trainer_module
from dflash_cli.train.draft_vocabulary import index_drafter, most_frequent, write_index
from tests.tiny import VOCAB, make_target
from tests.train.lessons import make_model
from tests.train.test_trainer import SHORT, make_trainer, never

IDS = st.integers(0, 19)


@settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(answer=st.lists(IDS, max_size=30), size=st.integers(1, 25), always=st.sets(IDS, max_size=3))
def test_the_most_frequent_ids_are_taken(answer: list[int], size: int, always: set[int]) -> None:
    counts = Counter(answer)
    ids = most_frequent([answer[:9], answer[9:]], size, 20, always)
    assert ids == sorted(set(ids))
    assert len(ids) == min(size, 20)
    if size >= len(always):
        assert always <= set(ids)
    left_out = set(range(20)) - set(ids)
    taken = set(ids) - always
    if taken and left_out:
        assert max((counts[each], -each) for each in left_out) < min((counts[each], -each) for each in taken)


def test_no_index_takes_away_an_old_one(tmp_path: Path) -> None:
    write_index(tmp_path, [5, 3], VOCAB)
    assert (tmp_path / DRAFT_VOCABULARY).stat().st_mode & 0o777 == 0o600
    for _ in range(2):
        write_index(tmp_path, None, VOCAB)
        assert list(tmp_path.iterdir()) == []


def test_training_ships_the_index_and_measures_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[Drafter] = []
    real = trainer_module.measure_together

    def measure(model: object, drafter: Drafter, *rest: object) -> object:
        measured.append(drafter)
        return real(model, drafter, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(trainer_module, "measure_together", measure)
    trainer = make_trainer(tmp_path, replace(SHORT, draft_vocabulary=40, steps=1, eval_tokens=4))
    trainer.run(never)
    ids = read_draft_ids(tmp_path / "out", VOCAB)
    assert ids is not None
    answers = [document.ids[document.start :] for document in trainer.data.train]
    assert ids.tolist() == most_frequent(answers, 40, VOCAB, trainer.model.codec.stop_ids)
    assert trainer.model.codec.stop_ids <= set(ids.tolist())
    assert measured
    assert all(each.head is not None and each.head.ids.tolist() == ids.tolist() for each in measured)
    assert "| draft_vocabulary | 40 |" in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.parametrize("size", [None, VOCAB])
def test_the_whole_vocabulary_needs_no_index(tmp_path: Path, size: int | None) -> None:
    assert make_trainer(tmp_path, replace(SHORT, draft_vocabulary=size)).shipping.draft_ids is None


def test_a_drafter_of_before_gets_an_index(tmp_path: Path) -> None:
    model = make_model(tmp_path / "tokenizer", make_target())
    lines = [{"messages": [{"role": "user", "content": "x"}], "answer_ids": ids} for ids in ([90, 91, 90], [90, 200])]
    corpus = tmp_path / "answers.jsonl"
    corpus.write_text("".join(json.dumps(line) + "\n" for line in lines))
    stops = sorted(model.codec.stop_ids)
    ids = index_drafter(tmp_path, model, [str(corpus)], len(stops) + 4)
    found = read_draft_ids(tmp_path, VOCAB)
    assert found is not None
    assert ids == found.tolist() == sorted({*stops, 90, 91, 200, 0})
    corpus.write_text(json.dumps(lines[0] | {"answer_ids": [VOCAB]}) + "\n")
    with pytest.raises(DFlashError, match="answer_ids is no list of token ids below"):
        index_drafter(tmp_path, model, [str(corpus)], 9)
