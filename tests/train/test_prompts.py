"""Prompt files: plain text in both readings, and what raw mode makes of a text that is too long."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_cli.errors import DFlashError
from dflash_cli.train.documents import given_answer
from dflash_cli.train.prompts import BadLine, TrainingPrompt, paragraphs, read_prompts
from dflash_cli.train.raw_text import as_beginning, cut
from tests.tiny import make_target
from tests.train.lessons import RECIPE, make_model


def texts(path: Path, text: str) -> list[tuple[str, str]]:
    path.write_bytes(text.encode())
    found = list(read_prompts((str(path),), None))
    assert all(isinstance(each, TrainingPrompt) and each.is_text for each in found)
    return [(each.name.rpartition(" ")[2], each.messages[-1]["content"]) for each in found]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one\ntwo\n", [("1", "one"), ("2", "two")]),
        ("\none\r\ntwo", [("2", "one"), ("3", "two")]),
        ("a\n  b\n\n\nc\n", [("1", "a\n  b"), ("5", "c")]),
        ("a\r\nb\r\n \r\nc", [("1", "a\nb"), ("4", "c")]),
        ('{"prompt": "no JSON here"}', [("1", '{"prompt": "no JSON here"}')]),
        ("\n \n", []),
    ],
)
def test_blank_lines_part_prompts_else_lines_do(tmp_path: Path, text: str, expected: list[tuple[str, str]]) -> None:
    assert texts(tmp_path / "p.txt", text) == expected


@given(st.text(alphabet="ab \n\r", max_size=40))
def test_paragraphs_lose_no_word_and_are_never_blank(text: str) -> None:
    found = [part for _, part in paragraphs(text)]
    assert all(part.strip() for part in found)
    assert "".join("".join(found).split()) == "".join(text.split())


def test_a_text_has_the_system_prompt_and_its_files_name(tmp_path: Path) -> None:
    (tmp_path / "tales.TXT").write_text("Once")
    (found,) = read_prompts((str(tmp_path / "tales.TXT"),), "Be brief.")
    assert isinstance(found, TrainingPrompt)
    assert [message["role"] for message in found.messages] == ["system", "user"]
    assert found.source == "tales"


def test_a_text_file_of_a_judged_set_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mbpp.txt").write_text("Once")
    with pytest.raises(DFlashError, match="never train on it"):
        list(read_prompts((str(tmp_path / "mbpp.txt"),), None))


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"prompt": "x", "system": 5}, "system is a JSON int; expected text"),
        ({"prompt": "x", "system": {}}, "system is a JSON dict; expected text"),
        ({"prompt": "x", "source": None}, "source is a JSON NoneType; expected text"),
        ({"conversations": [{"from": ["human"], "value": "x"}]}, "a turn is from ['human']; expected human, user"),
        ({"conversations": [{"from": {}, "value": "x"}]}, "a turn is from {}; expected human, user"),
    ],
)
def test_what_should_be_text_and_is_not_makes_a_bad_line(tmp_path: Path, entry: dict[str, Any], reason: str) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(f'{json.dumps(entry)}\n{{"prompt": "y", "system": null}}\n')
    bad, good = read_prompts((str(path),), None)
    assert isinstance(bad, BadLine)
    assert bad.reason.startswith(f"{path} line 1: {reason}")
    assert isinstance(good, TrainingPrompt)
    assert [message["role"] for message in good.messages] == ["user"]


@given(st.text(alphabet="ab \n", min_size=2, max_size=30), st.integers(0, 40))
def test_a_cut_is_a_shorter_beginning_between_words_where_it_can_be(text: str, length: int) -> None:
    part = cut(text, length)
    assert 1 <= len(part) < len(text)
    assert text.startswith(part)
    assert len(part) <= max(1, length)


def test_raw_text_leaves_room_for_its_answer_or_is_halved(tmp_path: Path) -> None:
    model = make_model(tmp_path / "tokenizer", make_target()).with_config(raw=True)
    recipe = replace(RECIPE, max_tokens=40, answer_tokens=15)
    text = "four and forty words " * 10
    prompt = TrainingPrompt("p", ({"role": "user", "content": text},), "s", is_text=True)
    beginning = as_beginning(prompt, recipe, model).messages[-1]["content"]
    assert text.startswith(beginning)
    assert 20 <= len(model.encode([{"role": "user", "content": beginning}])) <= 25
    small = as_beginning(prompt, replace(recipe, max_tokens=1024), replace(model, max_len=30)).messages
    assert len(model.encode(small)) <= 15  # the target's context, half of it for the answer
    short = replace(prompt, messages=({"role": "user", "content": "The capital of France is"},))
    assert as_beginning(short, recipe, model) == short
    kept = as_beginning(short, replace(recipe, keep_answers=True), model)
    assert (kept.messages[-1]["content"], kept.answer) == ("The capital", " of France is")
    assert given_answer(model, kept) == list(b" of France is")


def found_in(path: Path) -> list[str]:
    """Texts of the prompts, and where the bad lines are."""
    found = read_prompts((str(path),), None)
    return [each.reason if isinstance(each, BadLine) else each.messages[-1]["content"] for each in found]


def test_a_byte_that_is_no_utf8_spoils_its_line_alone(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"prompt": "one"}\n{"prompt": "caf\xe9"}\n{"prompt": "caf\xc3\xa9"}\n')
    assert found_in(path) == ["one", f"{path} line 2 is not UTF-8 text: it has the byte 0xe9", "café"]


def test_a_byte_that_is_no_utf8_spoils_its_paragraph_alone(tmp_path: Path) -> None:
    path = tmp_path / "p.txt"
    path.write_bytes(b"one\n\ntwo\nthr\xff\xfee\n\nfour\n")
    assert found_in(path) == ["one", f"{path} line 4 is not UTF-8 text: it has the byte 0xff", "four"]
