from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

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

QWEN3 = Path(__file__).parents[2] / "shared" / "qwen3-tokenizer"
needs_qwen3 = pytest.mark.skipif(not QWEN3.is_dir(), reason=f"the real Qwen3 tokenizer is not at {QWEN3}")
CONTROL = {IM_START, IM_END, END_OF_TEXT, THINK, END_THINK}
LLAMA3 = """\
{%- for message in messages -%}
{{ '<|im_start|>' + message['role'] + '<|endoftext|>\n\n' + message['content'] | trim + '<|im_end|>' }}
{%- endfor -%}
{{ '<|im_start|>assistant<|endoftext|>\n\n' }}"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_byte_tokenizer_folder(tmp_path_factory.mktemp("bytes"))


@pytest.fixture(scope="module")
def codec(folder: Path) -> TextCodec:
    return TextCodec.from_folder(folder)


@pytest.fixture(scope="module")
def qwen3() -> TextCodec:
    return TextCodec.from_folder(QWEN3)


def reference(folder: Path) -> PreTrainedTokenizerFast:
    tokenizer = PreTrainedTokenizerFast.from_pretrained(str(folder), local_files_only=True)
    assert isinstance(tokenizer, PreTrainedTokenizerFast)
    return tokenizer


def reference_ids(folder: Path, messages: Sequence[Message], **switch: Any) -> list[int]:
    ids: Any = reference(folder).apply_chat_template(
        list(messages), tokenize=True, add_generation_prompt=True, return_dict=False, **switch
    )
    return list(ids)


def full_text(codec: TextCodec, ids: Sequence[int]) -> str:
    return codec._tokenizer.backend_tokenizer.decode(list(ids), skip_special_tokens=False)


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps((json.loads(path.read_text()) if path.exists() else {}) | changes))


# Templates


def test_chat_is_the_template_with_the_generation_prompt(codec: TextCodec, folder: Path) -> None:
    messages = [{"role": "system", "content": "Be brief."}, user("Hé 😀\n"), {"role": "assistant", "content": "Yes."}]
    ids = codec.encode_chat([*messages, user("And?")])
    assert ids == reference_ids(folder, [*messages, user("And?")])
    assert full_text(codec, ids).endswith("<|im_start|>user\nAnd?<|im_end|>\n<|im_start|>assistant\n")
    assert codec.decode(ids[-10:]) == "assistant\n"


def test_thinking_switch(codec: TextCodec) -> None:
    assert codec.supports_thinking
    default = codec.encode_chat([user("x")])
    assert codec.encode_chat([user("x")], thinking=True) == default
    assert codec.encode_chat([user("x")], thinking=False) == [*default, THINK, 10, 10, END_THINK, 10, 10]


def test_thinking_switch_is_left_out_where_the_template_has_none(folder: Path) -> None:
    codec = TextCodec.from_folder(folder, chat_template="{{ messages[0].content }}")
    assert not codec.supports_thinking
    assert codec.encode_chat([user("x")], thinking=False) == [ord("x")]


def test_own_template_replaces_the_models(folder: Path) -> None:
    codec = TextCodec.from_folder(folder, chat_template="A: {{ messages[0].content }}{{ eos_token }}")
    assert full_text(codec, codec.encode_chat([user("x")])) == "A: x<|im_end|>"


def test_template_in_a_file_of_the_folder(tmp_path: Path) -> None:
    make_byte_tokenizer_folder(tmp_path, chat_template=None)
    (tmp_path / "chat_template.jinja").write_text("[{{ messages[0].content }}]")
    assert TextCodec.from_folder(tmp_path).decode(TextCodec.from_folder(tmp_path).encode_chat([user("x")])) == "[x]"


def test_the_default_one_of_several_named_templates(tmp_path: Path) -> None:
    make_byte_tokenizer_folder(tmp_path, chat_template=None)
    named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "{{ messages[0].content }}"}]
    edit(tmp_path / "tokenizer_config.json", chat_template=named)
    codec = TextCodec.from_folder(tmp_path)
    assert codec.decode(codec.encode_chat([user("x")])) == "x"


def test_no_template_says_what_to_pass(tmp_path: Path) -> None:
    codec = TextCodec.from_folder(make_byte_tokenizer_folder(tmp_path, chat_template=None))
    assert not codec.has_template
    with pytest.raises(DFlashError, match=r"--chat-template FILE.*--raw"):
        codec.encode_chat([user("x")])
    assert codec.encode_raw("x") == [ord("x")]


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ raise_exception('System role\n not supported') }}", "System role not supported"),
        ("{% for x in %}", "Expected an expression"),
        ("{{ messages[0].content + 1 }}", "concatenate"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ nothing.at.all }}", "'nothing' is undefined"),
    ],
)
def test_template_errors_reach_the_user_in_one_line(folder: Path, template: str, message: str) -> None:
    codec = TextCodec.from_folder(folder, chat_template=template)
    with pytest.raises(DFlashError, match=message) as caught:
        codec.encode_chat([user("x")])
    assert "\n" not in str(caught.value)


def test_no_messages(codec: TextCodec) -> None:
    with pytest.raises(DFlashError, match="no message"):
        codec.encode_chat([])


# Text from people is never control


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


# Ids to text


def test_decode_leaves_special_ids_out_but_not_the_others(codec: TextCodec) -> None:
    assert codec.decode([IM_START, *"a€".encode(), THINK, IM_END, END_OF_TEXT, 271]) == "a€<think>"
    assert codec.decode([0xE2, 0x82]) == "\ufffd"
    assert codec.decode([]) == ""


def test_token_text_shows_every_id(codec: TextCodec) -> None:
    assert [codec.token_text(each) for each in (ord("a"), IM_END, THINK, 0xE2, 271)] == [
        "a", "<|im_end|>", "<think>", "\ufffd", "",
    ]  # fmt: skip


def test_shows(codec: TextCodec) -> None:
    assert [codec.shows(each) for each in (0, 255, THINK, IM_END, 271)] == [True, True, True, False, False]


# Loading


def test_stop_ids_come_from_every_place_that_names_them(tmp_path: Path) -> None:
    make_byte_tokenizer_folder(tmp_path)
    assert TextCodec.from_folder(tmp_path).stop_ids == {IM_END}, "the padding token is no stop"
    edit(tmp_path / "generation_config.json", eos_token_id=[7, 8])
    edit(tmp_path / "config.json", eos_token_id=9)
    assert TextCodec.from_folder(tmp_path).stop_ids == {IM_END, 7, 8, 9}
    edit(tmp_path / "tokenizer_config.json", eos_token="<|endoftext|>")
    edit(tmp_path / "generation_config.json", eos_token_id=None)
    edit(tmp_path / "config.json", eos_token_id=True)
    assert TextCodec.from_folder(tmp_path).stop_ids == {IM_END, END_OF_TEXT}, "the end of a turn stops without a word"


def test_vocab_size_counts_added_tokens(codec: TextCodec) -> None:
    assert codec.vocab_size == VOCAB_SIZE


def test_fingerprint_is_the_vocabulary_and_nothing_else(codec: TextCodec, tmp_path: Path) -> None:
    make_byte_tokenizer_folder(tmp_path, chat_template=None)
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"normalizer": {"type": "NFC"}}, indent=8))
    assert TextCodec.from_folder(tmp_path).fingerprint == codec.fingerprint
    data = json.loads(path.read_text())
    vocab = data["model"]["vocab"]
    vocab["a"], vocab["b"] = vocab["b"], vocab["a"]
    path.write_text(json.dumps(data))
    assert TextCodec.from_folder(tmp_path).fingerprint != codec.fingerprint


def test_truncation_in_the_file_is_ignored(tmp_path: Path) -> None:
    make_byte_tokenizer_folder(tmp_path)
    cut = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    edit(tmp_path / "tokenizer.json", truncation=cut)
    assert TextCodec.from_folder(tmp_path).encode_raw("abcdef") == list(b"abcdef")


def test_a_folder_without_tokenizer_json(tmp_path: Path) -> None:
    with pytest.raises(DFlashError, match="there is no folder"):
        TextCodec.from_folder(tmp_path / "none")
    with pytest.raises(DFlashError, match="found: nothing"):
        TextCodec.from_folder(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(b"x")
    with pytest.raises(DFlashError, match=r"found: tokenizer\.model\); copy the tokenizer\.json"):
        TextCodec.from_folder(tmp_path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer.json", b'{"version": "1.0", "model'),
        ("tokenizer.json", b"{}"),
        ("tokenizer_config.json", b'{"eos'),
        ("generation_config.json", b"[1]"),
        ("generation_config.json", b'"\xff'),
        ("config.json", b"{"),
        ("chat_template.jinja", b"\xff\xfe"),
    ],
)
def test_broken_files(tmp_path: Path, name: str, content: bytes) -> None:
    make_byte_tokenizer_folder(tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DFlashError, match="fetch it again") as caught:
        TextCodec.from_folder(tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_loading_says_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("transformers.tokenization_utils_base")
    caplog.set_level(logging.WARNING, "transformers")  # a benchmark's peer may have silenced it for good
    monkeypatch.setattr(logger, "propagate", False)
    monkeypatch.setattr(logger, "handlers", [caplog.handler])
    load = PreTrainedTokenizerFast.from_pretrained

    def remarks(*args: Any, **kwargs: Any) -> Any:
        logger.warning("The tokenizer class you load from this checkpoint is not the type that it was made with.")
        return load(*args, **kwargs)

    monkeypatch.setattr(PreTrainedTokenizerFast, "from_pretrained", remarks)
    TextCodec.from_folder(folder)
    logger.warning("heard")
    assert caplog.messages == ["heard"], "only loading is quiet"


def test_imports_are_late_and_never_torch(folder: Path) -> None:
    code = (
        "import sys, pathlib, dflash_cli.text, dflash_cli.stream\n"
        "assert not {'transformers', 'tokenizers', 'torch'} & set(sys.modules)\n"
        "codec = dflash_cli.text.TextCodec.from_folder(pathlib.Path(sys.argv[1]))\n"
        "assert codec.encode_chat([{'role': 'user', 'content': 'x'}])\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# The real Qwen3 tokenizer and its template


@needs_qwen3
@pytest.mark.parametrize("thinking", [None, True, False])
def test_qwen3_ids_are_hugging_faces(qwen3: TextCodec, thinking: bool | None) -> None:
    messages = [
        {"role": "system", "content": "You are terse.\n"},
        user("  Why is the sky blue? 漢字 😀"),
        {"role": "assistant", "content": "<think>\nHm.\n</think>\n\nRayleigh."},
        user("\n\nAnd at dusk? def f(x): return x  # 12345"),
    ]
    switch = {} if thinking is None else {"enable_thinking": thinking}
    ids = qwen3.encode_chat(messages, thinking=thinking)
    assert ids == reference_ids(QWEN3, messages, **switch)
    assert "Hm." not in full_text(qwen3, ids), "earlier thinking is dropped"
    empty = "<think>\n\n</think>\n\n" if thinking is False else ""
    assert full_text(qwen3, ids).endswith("<|im_start|>assistant\n" + empty)


@needs_qwen3
def test_qwen3_facts(qwen3: TextCodec) -> None:
    assert qwen3.supports_thinking
    assert qwen3.vocab_size == 151669
    assert qwen3.stop_ids == {151645}


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
