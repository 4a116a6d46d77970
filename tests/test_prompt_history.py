from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest
from prompt_toolkit.history import InMemoryHistory

from dflash_cli import prompt_history
from dflash_cli.prompt_history import open_history

ROOT = Path(__file__).parent.parent


@pytest.fixture
def path(home: Path) -> Path:
    return home / ".local/state/dflash/history"


def entries() -> list[str]:
    """Oldest first."""
    told: list[str] = []
    found = list(open_history(told.append).load_history_strings())[::-1]
    assert told == []
    return found


def remember(*texts: str, keep: bool = True) -> list[str]:
    told: list[str] = []
    history = open_history(told.append, keep=keep)
    for text in texts:
        history.append_string(text)
    return told


def test_it_is_kept_and_private(path: Path) -> None:
    assert remember("one", "two\n\n  lines 漢", "+/set x", "# y") == []
    assert entries() == ["one", "two\n\n  lines 漢", "+/set x", "# y"]
    assert [stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()] == [0o600] * 2


def test_it_is_what_prompt_toolkit_reads_and_writes(path: Path) -> None:
    from prompt_toolkit.history import FileHistory

    remember("one\ntwo")
    FileHistory(path).append_string("three")
    assert list(FileHistory(path).load_history_strings()) == ["three", "one\ntwo"]
    assert entries() == ["one\ntwo", "three"]


def test_a_line_that_begins_with_a_space_is_not_kept() -> None:
    for keep in (True, False):
        history = open_history(lambda _: None, keep=keep)
        history.append_string(" secret")
        history.append_string("said")
        assert history.get_strings() == ["said"]
    assert entries() == ["said"]


def test_off_reads_and_writes_nothing(path: Path) -> None:
    remember("before")
    before = path.read_bytes()
    history = open_history(lambda _: None, keep=False)
    history.append_string("now")
    assert isinstance(history, InMemoryHistory)
    assert list(history.load_history_strings()) == ["now"]
    assert path.read_bytes() == before


def test_off_makes_no_file(path: Path) -> None:
    remember("now", keep=False)
    assert not path.parent.exists()


def test_bytes_that_are_no_text(path: Path) -> None:
    assert remember("a\udcffb") == []
    assert entries() == ["a?b"]
    path.write_bytes(path.read_bytes() + b"\n# then\n+caf\xe9\n")
    assert entries() == ["a?b", "caf\ufffd"]


def test_an_existing_one_is_made_private(path: Path) -> None:
    remember("one")
    path.chmod(0o666)
    assert entries() == ["one"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_no_place(home: Path) -> None:
    (home / ".local").write_text("a file")
    told = remember("still works")
    assert len(told) == 1
    assert told[0].startswith("the history is kept for this session only: cannot write to the folder")


def test_it_cannot_grow(path: Path) -> None:
    told: list[str] = []
    history = open_history(told.append)
    path.unlink()
    path.mkdir()
    history.append_string("lost")
    assert told == [f"the history {path} cannot be written: Is a directory"]
    assert history.get_strings() == ["lost"]


def test_it_cannot_be_read(path: Path) -> None:
    told: list[str] = []
    history = open_history(told.append)
    path.unlink()
    path.mkdir()
    assert list(history.load_history_strings()) == []
    assert told == [f"the history {path} cannot be read: Is a directory"]


def test_too_many_entries(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_history, "MOST_ENTRIES", 5)
    remember(*(f"{number}\nlines" for number in range(5)))
    before = path.read_bytes()
    assert len(entries()) == 5
    assert path.read_bytes() == before
    remember("5", "6")
    assert entries() == ["2\nlines", "3\nlines", "4\nlines", "5", "6"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_too_many_bytes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_history, "MOST_ENTRIES", 100)
    monkeypatch.setattr(prompt_history, "MOST_BYTES", 1000)
    remember("x" * 900, "y" * 500, "z")
    assert entries() == ["y" * 500, "z"]
    assert path.stat().st_size <= 1000


def test_two_chats_at_once(path: Path) -> None:
    code = (
        "import sys; from dflash_cli.prompt_history import open_history; h = open_history(print)\n"
        "for n in range(30): h.append_string(f'{sys.argv[1]}{n}\\n' + sys.argv[1] * 20_000)"
    )
    chats = [subprocess.Popen([sys.executable, "-c", code, name], cwd=ROOT, stdout=subprocess.PIPE) for name in "ab"]
    assert [chat.communicate()[0] for chat in chats] == [b"", b""]
    found = entries()
    for name in "ab":
        mine = [each for each in found if each[0] == name]
        assert mine == [f"{name}{number}\n{name * 20_000}" for number in range(30)]


def test_a_lock_that_nobody_lets_go_of(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_history, "LOCK_S", 0.01)
    told: list[str] = []
    history = open_history(told.append)
    with prompt_history._lock(path):
        history.append_string("lost")
    assert len(told) == 1
    assert "cannot be written" in told[0]
