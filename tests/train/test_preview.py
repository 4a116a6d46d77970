"""What is shown of a sample: learned tokens and only they are marked, and nothing in it acts on the terminal."""

from __future__ import annotations

from array import array
from pathlib import Path

import torch

from dflash_cli.text import TextCodec
from dflash_cli.train.blocks import make_row
from dflash_cli.train.documents import Document
from dflash_cli.train.preview import preview
from tests.byte_tokenizer import make_byte_tokenizer_folder

DOCUMENT = Document(array("i", list(b"say: \x1babcdefgh")), 5, "sums")


def shown(folder: Path, *, color: bool) -> list[str]:
    codec = TextCodec.from_folder(make_byte_tokenizer_folder(folder))
    row = make_row([DOCUMENT], [torch.tensor([6, 10])], 3, 261)
    return preview(DOCUMENT, row, codec, color=color).splitlines()


def test_learned_tokens_are_marked(tmp_path: Path) -> None:
    heading, text, block = shown(tmp_path, color=False)
    assert heading == "a sample (sums): 5 prompt and 9 answer tokens, 2 blocks, 4 tokens learned (in brackets)"
    assert text == "say: ␛a[b][c]de[f][g]h"
    assert block == "its first block: from 'a' and 2 masks to 'b' 'c'"


def test_in_colour_they_are_green_and_the_prompt_is_dim(tmp_path: Path) -> None:
    heading, text, _ = shown(tmp_path, color=True)
    assert heading.endswith("4 tokens learned")
    assert "\x1b[32mb\x1b[0m" in text
    assert "\x1b[2ms\x1b[0m" in text
    assert "\x1b[32ma" not in text
