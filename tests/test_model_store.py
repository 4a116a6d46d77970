from __future__ import annotations

import stat
import threading
from pathlib import Path

import pytest

from dflash_cli import model_store
from dflash_cli.errors import DFlashError
from dflash_cli.model_store import models_dir, store, stored


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "dflash" / "models"


def fill(_scratch: Path, folder: Path) -> None:
    for name in model_store.WHOLE:
        (folder / name).write_text("x")


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {".lock"}


def test_built_once_and_private(cache: Path) -> None:
    calls = []

    def build(scratch: Path, folder: Path) -> None:
        calls.append(scratch)
        (scratch / "big download").write_text("x")
        fill(scratch, folder)

    assert stored("m") is None
    assert store("m", 1, build, quiet=True) == store("m", 1, build, quiet=True) == stored("m") == cache / "m"
    assert len(calls) == 1
    assert names(cache) == {"m"}
    assert stat.S_IMODE((cache / "m").stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in (cache / "m").iterdir()} == {0o600}


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, OSError(28, "No space left on device")])
def test_nothing_is_left_of_a_failed_build(cache: Path, error: BaseException) -> None:
    def build(scratch: Path, folder: Path) -> None:
        fill(scratch, folder)
        raise error

    with pytest.raises((KeyboardInterrupt, ValueError, DFlashError)) as caught:
        store("m", 5 * 10**6, build, quiet=True)
    if isinstance(error, OSError):
        assert "the disk is full" in str(caught.value)
        assert "5 MB" in str(caught.value)
    assert names(cache) == set()
    assert store("m", 1, fill, quiet=True) == cache / "m"


def test_what_a_killed_process_left_is_removed(cache: Path) -> None:
    (cache / ".tmp-dead" / "checkpoint").mkdir(parents=True)
    store("m", 1, fill, quiet=True)
    assert names(cache) == {"m"}


def test_a_checkpoint_that_lost_files_is_built_again(cache: Path) -> None:
    store("m", 1, fill, quiet=True)
    (cache / "m" / "model.safetensors").unlink()
    assert stored("m") is None
    assert store("m", 1, fill, quiet=True) == stored("m")


@pytest.mark.parametrize("content", ["", "xx"])
def test_a_damaged_checkpoint_is_built_again(cache: Path, content: str) -> None:
    folder = store("m", 1, fill, quiet=True)
    (folder / model_store.WHOLE[1]).write_text(content)
    assert stored("m") is None
    assert store("m", 1, fill, quiet=True) == stored("m")
    assert (folder / model_store.WHOLE[1]).read_text() == "x"


def test_too_little_space_is_told_before_any_work(cache: Path) -> None:
    with pytest.raises(DFlashError, match=r"not enough disk space .* XDG_CACHE_HOME"):
        store("m", 10**18, fill, quiet=True)
    assert names(cache) == set()


@pytest.mark.parametrize("blocked", [".", "dflash", "dflash/models"])
def test_an_unwritable_cache(tmp_path: Path, blocked: str) -> None:
    path = tmp_path / "cache" / blocked
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("a file where the folder should be")
    with pytest.raises(DFlashError, match="cannot write to the folder") as caught:
        store("m", 1, fill, quiet=True)
    assert "\n" not in str(caught.value)


def test_a_second_one_waits_and_finds_it_done(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    started, go_on = threading.Event(), threading.Event()
    calls = []

    def slow(scratch: Path, folder: Path) -> None:
        calls.append(scratch)
        started.set()
        assert go_on.wait(60)
        fill(scratch, folder)

    first = threading.Thread(target=store, args=("m", 1, slow), kwargs={"quiet": True})
    first.start()
    assert started.wait(60)
    threading.Timer(0.2, go_on.set).start()
    assert store("m", 1, slow, quiet=False) == models_dir() / "m"
    first.join()
    assert len(calls) == 1
    assert capsys.readouterr().err == "dflash: waiting for another dflash that is preparing a model\n"
