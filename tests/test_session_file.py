"""Files of saved chats: torn, damaged, newer, full, killed."""

from __future__ import annotations

import errno
import os
import signal
import stat
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dflash_cli import session_file
from dflash_cli.conversation import Turn
from dflash_cli.errors import DFlashError
from dflash_cli.session_file import append, read
from dflash_cli.session_records import encode, new_session, turn_to_record
from tests.sessions import python, records, turn
from tests.test_session_records import TURNS

posix = pytest.mark.skipif(os.name == "nt", reason="POSIX only")


def line(prompt: str) -> bytes:
    return encode(turn_to_record(turn(prompt)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A chat of three turns."""
    path = tmp_path / "x.jsonl"
    path.write_bytes(encode(new_session()) + line("one") + line("two") + line("three"))
    path.chmod(0o600)
    return path


def prompts(path: Path) -> list[str]:
    reading = read(path)
    assert reading.problem == ""
    return [each.prompt for each in reading.state.turns]


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(TURNS, max_size=4))
def test_all_turns_come_back(tmp_path: Path, turns: list[Turn]) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(encode(new_session()))
    append(path, [encode(turn_to_record(each)) for each in turns])
    assert read(path).state.turns == turns


def test_a_torn_line_is_ignored_and_cut_wherever_it_ends(path: Path) -> None:
    data = path.read_bytes()
    begin = data.index(line("three")[:10], data.index(b"two"))
    for end in range(begin, len(data)):
        path.write_bytes(data[:end])
        torn = end < len(data) - 1  # with all but its newline the line is whole
        assert prompts(path) == ["one", "two"] + ([] if torn else ["three"])
        append(path, [line("four")])
        assert [each.get("prompt") for each in records(path)[1:]] == prompts(path)
        assert prompts(path) == ["one", "two", *([] if torn else ["three"]), "four"]


def test_zeros_that_a_power_failure_left(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0" * 500)
    assert prompts(path) == ["one", "two", "three"]
    append(path, [line("four")])
    assert prompts(path) == ["one", "two", "three", "four"]


def test_a_damaged_line(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1] + lines[2][:20] + b"\n" + lines[3])
    before = path.read_bytes()
    reading = read(path)
    assert reading.problem.startswith(f"line 3 of {path} is damaged: it is not JSON (")
    assert [each.prompt for each in reading.state.turns] == ["one"]
    assert before[: reading.num_bytes] == lines[0] + lines[1]
    assert path.read_bytes() == before


@pytest.mark.parametrize("wrong", [b"\n", b"\xff\n", b"[]\n", b'{"type":"turn"}\n', b'{"type":"turn"}'])
def test_other_damage(path: Path, wrong: bytes) -> None:
    path.write_bytes(path.read_bytes() + wrong)
    reading = read(path)
    assert reading.problem.startswith(f"line 5 of {path} is damaged: it is")
    assert len(reading.state.turns) == 3


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "it is empty"),
        (b'{"type":"se', "line 1: it is not JSON"),
        (b"hello\n", "line 1: it is not JSON"),
        (b'{"type":"turn"}\n', "line 1: it is not the beginning of a saved chat"),
        (b'{"type":"session","schema":7,"program":"3.0"}\n', "found a chat of schema 7, saved by dflash 3.0; this"),
    ],
)
def test_nothing_to_read(path: Path, data: bytes, problem: str) -> None:
    path.write_bytes(data)
    with pytest.raises(DFlashError) as caught:
        read(path)
    assert str(caught.value).startswith(f"the saved chat {path} cannot be read: {problem}")
    assert path.read_bytes() == data


def test_unknown_keys_and_types_stay_in_the_file(path: Path) -> None:
    unknown = b'{"type":"mood","new":1}\n'
    path.write_bytes(path.read_bytes() + unknown)
    append(path, [line("four")])
    assert prompts(path) == ["one", "two", "three", "four"]
    assert unknown in path.read_bytes()


class FullDisk:
    """A disk with so many bytes left. `os.write` writes what fits; what does not fit at all is refused."""

    def __init__(self, room: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room, self._write = room, os.write
        monkeypatch.setattr(session_file.os, "write", self.write)

    def write(self, handle: int, data: bytes) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        count = self._write(handle, data[: self.room])
        self.room -= count
        return count


@pytest.mark.parametrize("room", [0, 1, 100])
def test_a_full_disk_leaves_whole_lines(path: Path, room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    before, lines = path.read_bytes(), [line("four"), line("five")]
    disk = FullDisk(room, monkeypatch)
    with pytest.raises(DFlashError, match=r"cannot be saved in .*x\.jsonl: No space left on device"):
        append(path, lines)
    assert path.read_bytes() == before
    assert len(lines) == 2
    disk.room = len(lines[0]) + 5
    with pytest.raises(DFlashError):
        append(path, lines)
    assert len(lines) == 1
    disk.room = 10**6
    append(path, lines)
    assert prompts(path) == ["one", "two", "three", "four", "five"]


def test_writes_that_take_little_at_a_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(session_file.os, "write", lambda handle, data: write(handle, data[:7]))
    append(path, [line("four")])
    assert prompts(path) == ["one", "two", "three", "four"]


def test_a_write_that_takes_nothing_ends(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_file.os, "write", lambda handle, data: 0)
    with pytest.raises(DFlashError, match="No space left"):
        append(path, [line("four")])


def test_what_is_appended_is_on_the_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    monkeypatch.setattr(session_file.os, "fsync", lambda handle: sizes.append(os.fstat(handle).st_size))
    append(path, [line("four"), line("five")])
    assert sizes == [path.stat().st_size]

    def broken(_handle: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(session_file.os, "fsync", broken)
    with pytest.raises(DFlashError, match="Input/output error"):
        append(path, [line("six")])


@posix
def test_a_limit_that_the_system_itself_keeps(path: Path) -> None:
    size = path.stat().st_size
    code = (
        "import resource, sys\nfrom pathlib import Path\nfrom dflash_cli.session_file import append\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({size + 50}, -1))\n"
        'try: append(Path(sys.argv[1]), [b\'{"type":"x","long":"\' + b\'y\' * 200 + b\'"}\\n\'])\n'
        "except Exception as err: print(err)"
    )
    out, _ = python(code, str(path)).communicate(timeout=60)
    assert "File too large" in out
    assert path.stat().st_size == size


@posix
def test_a_file_that_is_gone_or_is_none(path: Path, tmp_path: Path) -> None:
    (tmp_path / "link.jsonl").symlink_to(path)
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "folder.jsonl").mkdir()
    for name, problem in (
        ("link", "it is a link, and links are not followed"),
        ("pipe", "it is not a file"),
        ("gone", "it is not there any more"),
    ):
        for what in (read, lambda path: append(path, [b"x\n"])):
            with pytest.raises(DFlashError, match=problem):
                what(tmp_path / f"{name}.jsonl")
    with pytest.raises(DFlashError, match="cannot be read: it is not a file"):
        read(tmp_path / "folder.jsonl")
    assert not (tmp_path / "gone.jsonl").exists()
    assert prompts(path) == ["one", "two", "three"]


@posix
def test_a_file_becomes_private(path: Path) -> None:
    path.chmod(0o644)
    append(path, [line("four")])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


APPENDER = """
import sys
from dflash_cli.session_store import SessionStore
from pathlib import Path
from tests.sessions import turn
log = SessionStore(Path(sys.argv[1])).open_new("x")
for number in range(100_000):
    log.append_turn(turn(str(number), "answer \\u2028" * 3000))
    print(number, flush=True)
"""


@posix
@pytest.mark.parametrize("delay_s", [0.0, 0.003, 0.011])
def test_kill_9_at_any_moment(tmp_path: Path, delay_s: float) -> None:
    process = python(APPENDER, str(tmp_path))
    assert process.stdout is not None
    for _ in range(3):
        process.stdout.readline()
    time.sleep(delay_s)
    process.send_signal(signal.SIGKILL)
    out, _ = process.communicate(timeout=60)
    told = max([2, *(int(each) for each in out.split())])
    found: list[Any] = prompts(tmp_path / "x.jsonl")
    assert found == [str(number) for number in range(len(found))]
    assert len(found) in (told + 1, told + 2)  # the one in flight may be there
    append(tmp_path / "x.jsonl", [line("next")])
    assert prompts(tmp_path / "x.jsonl") == [*found, "next"]
