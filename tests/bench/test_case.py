"""Prompts: the benchmark's own ones, files, and how they are filled up to a length."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import pytest

from dflash_cli.bench.case import encoded, file_questions, own_questions, question_of
from dflash_cli.bench.kinds import KINDS, log, log_lines, prompts_of
from dflash_cli.errors import DFlashError
from tests.scripted_model import scripted_model


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_has_prompts_of_its_own(kind: str) -> None:
    texts = prompts_of(kind)
    assert len(set(texts)) == len(texts) >= 2
    others = [text for other in KINDS if other != kind for text in prompts_of(other)]
    assert not set(texts) & set(others)
    assert min(map(len, texts)) > (3000 if kind == "long" else 50)


def test_the_log_is_always_the_same_and_never_ends() -> None:
    assert log(5) == log(5) == "\n".join(islice(log_lines(), 5))
    assert log(5, 1) != log(5)
    assert len(set(islice(log_lines(), 2000))) == 2000


def test_samples_bound_the_prompts_of_each_kind() -> None:
    assert [each.kind for each in own_questions(("code", "long"), 1)] == ["code", "long"]
    assert [each.kind for each in own_questions(("chat",), 3)] == ["chat"] * 3


def test_a_file_gives_one_prompt_or_one_a_line(tmp_path: Path) -> None:
    text, lines = tmp_path / "story.txt", tmp_path / "mine.jsonl"
    text.write_text("Tell me\nmore.")
    lines.write_text("\n".join(json.dumps({"prompt": f"p{n}"}) for n in range(5)))
    (only,) = file_questions(str(text), 2, None)
    assert (only.kind, only.messages[-1]["content"]) == ("story", "Tell me\nmore.")
    assert [each.messages[-1]["content"] for each in file_questions(str(lines), 2, None)] == ["p0", "p1"]
    with pytest.raises(DFlashError, match="cannot be read"):
        file_questions(str(tmp_path / "none"), 2, None)


def test_prompts_are_filled_up_to_every_length(tmp_path: Path) -> None:
    model = scripted_model(tmp_path, [], system="Be brief.")
    questions = [question_of("chat", "Why?"), question_of("chat", "How?")]
    whole = encoded(model, questions, ())
    assert [case.context for case in whole] == [None, None]
    cases = encoded(model, questions, (300, 4000))
    assert [(case.kind, case.context) for case in cases] == [("chat", n) for n in (300, 300, 4000, 4000)]
    longest_line = max(map(len, islice(log_lines(), 100))) + 100  # the words before the log count once
    for case in cases:
        assert case.context is not None
        assert case.context <= len(case.ids) <= case.context + longest_line
        text = bytes(each for each in case.ids if each < 256).decode()
        assert text.startswith("system\nBe brief.")
        assert text.endswith(("Why?\nassistant\n", "How?\nassistant\n"))


def test_a_prompt_that_is_too_long_already_is_named(tmp_path: Path) -> None:
    model = scripted_model(tmp_path, [])
    with pytest.raises(DFlashError, match=r"a prompt of kind long has .* tokens already; --contexts asks for 50"):
        encoded(model, own_questions(("long",), 1), (50,))
