"""Features from disk are those that were read, are made once, and never mixed with another run's."""

from __future__ import annotations

import shutil
from itertools import chain, pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from backends.quantize import quantise
from dflash_cli.errors import DFlashError
from dflash_cli.train import feature_cache
from dflash_cli.train.documents import Document
from dflash_cli.train.feature_cache import FeatureCache, shard_begins
from dflash_cli.train.features import FeatureReader
from dflash_cli.train.report import Reporter
from dflash_cli.train.signals import Stop
from tests.tiny import make_target
from tests.train.lessons import documents

QUIET = Reporter(quiet=True)


@pytest.fixture(autouse=True)
def _small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feature_cache, "SHARD_BYTES", 28_000)  # about three documents with two taps


def make_cache(
    folder: Path,
    docs: list[Document],
    *,
    taps: tuple[int, ...] = (1, 3),
    final: bool = False,
    checkpoint: str = "",
) -> FeatureCache:
    reader = FeatureReader(make_target(seed=1), taps, 64, wants_final=final)
    return FeatureCache(folder / "features", reader, docs, checkpoint)


@pytest.mark.parametrize("final", [False, True])
def test_what_comes_back_is_what_was_read(tmp_path: Path, final: bool) -> None:
    docs = documents(8)
    cache = make_cache(tmp_path, docs, final=final)
    cache.make(QUIET, Stop())
    assert len(list(cache.folder.glob("*.safetensors"))) == len(cache.begins) > 2
    assert max(path.stat().st_size for path in cache.folder.glob("*.safetensors")) < 29_000
    assert sum(path.stat().st_size for path in cache.folder.glob("*.safetensors")) == pytest.approx(
        cache.num_bytes, rel=0.1
    )
    for index in range(8):
        (wanted,) = cache.reader.read([docs[index]])
        (found,) = cache([index])
        torch.testing.assert_close(found.taps, wanted.taps, atol=1e-4, rtol=1e-4)
        assert (found.final is None) == (not final)


def test_shards_are_made_once(tmp_path: Path) -> None:
    docs = documents(8)
    make_cache(tmp_path, docs).make(QUIET, Stop())
    again = make_cache(tmp_path, docs)
    (again.folder / "00001.safetensors").unlink()
    read = again.reader.read
    asked: list[int] = []
    again.reader.read = lambda part: asked.append(len(part)) or read(part)  # type: ignore[method-assign]
    again.make(QUIET, Stop())
    assert asked == [again.begins[2] - again.begins[1]]


@given(st.lists(st.integers(0, 50), max_size=30), st.integers(1, 60))
def test_shards_are_filled_by_bytes(sizes: list[int], most: int) -> None:
    begins = shard_begins(sizes, most)
    shards = [sizes[first:end] for first, end in pairwise([*begins, len(sizes)])]
    assert list(chain.from_iterable(shards)) == sizes
    assert all(len(shard) == 1 or (shard and sum(shard) <= most) for shard in shards)
    assert all(sum(shard) + after[0] > most for shard, after in pairwise(shards))  # none could have been fuller


def test_another_target_with_the_same_embedding_begins_anew(tmp_path: Path) -> None:
    docs = documents(8)
    make_cache(tmp_path, docs, checkpoint="a").make(QUIET, Stop())
    for checkpoint, made in (("a", 0), ("b", 8)):
        other = make_cache(tmp_path, docs, checkpoint=checkpoint)
        read, asked = other.reader.read, []
        other.reader.read = lambda part, read=read, asked=asked: asked.extend(part) or read(part)  # type: ignore
        other.make(QUIET, Stop())
        assert len(asked) == made


def test_other_documents_or_taps_begin_anew(tmp_path: Path) -> None:
    make_cache(tmp_path, documents(8)).make(QUIET, Stop())
    for other in (make_cache(tmp_path, documents(8, seed=9)), make_cache(tmp_path, documents(8, seed=9), taps=(0, 1))):
        other.make(QUIET, Stop())
        (wanted,) = other.reader.read(other.documents[:1])
        torch.testing.assert_close(other([0])[0].taps, wanted.taps, atol=1e-4, rtol=1e-4)


def test_a_quantised_target_has_other_features(tmp_path: Path) -> None:
    docs = documents(8)
    plain, packed = make_cache(tmp_path, docs), make_cache(tmp_path, docs)
    quantise(packed.reader.target, "int8", torch.float32, torch.device("cpu"))
    for cache in (plain, packed, plain):
        cache.make(QUIET, Stop())
        (wanted,) = cache.reader.read(docs[:1])
        torch.testing.assert_close(cache([0])[0].taps, wanted.taps, atol=1e-4, rtol=1e-4)
    one, other = (cache.reader.read(docs[:1])[0].taps for cache in (plain, packed))
    assert not torch.allclose(one, other, atol=1e-4, rtol=1e-4)
    assert b"quantize" not in (plain.folder / "index.json").read_bytes()  # caches made before are still good


def test_a_stop_keeps_what_is_made(tmp_path: Path) -> None:
    cache, stop = make_cache(tmp_path, documents(8)), Stop()
    stop.requested = True
    with pytest.raises(KeyboardInterrupt):
        cache.make(QUIET, stop)
    assert len(list(cache.folder.glob("*.safetensors"))) == 1


def test_a_disk_that_is_too_small_is_said_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: shutil._ntuple_diskusage(1, 1, 0))  # type: ignore[attr-defined]
    with pytest.raises(DFlashError, match="0 MB are free; make room, or leave it out"):
        make_cache(tmp_path, documents(8)).make(QUIET, Stop())


def test_a_damaged_shard_is_named(tmp_path: Path) -> None:
    cache = make_cache(tmp_path, documents(8))
    cache.make(QUIET, Stop())
    (cache.folder / "00000.safetensors").write_bytes(b"x")
    with pytest.raises(DFlashError, match=r"00000\.safetensors cannot be read"):
        cache([0])
