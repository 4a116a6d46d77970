"""The folder of saved chats: what is in it, who may open what, and what never leaves it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dflash_cli.errors import DFlashError, UsageError
from dflash_cli.session_store import SessionStore
from tests.sessions import ROOT, python, records, saved, turn

posix = pytest.mark.skipif(os.name == "nt", reason="POSIX only")


@pytest.fixture
def store(tmp_path: Path) -> SessionStore:
    return SessionStore(tmp_path / "sessions")


def age(path: Path, seconds: int) -> None:
    os.utime(path, (seconds, seconds))


def test_the_folder_is_the_users(home: Path) -> None:
    assert SessionStore().folder == home / ".local" / "share" / "dflash" / "sessions"


def test_an_empty_store(store: SessionStore) -> None:
    assert (store.names(), store.latest(), store.summaries()) == ([], None, [])
    assert not store.folder.exists()


def test_the_latest_is_the_one_that_was_changed_last(store: SessionStore) -> None:
    for name, seconds in (("a", 2), ("b", 3), ("c", 1)):
        age(saved(store, name), seconds)
    assert store.names() == ["b", "a", "c"]
    assert store.latest() == "b"
    log = store.resume("c")
    assert store.latest() == "b"
    log.append_turn(turn())
    log.close()
    assert store.latest() == "c"


def test_going_on(store: SessionStore) -> None:
    saved(store, "x", turn("one"), turn("two"))
    log = store.resume("x")
    assert [each.prompt for each in log.state.turns] == ["one", "two"]
    assert (log.name, log.remark, log.is_saved) == ("x", "", True)
    log.undo()
    log.append_turn(turn("three"))
    log.close()
    assert [each.prompt for each in store.read("x").state.turns] == ["one", "three"]


def test_only_one_at_a_time(store: SessionStore) -> None:
    saved(store, "x")
    log = store.resume("x")
    for again in (lambda: store.resume("x"), lambda: store.delete(["x"])):
        with pytest.raises(DFlashError, match=r"'x' is open in another dflash.*Leave that one.*or start a new one"):
            again()
    assert len(store.read("x").state.turns) == 1  # reading is no harm
    log.close()
    store.resume("x").close()


HOLDER = """
import sys
from pathlib import Path
from dflash_cli.session_store import SessionStore
from tests.sessions import turn
log = SessionStore(Path(sys.argv[1])).resume("x")
print("open", flush=True)
for line in sys.stdin:
    log.append_turn(turn(line.strip()))
    print("saved", flush=True)
