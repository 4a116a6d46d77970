from __future__ import annotations

import struct
from pathlib import Path

import gguf
import numpy as np
import pytest

from backends.gguf_file import GGUFError, GGUFFile, gguf_metadata
from tests.gguf_files import tokens, write_gguf


def test_metadata_is_what_the_package_reads(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_gguf(path, metadata={"x.flag": True, "x.number": 7, "x.real": 0.5, "x.text": "äöü 🙂"})
    expected = {k: f.contents() for k, f in gguf.GGUFReader(path).fields.items() if not k.startswith("GGUF.")}
    assert gguf_metadata(path) == expected
    assert gguf_metadata(path)["tokenizer.ggml.tokens"] == tokens()[0]


def test_tensors_lie_where_the_package_finds_them(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_gguf(path)
    found = GGUFFile.open(path).tensors
    for tensor in gguf.GGUFReader(path).tensors:
        info = found.pop(tensor.name)
        assert (info.offset, info.num_bytes) == (tensor.data_offset, tensor.n_bytes)
        assert info.shape == tuple(reversed(tensor.shape.tolist()))
    assert not found


def test_every_cut_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_gguf(path)
    whole = path.read_bytes()
    for size in [*range(0, 400, 7), len(whole) // 3, len(whole) // 2, len(whole) - 1024]:
        path.write_bytes(whole[:size])
        with pytest.raises(GGUFError) as caught:
            GGUFFile.open(path)
        assert "\n" not in str(caught.value)


def test_flipped_header_bytes_never_hang_or_raise_something_else(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_gguf(path)
    whole, rng, refused = path.read_bytes(), np.random.default_rng(0), 0
    for _ in range(300):
        broken = bytearray(whole)
        for position in rng.integers(0, 8000, size=3):
            broken[position] = rng.integers(0, 256)
        path.write_bytes(broken)
        try:
            GGUFFile.open(path)
        except GGUFError:
            refused += 1
    assert 0 < refused < 300  # any other exception has failed the test; some flips only change a name or a number


def test_a_huge_array_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    key = struct.pack("<Q1sI", 1, b"k", 9)
    path.write_bytes(struct.pack("<4sIQQ", b"GGUF", 3, 0, 1) + key + struct.pack("<IQ", 0, 2**62) + b"\0" * 64)
    with pytest.raises(GGUFError, match="damaged or cut short"):
        GGUFFile.open(path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a GGUF file"),
        (b"PK\x03\x04" + b"x" * 100, "not a GGUF file"),
        (struct.pack("<4sIQQ", b"GGUF", 1, 0, 0) + b"\0" * 32, "has version 1"),
        (struct.pack(">4sIQQ", b"GGUF", 3, 0, 0) + b"\0" * 32, "big-endian"),
        (struct.pack("<4sIQQ", b"GGUF", 3, 2**60, 0) + b"\0" * 32, "cut short"),
    ],
)
def test_other_files_are_named_for_what_they_are(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "m.gguf").write_bytes(data)
    with pytest.raises(GGUFError, match=message):
        GGUFFile.open(tmp_path / "m.gguf")


def test_a_missing_file_is_a_gguf_error(tmp_path: Path) -> None:
    with pytest.raises(GGUFError, match="cannot be read"):
        GGUFFile.open(tmp_path / "none.gguf")
