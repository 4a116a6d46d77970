"""Answers made here: the longest prompts first, each answered as it would be alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dflash_cli.errors import DFlashError
from dflash_cli.train.corpus import AnswerFile, Wanted, answers
from tests.tiny import make_target
from tests.train.lessons import RECIPE, make_model


def test_long_prompts_come_first_and_change_no_answer(tmp_path: Path) -> None:
    model = make_model(tmp_path / "tokenizer", make_target(seed=2))
    messages = [({"role": "user", "content": "word " * count},) for count in (2, 9, 1, 5)]
    wanted = [Wanted(each, model.encode(each), "s") for each in messages]
    found = {}
    for rows in (1, 3):
        made = list(answers(model, wanted, replace(RECIPE, answer_tokens=6, rows=rows)))
        found[rows] = {each.key: ids for each, ids, _ in made}
        if rows == 1:
            lengths = [len(each.prompt_ids) for each, _, _ in made]
            assert lengths == sorted(lengths, reverse=True)
    assert found[1] == found[3]
    assert len(found[1]) == 4


@pytest.mark.parametrize("damage", [b"", b'{"seed": ', b"[3]", b"null", b"\xff"])
def test_a_damaged_file_beside_the_answers_is_named(tmp_path: Path, damage: bytes) -> None:
    AnswerFile(tmp_path / "answers.jsonl", {"seed": 3})
    AnswerFile(tmp_path / "answers.jsonl", {"seed": 3})
    (tmp_path / "answers.json").write_bytes(damage)
    with pytest.raises(DFlashError, match=r"answers\.json is damaged; remove it and answers\.jsonl"):
        AnswerFile(tmp_path / "answers.jsonl", {"seed": 3})
