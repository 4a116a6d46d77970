"""Messages to ids by the model's template, and ids to text."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from dflash_cli.errors import DFlashError
from dflash_cli.text import TextCodec
from tests.byte_tokenizer import (
    END_OF_TEXT,
    END_THINK,
    IM_END,
    IM_START,
    THINK,
    VOCAB_SIZE,
    make_byte_tokenizer_folder,
)
from tests.codecs import QWEN3, codec, edit, folder, full_text, needs_qwen3, qwen3, reference_ids, user

__all__ = ["codec", "folder", "qwen3"]  # fixtures

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
