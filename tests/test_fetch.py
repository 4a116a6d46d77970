from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from backends.weights import open_checkpoint
from dflash_cli.errors import DFlashError, UsageError
from dflash_cli.fetch import cached, fetch, size_on_disk
from dflash_cli.model_store import models_dir
from tests.gguf_files import write_gguf


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def left_over() -> set[str]:
    return {path.name for path in models_dir().iterdir()} - {".lock"} if models_dir().is_dir() else set()


def checkpoint(folder: Path, *files: str) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "llama"}')
    for name in files:
        (folder / name).write_text("")
    return folder


def test_a_gguf_file_is_converted_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "my model.gguf"
    write_gguf(path, "qwen3", pre="qwen2")
    assert cached(str(path)) is None
    folder = fetch(str(path), offline=True, quiet=False)
    assert capsys.readouterr() == ("", "dflash: converting my model.gguf (once)\n")
    assert folder == cached(str(path)) == fetch(str(path), offline=True, quiet=False)
    assert capsys.readouterr() == ("", "")
    assert open_checkpoint(folder)
    assert left_over() == {folder.name}


def test_a_converted_file_needs_no_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_gguf(tmp_path / "m.gguf")
    folder = fetch(str(tmp_path / "m.gguf"), offline=True, quiet=True)

    def refuse(*_args: object, **_options: object) -> None:
        raise AssertionError("the store was written to")

    monkeypatch.setattr("dflash_cli.model_store._locked", refuse)
    monkeypatch.setattr("dflash_cli.model_store.ensure_private", refuse)
    assert fetch(str(tmp_path / "m.gguf"), offline=True, quiet=True) == folder


def test_a_changed_gguf_file_is_converted_anew(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_gguf(path)
    first = fetch(str(path), offline=True, quiet=True)
    os.utime(path, ns=(0, 0))
    assert cached(str(path)) is None
    write_gguf(path, tied=False)
    second = fetch(str(path), offline=True, quiet=True)
    assert first != second
    assert json.loads((second / "config.json").read_text())["tie_word_embeddings"] is False


def test_the_same_file_by_another_path_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_gguf(tmp_path / "m.gguf")
    folder = fetch(str(tmp_path / "m.gguf"), offline=True, quiet=True)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link.gguf").symlink_to("m.gguf")
    assert cached("m.gguf") == cached("link.gguf") == folder


@pytest.mark.parametrize("cut", [0, 3, 100, 5000, -100])
def test_a_damaged_gguf_file(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "m.gguf"
    write_gguf(path)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(DFlashError, match=r"m\.gguf") as caught:
        fetch(str(path), offline=True, quiet=True)
    assert "\n" not in str(caught.value)
    assert left_over() == set()


def test_a_gguf_file_that_cannot_be_used(tmp_path: Path) -> None:
    write_gguf(tmp_path / "a.gguf", "gemma3")
    write_gguf(tmp_path / "b.gguf", pre="tekken")
    for name, message in (("a", "'gemma3'"), ("b", "'tekken'")):
        with pytest.raises(DFlashError, match=message):
            fetch(str(tmp_path / f"{name}.gguf"), offline=True, quiet=True)
    assert left_over() == set()


def test_folders_are_used_in_place(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "m", "model.safetensors")
    assert fetch(str(folder), offline=True, quiet=True) == folder == cached(str(folder))


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ((), r"has no \*\.safetensors file"),
        (("pytorch_model.bin",), "only as pickle files, which can run code and are never loaded; convert them"),
        (("model.pt",), "only as pickle files"),
    ],
)
def test_folders_without_usable_weights(tmp_path: Path, files: tuple[str, ...], message: str) -> None:
    folder = checkpoint(tmp_path / "m", *files)
    assert cached(str(folder)) is None
    with pytest.raises(DFlashError, match=message):
        fetch(str(folder), offline=True, quiet=True)


def test_a_folder_that_lacks_a_shard(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "m", "model-00001-of-00002.safetensors")
    shards = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    with pytest.raises(DFlashError, match=r"lacks model-00002-of-00002\.safetensors"):
        fetch(str(folder), offline=True, quiet=True)


@pytest.mark.parametrize("config", [None, "{", "[]"])
def test_folders_without_a_config(tmp_path: Path, config: str | None) -> None:
    folder = checkpoint(tmp_path / "m", "model.safetensors")
    (folder / "config.json").unlink()
    if config is not None:
        (folder / "config.json").write_text(config)
    with pytest.raises(DFlashError, match=r"no readable config\.json"):
        fetch(str(folder), offline=True, quiet=True)


def test_names_that_are_nothing() -> None:
    with pytest.raises(UsageError, match="did you mean 'qwen3-4b'"):
        fetch("qwen3-4bb", offline=True, quiet=True)


def test_an_unwritable_cache(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf")
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(DFlashError, match="cannot write to the folder"):
        fetch(str(tmp_path / "m.gguf"), offline=True, quiet=True)


def test_size_on_disk_follows_the_hubs_links(tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(b"x" * 1000)
    folder = tmp_path / "snapshot"
    folder.mkdir()
    (folder / "a").symlink_to("../blob")
    (folder / "b").write_bytes(b"x" * 10)
    (folder / "dangling").symlink_to("../gone")
    assert size_on_disk(folder) == 1010
