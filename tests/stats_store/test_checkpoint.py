"""A checkpoint's hash changes with its weights, and costs little."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from dflash_cli.stats_store.checkpoint import checkpoint_hash, quantisation_of
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


def written(folder: Path, **changed: int) -> Path:
    """A checkpoint of three tensors of 64 KiB; `changed`: a byte of one that is another."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text("{}", encoding="utf-8")
    data = {name: bytearray(64 << 10) for name in ("a", "b", "c")}
    for name, place in changed.items():
        data[name][place] = 1
    entries = {
        name: {"dtype": "U8", "shape": [64 << 10], "data_offsets": [index * (64 << 10), (index + 1) * (64 << 10)]}
        for index, name in enumerate(data)
    }
    header = json.dumps(entries).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"".join(data.values()))
    return folder


def test_a_change_of_any_tensor_is_seen(tmp_path: Path) -> None:
    """Of the same size, and only in the middle of the file: a drafter trained once more, its ends frozen."""
    last = (64 << 10) - 1
    changes: list[dict[str, int]] = [{}, {"a": 0}, {"b": 0}, {"b": last // 2}, {"b": last}, {"c": last}]
    hashes = [checkpoint_hash(str(written(tmp_path / "drafter", **each))) for each in changes]
    assert len(set(hashes)) == len(changes)
    assert "" not in hashes


def test_the_same_weights_have_the_same_hash_elsewhere_and_later(tmp_path: Path) -> None:
    first = checkpoint_hash(str(written(tmp_path / "one")))
    os.utime(tmp_path / "one" / "model.safetensors", (1, 1))
    assert first == checkpoint_hash(str(tmp_path / "one")) == checkpoint_hash(str(written(tmp_path / "two")))


def test_a_huge_checkpoint_is_not_read_whole(tmp_path: Path) -> None:
    """A file of 40 GB with holes for weights: it must not take longer than a small one."""
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    size = 40 << 30
    header = json.dumps({"a": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + size)
    begun = time.perf_counter()
    assert checkpoint_hash(str(tmp_path))
    assert time.perf_counter() - begun < 2


@pytest.mark.parametrize("data", [b"", b"short", b"\xff" * 64, (4).to_bytes(8, "little") + b"nope"])
def test_what_is_no_checkpoint_has_none(tmp_path: Path, data: bytes) -> None:
    folder = written(tmp_path / "broken")
    (folder / "model.safetensors").write_bytes(data)
    assert checkpoint_hash(str(folder)) == ""


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
    assert quantisation_of(source, "int8") == ("int8" if found == "none" else f"{found}+int8")
