"""Codecs that tests of text share: of the byte tokenizer, and of Qwen3's where it is at hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from dflash_cli.text import Message, TextCodec
from tests.byte_tokenizer import (
    END_OF_TEXT,
    END_THINK,
    IM_END,
    IM_START,
    THINK,
    make_byte_tokenizer_folder,
)

QWEN3 = Path(__file__).parents[2] / "shared" / "qwen3-tokenizer"
needs_qwen3 = pytest.mark.skipif(not QWEN3.is_dir(), reason=f"the real Qwen3 tokenizer is not at {QWEN3}")
CONTROL = {IM_START, IM_END, END_OF_TEXT, THINK, END_THINK}


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
