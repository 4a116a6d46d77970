"""Thinking is told by ids and by how the prompt ends, never by what the text looks like."""

from __future__ import annotations

import pytest

from dflash_cli.answer_text import AnswerText
from dflash_cli.events import BlockDrafted, BlockVerified, Finished, Prefilled
from dflash_cli.text import TextCodec
from dflash_cli.thinking import ThinkingStream
from tests.byte_tokenizer import END_THINK, THINK, make_byte_tokenizer_folder
from tests.scripted_model import script_ids


@pytest.fixture(scope="module")
def codec(tmp_path_factory: pytest.TempPathFactory) -> TextCodec:
    return TextCodec.from_folder(make_byte_tokenizer_folder(tmp_path_factory.mktemp("tokenizer")))


def flags(codec: TextCodec, prompt: list[int], answer: list[int]) -> str:
    stream = ThinkingStream(codec, prompt)
    return "".join("t" if each else "a" for each in stream.push(answer))


def test_the_first_id_that_is_not_blank_decides(codec: TextCodec) -> None:
    prompt = script_ids("hi\n")
    assert flags(codec, prompt, script_ids("<think>ab</think>\n\nyes")) == "tttt" + "aaaaa"
    assert flags(codec, prompt, script_ids("\n<think>a</think>b")) == "a" + "ttt" + "a"
    assert flags(codec, prompt, script_ids("so <think>ab</think>")) == "a" * 7


def test_thinking_ends_once(codec: TextCodec) -> None:
    assert flags(codec, [], script_ids("<think>a</think>b<think>c</think>")) == "ttt" + "aaaa"


def test_a_template_that_opens_or_closes_the_tag_itself(codec: TextCodec) -> None:
    assert flags(codec, script_ids("x<think>\n"), script_ids("ab</think>c")) == "ttt" + "a"
    assert flags(codec, script_ids("x<think>\n\n</think>\n\n"), script_ids("<think>a</think>")) == "aaa"


def test_tags_that_are_spelled_out_switch_nothing(codec: TextCodec) -> None:
    spelled = list(b"<think>a</think>b")
    assert flags(codec, [], spelled) == "a" * len(spelled)
    assert flags(codec, list(b"<think>\n"), list(b"ab")) == "aa"
    assert flags(codec, [], [THINK, *spelled, END_THINK, 65]) == "t" * (len(spelled) + 2) + "a"


def test_without_tags_in_the_vocabulary_all_is_answer(codec: TextCodec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "thinking_ids", None)
    assert flags(codec, [THINK], [THINK, 65, END_THINK]) == "aaa"


def told(codec: TextCodec, blocks: list[list[int]], *, prompt: str = "hi\n", reason: str = "stop") -> AnswerText:
    text = AnswerText(codec, script_ids(prompt))
    first, *rest = blocks
    pieces = [text.add(Prefilled(3, 0, tuple(first), 1.0))]
    for block in rest:
        assert text.add(BlockDrafted(3, (1, 2))) == text.add(BlockDrafted(3, ()))
        pieces.append(text.add(BlockVerified(3, 0, tuple(block), 2, 1.0, 1.0)))
    pieces.append(text.add(Finished(reason, 1.0)))  # type: ignore[arg-type]
    assert text.thinking == "".join(each.thinking for each in pieces)
    assert text.answer == "".join(each.answer for each in pieces)
    return text


def test_the_parts_have_no_tags_and_no_blanks_between_them(codec: TextCodec) -> None:
    whole = "<think>\nTwo and two.\n</think>\n\nIt is 4.\n"
    for size in (1, 2, 5, 100):
        ids = script_ids(whole)
        text = told(codec, [ids[:1], *(ids[i : i + size] for i in range(1, len(ids), size))])
        assert (text.text, text.thinking, text.answer) == (whole, "Two and two.", "It is 4.\n")


def test_thinking_that_began_in_the_prompt(codec: TextCodec) -> None:
    text = told(codec, [script_ids("hm"), script_ids(" ok</think>\n\nyes")], prompt="x<think>\n")
    assert (text.thinking, text.answer) == ("hm ok", "yes")


def test_an_answer_without_thinking_keeps_its_blanks(codec: TextCodec) -> None:
    assert told(codec, [script_ids(" \n a")]).answer == " \n a"


def test_half_a_character_at_a_cut_is_left_out(codec: TextCodec) -> None:
    half = [*b"ok ", "é".encode()[0]]
    assert told(codec, [half], reason="length").answer == "ok "
    assert told(codec, [half], reason="stop").answer == "ok \ufffd"
    assert told(codec, [[THINK, *half]], reason="interrupted").thinking == "ok"
