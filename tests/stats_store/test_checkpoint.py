"""A checkpoint's hash changes with its weights, and costs little."""

from __future__ import annotations

from pathlib import Path

import pytest

from dflash_cli.stats_store.checkpoint import READ, checkpoint_hash, quantisation_of
from tests.tiny import write_pair


def test_it_is_that_of_the_files(tmp_path: Path) -> None:
    target, drafter = write_pair(tmp_path)
    first = checkpoint_hash(str(target))
    assert len(first) == 12
    assert first == checkpoint_hash(str(target)) != checkpoint_hash(str(drafter))
    weights = next(target.glob("*.safetensors"))
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    assert checkpoint_hash(str(target)) != first


def test_both_ends_of_large_files_are_read(tmp_path: Path) -> None:
    target, _ = write_pair(tmp_path)
    weights = next(target.glob("*.safetensors"))
    hashes = set()
    for place in (None, 0, READ - 1, 3 * READ - 1):
        data = bytearray(3 * READ)
        if place is not None:
            data[place] = 1
        weights.write_bytes(data)
        hashes.add(checkpoint_hash(str(target)))
    assert len(hashes) == 4


@pytest.mark.parametrize("source", [None, "no/where", "a-script", "/nowhere"])
def test_what_is_not_there_has_none(source: str | None) -> None:
    assert checkpoint_hash(source) == ""


@pytest.mark.parametrize(
    ("source", "found"),
    [("embedded:smollm2-135m", "Q4_1"), ("/a/Qwen3-8B-Q4_K_M.gguf", "Q4_K_M"), ("x.iq3_xxs.gguf", "IQ3_XXS"),
     ("m-bf16.GGUF", "BF16"), ("/a/model.gguf", "gguf"), ("Qwen/Qwen3-8B", "none"), ("/a/Q4_0-folder", "none")],
)  # fmt: skip
def test_quantisation(source: str, found: str) -> None:
    assert quantisation_of(source) == found
