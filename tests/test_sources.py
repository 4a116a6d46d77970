from __future__ import annotations

from pathlib import Path

import pytest

from dflash_cli.errors import UsageError
from dflash_cli.models import PAIRS
from dflash_cli.sources import SourceKind, parse_source


def test_forms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "m.GGUF").write_bytes(b"")
    assert parse_source("embedded:x", PAIRS).kind is SourceKind.EMBEDDED
    assert parse_source("folder", PAIRS).kind is SourceKind.FOLDER
    assert parse_source("m.GGUF", PAIRS).kind is SourceKind.GGUF
    hub = parse_source("Qwen/Qwen3-8B@refs/pr/1", PAIRS)
    assert (hub.kind, hub.repo, hub.revision) == (SourceKind.HUB, "Qwen/Qwen3-8B", "refs/pr/1")
    assert parse_source("Qwen/Qwen3-8B", PAIRS).revision is None


def test_home_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "model").mkdir()
    assert parse_source("~/model", PAIRS).path == tmp_path / "model"


def test_a_folder_comes_before_a_hub_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Qwen" / "Qwen3-8B").mkdir(parents=True)
    assert parse_source("Qwen/Qwen3-8B", PAIRS).kind is SourceKind.FOLDER


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("qwen3-8", "did you mean 'qwen3-8b'\\? Known are"),
        ("QWEN3-8", "did you mean 'qwen3-8b'"),
        ("smolm2-135m", "did you mean 'smollm2-135m'"),
        ("", "unknown model ''"),
        ("./nowhere", "does not exist"),
        ("/a/b/c", "does not exist"),
        ("org/model.gguf", "does not exist"),
        ("model.gguf", "does not exist"),
        ("-/x", "does not exist"),
    ],
)
def test_what_is_nothing_is_a_usage_error(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_source(text, PAIRS)


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"")
    with pytest.raises(UsageError, match=r"is a file; expected a folder"):
        parse_source(str(tmp_path / "model.bin"), PAIRS)
