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