log.close()
"""


def test_two_processes_do_not_mix(store: SessionStore) -> None:
    saved(store, "x", turn("zero"))
    with python(HOLDER, str(store.folder)) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "open\n"
        with pytest.raises(DFlashError, match="is open in another dflash"):
            store.resume("x")
        other.stdin.write("one\n")
        other.stdin.flush()
        assert other.stdout.readline() == "saved\n"
        with pytest.raises(DFlashError, match="is open in another dflash"):
            store.delete(["x"])
    log = store.resume("x")
    assert [each.prompt for each in log.state.turns] == ["zero", "one"]
    log.close()


@posix
def test_the_lock_of_a_killed_process_is_no_lock(store: SessionStore) -> None:
    saved(store, "x")
    with python(HOLDER, str(store.folder)) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        other.send_signal(signal.SIGKILL)
        other.wait(60)
    store.resume("x").close()
    assert not list(store.folder.rglob("*.lock"))


def test_many_processes_begin_at_once(store: SessionStore) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom dflash_cli.session_store import SessionStore\n"
        "from tests.sessions import turn\nlog = SessionStore(Path(sys.argv[1])).open_new()\n"
        "log.name = 'same'\nsys.stdin.read()\nlog.append_turn(turn())\nsys.stdin.read()\nlog.close()"
    )
    others = [python(code, str(store.folder)) for _ in range(4)]
    for other in others:
        assert other.stdin is not None
        other.stdin.close()
    assert [other.wait(60) for other in others] == [0] * 4
    for other in others:
        assert other.stdout is not None
        other.stdout.close()
    assert sorted(store.names()) == ["same", "same-2", "same-3", "same-4"]
    assert all(len(records(store.path(name))) == 2 for name in store.names())


def test_a_damaged_chat_goes_on_under_another_name(store: SessionStore) -> None:
    path = saved(store, "x", turn("one"), turn("two"))
    lines = path.read_bytes().splitlines(keepends=True)
    damaged = lines[0] + lines[1] + b"garbage\n" + lines[2]
    path.write_bytes(damaged)
    log = store.resume("x")
    assert log.name == "x-2"
    assert log.remark.startswith(f"line 3 of {path} is damaged: it is not JSON")
    assert log.remark.endswith("What comes before goes on as 'x-2', and 'x' stays as it is")
    assert store.names() == ["x"]
    log.append_turn(turn("three"))
    log.close()
    assert path.read_bytes() == damaged
    assert [each.prompt for each in store.read("x-2").state.turns] == ["one", "three"]
    store.resume("x").close()


def test_a_newer_chat_is_refused_and_not_left_locked(store: SessionStore) -> None:
    path = saved(store, "x")
    path.write_bytes(path.read_bytes().replace(b'"schema":1', b'"schema":2'))
    before = path.read_bytes()
    for _ in range(2):
        with pytest.raises(DFlashError, match=r"schema 2, saved by dflash .*; this dflash reads up to 1: update"):
            store.resume("x")
    assert path.read_bytes() == before
    assert store.summaries()[0].problem.startswith("found a chat of schema 2")


def test_a_name_that_is_not_there(store: SessionStore) -> None:
    saved(store, "Fibonacci")
    for name, message in (
        ("fibonaci", "there is no saved chat 'fibonaci'; did you mean 'Fibonacci'"),
        ("qq", "no saved chat 'qq'; `dflash sessions list` shows those there are"),
        ("../x", "'/' is not allowed"),
        ("/etc/passwd", "'/' is not allowed"),
    ):
        for what in (store.read, store.resume, lambda name: store.delete([name])):
            with pytest.raises(UsageError, match=message):
                what(name)


@posix
def test_links_are_not_followed(store: SessionStore, tmp_path: Path) -> None:
    saved(store, "x")
    outside = tmp_path / "outside.jsonl"
    store.path("x").rename(outside)
    before = outside.read_bytes()
    store.path("x").symlink_to(outside)
    assert store.names() == []
    for what in (store.read, store.resume, lambda name: store.delete([name])):
        with pytest.raises(UsageError, match="there is a link of that name, and links are not followed"):
            what("x")
    with pytest.raises(UsageError, match="there is a saved chat 'x' already"):
        store.open_new("x")
    assert outside.read_bytes() == before
    assert store.path("x").is_symlink()


def test_other_files_are_not_looked_at(store: SessionStore) -> None:
    saved(store, "x")
    (store.folder / "folder.jsonl").mkdir()
    for name in ("note.txt", ".hidden.jsonl", "a(b).jsonl", ".jsonl"):
        (store.folder / name).write_text("")
    assert store.names() == ["x"]


def test_a_folder_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DFlashError, match=r"the saved chats in .*file cannot be read: Not a directory"):
        SessionStore(tmp_path / "file").names()


def test_what_a_killed_process_left_is_swept(store: SessionStore) -> None:
    saved(store, "x")
    left = store.folder / ".y.jsonl.abc123"
    left.write_text("half")
    saved(store, "z")
    assert not left.exists()


def test_deleting(store: SessionStore) -> None:
    for name in ("a", "b", "c"):
        saved(store, name)
    log = store.resume("b")
    with pytest.raises(DFlashError, match="'b' is open"):
        store.delete(["a", "b"])
    with pytest.raises(UsageError, match="no saved chat 'zzz'"):
        store.delete(["a", "zzz"])
    assert sorted(store.names()) == ["a", "b", "c"]
    log.close()
    store.delete(["a", "b", "a"])
    assert store.names() == ["c"]
    assert not list(store.folder.rglob("*.lock"))


def test_summaries(store: SessionStore) -> None:
    age(saved(store, "x", turn("  first\nprompt " + "word " * 50), turn("two")), 1)
    log = store.open_new("y")
    for prompt in ("one", "two", "three"):
        log.append_turn(turn(prompt))
    log.clear()
    log.append_turn(turn("four"))
    log.append_turn(turn("five"))
    log.undo()
    log.close()
    y, x = store.summaries()
    assert store.summaries(1) == [y]
    assert (y.name, y.num_turns, y.size, y.text) == ("y", 1, "1 turn", "four")
    assert (x.name, x.num_turns, x.size, x.changed) == ("x", 2, "2 turns", 1)
    assert x.text.startswith("first prompt word")
    assert len(x.text) == 60
    assert x.prompt.startswith("  first\nprompt ")


@pytest.mark.parametrize("count", [0, 1, 7])
def test_summaries_of_torn_files_count_what_reading_gives(store: SessionStore, count: int) -> None:
    path = saved(store, "x", turn("one"), turn("two"))
    data = path.read_bytes()
    path.write_bytes(data[: len(data) - count])
    (summary,) = store.summaries()
    assert (summary.num_turns, summary.problem) == (len(store.read("x").state.turns), "")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "it is empty"),
        (b"garbage\n", "line 1: it is not JSON"),
        (b'{"type":"turn","prompt":"a"}\n', "line 1: it is not the beginning"),
        (b'{"type":"session","schema":1}\ngarbage\n', "line 2: it is not JSON"),
        (b'{"type":"session","schema":1}\n[]\n', "line 2: it is not a JSON object"),
    ],
)
def test_summaries_of_damaged_files(store: SessionStore, data: bytes, problem: str) -> None:
    saved(store, "x").write_bytes(data)
    (summary,) = store.summaries()
    assert summary.problem.startswith(problem)
    assert summary.text.startswith(f"[{problem}")


def test_it_imports_no_torch(store: SessionStore) -> None:
    saved(store, "x")
    code = (
        "import sys; from pathlib import Path; from dflash_cli.session_store import SessionStore\n"
        "store = SessionStore(Path(sys.argv[1])); store.summaries(); store.resume('x').close()\n"
        "print({'torch', 'transformers', 'prompt_toolkit'} & set(sys.modules))"
    )
    out = subprocess.check_output([sys.executable, "-c", code, str(store.folder)], text=True, cwd=ROOT)
    assert out == "set()\n"
