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


def made(key: int) -> tuple[Wanted, list[int], str]:
    return Wanted(({"role": "user", "content": str(key)},), [key, 1], "s"), [key, 2], "stop"


def add(path: Path, *keys: int) -> dict[str, list[int]]:
    """The answers that a new process finds after these were added."""
    told: list[tuple[int, int]] = []
    AnswerFile(path, {"seed": 3}).add(map(made, keys), lambda *each: told.append(each))
    assert told == [(2, 2)] * len(keys)
    return AnswerFile(path, {"seed": 3}).answers


def test_reading_writes_nothing_also_where_a_line_is_half_written(tmp_path: Path) -> None:
    """Another process may be about to write the rest of it."""
    path = tmp_path / "none" / "answers.jsonl"
    assert AnswerFile(path, {"seed": 3}).answers == {}
    assert not path.parent.exists()
    add(path, 1, 2)
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    (path.parent / "answers.json").unlink()
    assert list(AnswerFile(path, {"seed": 3}).answers.values()) == [[1, 2]]
    assert path.read_bytes() == whole[:-5]
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_half_a_line_is_cut_off_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    add(path, 1, 2)
    path.write_bytes(path.read_bytes()[:-5])
    assert list(add(path, 2, 3).values()) == [[1, 2], [2, 2], [3, 2]]
    assert len(path.read_bytes().splitlines()) == 3
    assert [each.stat().st_mode & 0o777 for each in sorted(tmp_path.iterdir())] == [0o600, 0o600]
    with pytest.raises(DFlashError, match="made with seed 3, now it is 4"):
        AnswerFile(path, {"seed": 4})


@pytest.mark.parametrize("damage", [b"", b'{"seed": ', b"[3]", b"null", b"\xff"])
def test_a_damaged_file_beside_the_answers_is_named(tmp_path: Path, damage: bytes) -> None:
    add(tmp_path / "answers.jsonl", 1)
    (tmp_path / "answers.json").write_bytes(damage)
    with pytest.raises(DFlashError, match=r"answers\.json is damaged; remove it and answers\.jsonl"):
        AnswerFile(tmp_path / "answers.jsonl", {"seed": 3})
