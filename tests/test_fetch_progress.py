from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from dflash_cli.fetch_progress import file_sizes, megabytes, progress, watching
from tests.waiting import poll


def test_one_line_where_stderr_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("fetching X", quiet=False) as advance:
        advance(1, 2)
    with progress("fetching Y", quiet=True) as advance:
        advance(1, 2)
    assert capsys.readouterr() == ("", "dflash: fetching X\n")


def test_a_bar_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with progress("fetching X", quiet=False) as advance:
        advance(1_500_000, 3_000_000)
        time.sleep(0.2)
    out, err = capsys.readouterr()
    assert out == ""
    assert "fetching X" in err
    assert "1.5/3.0 MB" in err


def test_watching_reports_until_its_end() -> None:
    seen: list[tuple[int, int]] = []
    with watching(lambda: len(seen), 9, lambda done, total: seen.append((done, total))):
        poll(lambda: len(seen), lambda count: count >= 2)
    count = len(seen)
    assert seen[:2] == [(0, 9), (1, 9)]
    time.sleep(0.3)
    assert len(seen) == count


def test_sizes(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a").write_bytes(b"12345")
    (tmp_path / "link").symlink_to(tmp_path / "sub" / "a")
    assert file_sizes(tmp_path) == [5]
    assert sorted(file_sizes(tmp_path, follow_links=True)) == [5, 5]
    assert file_sizes(tmp_path / "none") == []
    assert (megabytes(92_871_040), megabytes(1_234_000_000)) == ("93 MB", "1.2 GB")
