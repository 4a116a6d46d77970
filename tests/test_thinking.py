"""Thinking is told by ids and by how the prompt ends, never by what the text looks like."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_cli.answer_text import AnswerText
from dflash_cli.events import BlockDrafted, BlockVerified, Finished, Prefilled
from dflash_cli.text import TextCodec
from dflash_cli.thinking import ThinkingStream
from tests.byte_tokenizer import END_THINK, THINK, make_byte_tokenizer_folder
from tests.scripted_model import script_ids

QWEN3 = Path(__file__).parents[2] / "shared" / "qwen3-tokenizer"


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


words = st.sampled_from(["<", "/", ">", "a", "\n", " ", "<think", "</think", "think>"])
texts = st.lists(words, max_size=6).map("".join)


@given(texts, texts, st.booleans(), st.booleans(), st.sampled_from([">>>>", "\n\n\n\n", "<#", "a>#"]))
def test_stop_strings_that_do_not_come_change_no_part(
    codec: TextCodec, thinking: str, answer: str, is_open: bool, is_cut: bool, stop: str
) -> None:
    """They hold text back, a tag's among it, and it comes in other pieces and later."""
    opened = [] if is_open else [THINK]
    ids = [*opened, *thinking.encode(), *([] if is_cut else [END_THINK, *answer.encode()]), 65]
    prompt, found = "x<think>" if is_open else "hi", []
    for each in ((), (stop,)):
        text = AnswerText(codec, script_ids(prompt), each)
        text.add(Prefilled(3, 0, (ids[0],), 1.0))
        for i in range(1, len(ids), 3):
            text.add(BlockVerified(3, 0, tuple(ids[i : i + 3]), 2, 1.0, 1.0))
        text.add(Finished("interrupted", 1.0))
        found.append((text.text, text.thinking, text.answer))
    if stop not in found[0][0]:
        assert found[0] == found[1]
    expected = thinking.removeprefix("<think>")
    if "<think>" not in thinking.lstrip()[:7]:
        assert found[0][1] == (f"{expected}A".lstrip() if is_cut else expected.strip())
        assert is_cut or found[0][2] == f"{answer}A".lstrip()


def test_a_stop_string_that_begins_with_a_tag(codec: TextCodec) -> None:
    text = AnswerText(codec, script_ids("hi"), ("</think>\n#",))
    text.add(Prefilled(3, 0, (THINK,), 1.0))
    pieces = [text.add(BlockVerified(3, 0, (each,), 2, 1.0, 1.0)) for each in script_ids("a</think>\nb")]
    assert [each.answer for each in pieces] == ["", "", "", "b"]
    assert (text.thinking, text.answer) == ("a", "b")


@pytest.mark.parametrize("end", ["<", "</thi", " \n</think"])
def test_the_beginning_of_a_tag_at_the_end_is_text(codec: TextCodec, end: str) -> None:
    text = told(codec, [[THINK], list(f"a{end}".encode())], reason="interrupted")
    assert text.thinking == f"a{end}"


def test_half_a_character_at_a_cut_is_left_out(codec: TextCodec) -> None:
    half = [*b"ok ", "é".encode()[0]]
    assert told(codec, [half], reason="length").answer == "ok "
    assert told(codec, [half], reason="stop").answer == "ok \ufffd"
    assert told(codec, [[THINK, *half]], reason="interrupted").thinking == "ok"


@pytest.mark.skipif(not QWEN3.is_dir(), reason=f"the real Qwen3 tokenizer is not at {QWEN3}")
def test_with_the_real_qwen3_template() -> None:
    qwen3 = TextCodec.from_folder(QWEN3)
    assert qwen3.thinking_ids is not None
    opens, closes = qwen3.thinking_ids
    (word,) = qwen3.encode_raw("yes")
    messages = [{"role": "user", "content": "Say <think> and </think>."}]  # a person's words switch nothing
    on, off = (qwen3.encode_chat(messages, thinking=each) for each in (True, False))
    assert ThinkingStream(qwen3, on).push([opens, word, closes, word]) == (True, True, True, False)
    assert ThinkingStream(qwen3, off).push([opens, word]) == (False, False)
    text = AnswerText(qwen3, on)
    text.add(Prefilled(len(on), 0, (opens, word, closes, word), 1.0))
    text.add(Finished("stop", 1.0))
    assert (text.thinking, text.answer, text.text) == ("yes", "yes", "<think>yes</think>yes")
