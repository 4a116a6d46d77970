from __future__ import annotations

import stat
from pathlib import Path

import pytest

from dflash_cli import paths
from dflash_cli.errors import DFlashError

FOLDERS = [
    (paths.config_dir, "XDG_CONFIG_HOME", ".config"),
    (paths.cache_dir, "XDG_CACHE_HOME", ".cache"),
    (paths.data_dir, "XDG_DATA_HOME", ".local/share"),
    (paths.state_dir, "XDG_STATE_HOME", ".local/state"),
]


@pytest.mark.parametrize(("folder", "variable", "default"), FOLDERS)
def test_xdg_folders(folder, variable, default, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv(variable, str(tmp_path / "elsewhere"))
    assert folder() == tmp_path / "elsewhere" / "dflash"
    for ignored in ("", "relative/folder"):
        monkeypatch.setenv(variable, ignored)
        assert folder() == tmp_path / default / "dflash"
    monkeypatch.delenv(variable)
    assert folder() == tmp_path / default / "dflash"


def test_private_folders_are_private_with_their_parents(tmp_path: Path) -> None:
    folder = paths.ensure_private(tmp_path / "a" / "b")
    assert paths.ensure_private(folder) == folder
    for made in (folder, folder.parent):
        assert stat.S_IMODE(made.stat().st_mode) == 0o700


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    for folder in (tmp_path / "a", tmp_path / "a" / "b"):
        with pytest.raises(DFlashError, match="cannot write to the folder"):
            paths.ensure_private(folder)


def test_write_private_replaces_the_whole_file(tmp_path: Path) -> None:
    target = tmp_path / "new" / "file"
    paths.write_private(target, b"a long first text")
    paths.write_private(target, b"second")
    assert target.read_bytes() == b"second"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert list(target.parent.iterdir()) == [target]


def test_a_failed_write_leaves_the_old_file_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "file"
    paths.write_private(target, b"old")

    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(paths.os, "fsync", full)
    with pytest.raises(DFlashError, match="No space left on device"):
        paths.write_private(target, b"new")
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_files_that_belong_together_are_replaced_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths.write_together(tmp_path, {"a": b"old", "b": b"old"})
    synced: list[int] = []

    def full(handle: int) -> None:
        synced.append(handle)
        if len(synced) == 2:
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(paths.os, "fsync", full)
        with pytest.raises(DFlashError, match=r"cannot write .*/b: No space left"):
            paths.write_together(tmp_path, {"a": b"new", "b": b"new"})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"old", "b": b"old"}
    paths.write_together(tmp_path, {"a": b"new", "b": b"new"})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"new", "b": b"new"}


def test_what_a_killed_process_left_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object, **__: object) -> None:
        raise MemoryError

    paths.write_private(tmp_path / "file", b"old")
    with monkeypatch.context() as patch:
        patch.setattr(paths.os, "fsync", killed)
        patch.setattr(Path, "unlink", killed)
        with pytest.raises(MemoryError):
            paths.write_private(tmp_path / "file", b"new")
    assert len(list(tmp_path.iterdir())) == 2
    (tmp_path / ".other.12345678").write_text("")
    paths.remove_unfinished(tmp_path, "file")
    assert {path.name for path in tmp_path.iterdir()} == {"file", ".other.12345678"}
    paths.remove_unfinished(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    paths.remove_unfinished(tmp_path / "none")
