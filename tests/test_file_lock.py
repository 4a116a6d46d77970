"""A lock on a file: one process has it, and it is gone when that process is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dflash_cli.errors import DFlashError
from dflash_cli.file_lock import acquired

HOLDER = """
import sys
from pathlib import Path
from dflash_cli.file_lock import acquired
lock = acquired(Path(sys.argv[1]))
print(lock is not None, flush=True)
sys.stdin.read()
"""


def test_a_lock_vanishes_with_its_process(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        cwd=Path(__file__).parents[1],
    ) as holder:  # fmt: skip
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        assert acquired(path) is None
        assert path.stat().st_mode & 0o777 == 0o600
        holder.kill()
        holder.wait(timeout=30)
    lock = acquired(path, timeout=10)
    assert lock is not None
    lock.release()
    again = acquired(path)
    assert again is not None
    again.release()


def test_what_cannot_be_locked_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DFlashError, match=r"cannot lock .*file/lock: "):
        acquired(tmp_path / "file" / "lock")
