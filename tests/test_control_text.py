"""Text from people is never control: whatever strings it holds, no control token comes of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dflash_cli.errors import DFlashError
from dflash_cli.text import Message, TextCodec
from tests.byte_tokenizer import (
    END_OF_TEXT,
    END_THINK,
    IM_END,
    IM_START,
    THINK,
    VOCAB_SIZE,
    make_byte_tokenizer_folder,
)
from tests.codecs import CONTROL, codec, edit, folder, full_text, needs_qwen3, qwen3, reference, user

__all__ = ["codec", "folder", "qwen3"]  # fixtures

LLAMA3 = """\
{%- for message in messages -%}
{{ '<|im_start|>' + message['role'] + '<|endoftext|>\n\n' + message['content'] | trim + '<|im_end|>' }}
{%- endfor -%}
{{ '<|im_start|>assistant<|endoftext|>\n\n' }}"""


CONTROL_STRINGS = ["<|im_end|>", "<|im_start|>", "<|endoftext|>", "<think>", "</think>"]
PARTS = ["<", "|", ">", "<|", "|>", "im_", "end", "start", "think>", "<|im_<|im_end|>end|>", "<<think>", "\n", " "]
fragments = st.sampled_from([*CONTROL_STRINGS, *PARTS, "system\n", "word", "é", "漢字", "😀"])
texts = st.lists(fragments, max_size=12).map("".join)


@given(texts, texts)
@example("<|im_<|im_end|>end|>", "<|im_end|><|im_end|>")
@example("<<think>", "<</think></think>")
def test_control_strings_in_messages_stay_text(codec: TextCodec, first: str, second: str) -> None:
    def messages(system: str, question: str) -> list[Message]:
        return [{"role": "system", "content": system}, user(question)]

    ids = codec.encode_chat(messages(first, second), thinking=False)
    empty = codec.encode_chat(messages("", ""), thinking=False)
    assert [each for each in ids if each in CONTROL] == [each for each in empty if each in CONTROL]
    rendered = codec._tokenizer.apply_chat_template(
        messages(first, second), tokenize=False, add_generation_prompt=True, enable_thinking=False
    )
    assert full_text(codec, ids) == rendered


@given(texts)
def test_control_strings_in_raw_text_stay_text(codec: TextCodec, text: str) -> None:
    ids = codec.encode_raw(text)
    assert not CONTROL & set(ids)
    assert codec.decode(ids) == text


def test_the_assistants_tags_are_the_templates_but_its_control_strings_stay_text(codec: TextCodec) -> None:
    ids = codec.encode_chat([{"role": "assistant", "content": "<think>a</think><|im_end|>"}])
    assert [each for each in ids if each in CONTROL] == [IM_START, THINK, END_THINK, IM_END, IM_START]
    assert full_text(codec, ids).startswith("<|im_start|>assistant\n<think>a</think><|im_end|><|im_end|>\n")


@pytest.mark.parametrize("text", ["  <|im_end|> a  ", "\n\n<think>\n", "a <|im_start|>", "  plain "])
def test_a_template_that_trims_still_does(folder: Path, text: str) -> None:
    codec = TextCodec.from_folder(folder, chat_template=LLAMA3)
    ids = codec.encode_chat([user(text)])
    assert full_text(codec, ids) == (
        f"<|im_start|>user<|endoftext|>\n\n{text.strip()}<|im_end|><|im_start|>assistant<|endoftext|>\n\n"
    )
    assert [each for each in ids if each in CONTROL] == [IM_START, END_OF_TEXT, IM_END, IM_START, END_OF_TEXT]


def test_no_space_is_put_at_a_seam(tmp_path: Path) -> None:
    make_byte_tokenizer_folder(tmp_path)
    path = tmp_path / "tokenizer.json"
    path.write_text(path.read_text().replace('"add_prefix_space": false', '"add_prefix_space": true'))
    codec = TextCodec.from_folder(tmp_path)
    assert codec.decode(codec.encode_raw("a")) == " a", "the tokenizer under test puts a space first"
    assert codec.decode(codec.encode_raw("a<think>b<|im_end|>")) == " a<think>b<|im_end|>"


def test_control_strings_that_only_normalising_makes(tmp_path: Path) -> None:
    make_byte_tokenizer_folder(tmp_path)
    path = tmp_path / "tokenizer.json"
    data = json.loads(path.read_text())
    for token in data["added_tokens"]:
        token["normalized"] = True
    path.write_text(json.dumps(data | {"normalizer": {"type": "NFKC"}}))
    codec = TextCodec.from_folder(tmp_path)
    assert IM_END in reference(tmp_path).backend_tokenizer.encode("a＜|im_end|＞").ids
    assert codec.encode_raw("a＜|im_end|＞") == list(b"a<|im_end|>")


def test_a_space_run_that_is_an_added_token_is_ordinary_text(tmp_path: Path) -> None:
    make_byte_tokenizer_folder(tmp_path)
    data = json.loads((tmp_path / "tokenizer.json").read_text())
    data["added_tokens"].append(data["added_tokens"][-1] | {"id": VOCAB_SIZE, "content": "    "})
    (tmp_path / "tokenizer.json").write_text(json.dumps(data))
    codec = TextCodec.from_folder(tmp_path)
    assert codec.vocab_size == VOCAB_SIZE + 1
    assert codec.encode_raw("a    b") == [ord("a"), VOCAB_SIZE, ord("b")]


@pytest.mark.parametrize(
    ("text", "what"), [("ab\udcff", r"byte 0xff at character 3"), ("\ud83d", r"surrogate U\+D83D at character 1")]
)
def test_text_that_is_not_unicode(codec: TextCodec, text: str, what: str) -> None:
    with pytest.raises(DFlashError, match=what):
        codec.encode_chat([user(text)])
    with pytest.raises(DFlashError, match=what):
        codec.encode_raw(text)


def test_raw_text_begins_as_the_tokenizer_says(tmp_path: Path) -> None:
    make_byte_tokenizer_folder(tmp_path)
    start = {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}
    end = {"SpecialToken": {"id": "<|im_end|>", "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    named = {
        name: {"id": name, "ids": [each], "tokens": [name]}
        for name, each in (("<|endoftext|>", END_OF_TEXT), ("<|im_end|>", IM_END))
    }
    processor = {"type": "TemplateProcessing", "single": [start, text, end], "pair": [text], "special_tokens": named}
    edit(tmp_path / "tokenizer.json", post_processor=processor)
    edit(tmp_path / "tokenizer_config.json", bos_token="<|endoftext|>")
    codec = TextCodec.from_folder(tmp_path)
    assert codec.encode_raw("ab") == [END_OF_TEXT, *b"ab"]
    assert codec.encode_chat([user("a")])[0] == IM_START
    edit(tmp_path / "tokenizer.json", post_processor=processor | {"single": [text, end]})
    assert TextCodec.from_folder(tmp_path).encode_raw("ab") == [*b"ab"], "an end is no start"


@needs_qwen3
@given(st.lists(fragments | st.sampled_from(["<tool_call>", "<|fim_prefix|>", "</tool_response>"]), max_size=10))
@settings(max_examples=50)
@example(["<tool_response>", "</tool_response>"])
def test_qwen3_control_strings_of_the_user_stay_text(qwen3: TextCodec, parts: list[str]) -> None:
    text = "".join(parts)
    ids = qwen3.encode_chat([user(text)], thinking=False)
    assert [each for each in ids if each >= 151643] == [151644, 151645, 151644, 151667, 151668]
    assert full_text(qwen3, ids) == (
        f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )


@needs_qwen3
def test_qwen3_end_of_turn_in_a_message_stays_text(qwen3: TextCodec) -> None:
    assert qwen3.decode(qwen3.encode_raw("say <|im_end|> and <think>")) == "say <|im_end|> and <think>"
