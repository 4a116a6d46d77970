"""The file: made privately, shared, mended, and never in the way."""

from __future__ import annotations

import os
import sqlite3
import stat
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from dflash_cli.errors import DFlashError
from dflash_cli.stats_store.row import Baseline
from dflash_cli.stats_store.schema import APPLICATION_ID, SCHEMA
from dflash_cli.stats_store.store import StatsStore
from tests.sessions import python
from tests.stats_store.rows import entry

COUNT = "SELECT COUNT(*) FROM turns"
NOBODY = 65534


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "stats.db"


def count(path: Path) -> int:
    rows = StatsStore(path).query(COUNT)
    return int(rows[0][0]) if rows else 0


def test_nothing_is_made_by_looking(path: Path) -> None:
    store = StatsStore(path)
    assert store.query(COUNT) == []
    assert store.version() == -1
    assert store.prune("2026-01-01") == 0
    assert not path.parent.exists()


def test_the_default_place_is_the_users(home: Path) -> None:
    assert StatsStore().path == home / ".local" / "state" / "dflash" / "stats.db"


def test_only_the_user_can_read_it(path: Path) -> None:
    before = os.umask(0)
    try:
        store = StatsStore(path)
        store.add([entry()])
        modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert set(modes) >= {"stats.db", "stats.db-wal"}
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    store.close()
    path.chmod(0o644)
    StatsStore(path).query(COUNT)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_is_added_is_there_for_others_at_once(path: Path) -> None:
    store = StatsStore(path)
    other = StatsStore(path)
    store.add([entry(blocks="[[3,3,2,3,1.0,2.0]]"), entry()], [Baseline(1, "t", "aa", "eager", "cpu", "f", 10, 5.0)])
    assert other.query(COUNT)[0][0] == 2
    version = other.version()
    store.add([entry()])
    assert other.version() != version
    assert [tuple(row) for row in other.query("SELECT turn FROM blocks")] == [(1,)]
    assert other.query("SELECT tokens, ms FROM baselines")[0]["ms"] == 5.0
    assert other.query("PRAGMA journal_mode")[0][0] == "wal"


def test_all_or_nothing(path: Path) -> None:
    store = StatsStore(path)
    with pytest.raises(DFlashError, match="cannot use the statistics in"):
        store.add([entry(), entry(pair=None)])
    assert count(path) == 0


WRITER = """
import sys
from pathlib import Path
from dflash_cli.stats_store.store import StatsStore
from tests.stats_store.rows import entry
store = StatsStore(Path(sys.argv[1]))
sys.stdin.readline()
for number in range(int(sys.argv[2])):
    store.add([entry(pair=sys.argv[3])])
store.close()
"""


def test_several_processes_write_at_once_without_loss(path: Path) -> None:
    """They make the file together, too."""
    writers = [python(WRITER, str(path), "60", name) for name in "abcd"]
    for each in writers:
        assert each.stdin is not None
        each.stdin.write("\n")
        each.stdin.flush()
    for each in writers:
        each.communicate(timeout=120)
        assert each.returncode == 0
    store = StatsStore(path)
    rows = store.query("SELECT pair, COUNT(*) FROM turns GROUP BY pair ORDER BY pair")
    assert [tuple(row) for row in rows] == [(name, 60) for name in "abcd"]
    assert store.query("SELECT SUM(turns), SUM(passes) FROM sums")[0][:] == (240, 480)
    assert store.query("SELECT SUM(blocks) FROM length_sums")[0][0] == 480


def garble(path: Path) -> None:
    path.write_bytes(b"this is no database " * 100)


def garble_in_the_middle(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096:] = os.urandom(len(data) - 4096)
    path.write_bytes(data)


def lose_a_table(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE sums")


def another_programs(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE bookmarks (url)")


@pytest.mark.parametrize("damage", [garble, garble_in_the_middle, lose_a_table, another_programs])
@pytest.mark.parametrize("first", ["read", "write"])
def test_a_damaged_file_is_set_aside_with_a_warning(path: Path, damage: Callable[[Path], None], first: str) -> None:
    store = StatsStore(path)
    store.add([entry() for _ in range(50)])
    store.close()
    damage(path)
    damaged = path.read_bytes()
    if first == "read":
        assert store.query("SELECT SUM(committed), MAX(pair) FROM turns") == []
    else:
        store.add([entry()])
        assert count(path) == 1
    assert "were damaged" in store.remark
    (aside,) = path.parent.glob("stats.db.damaged-*[0-9]")
    assert aside.read_bytes() == damaged
    assert aside.name in store.remark
    store.add([entry()])


def test_damage_that_two_see_is_set_aside_once(path: Path) -> None:
    first, second = StatsStore(path), StatsStore(path)
    first.add([entry()])
    first.close()
    garble(path)
    first.add([entry()])
    second.add([entry()])
    assert count(path) == 2
    assert len(list(path.parent.glob("stats.db.damaged-*[0-9]"))) == 1


def test_an_empty_file_is_no_damage(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.touch()
    store = StatsStore(path)
    assert store.query(COUNT) == []
    store.add([entry()])
    assert (count(path), store.remark) == (1, "")


def test_a_newer_schema_is_refused_and_left_alone(path: Path) -> None:
    store = StatsStore(path)
    store.add([entry()])
    store.query(f"PRAGMA user_version={SCHEMA + 1}")
    store.close()
    before = path.read_bytes()
    for use in (lambda: store.add([entry()]), lambda: store.query(COUNT)):
        with pytest.raises(DFlashError, match=rf"schema {SCHEMA + 1}, kept by a newer dflash.*update dflash"):
            use()
    assert path.read_bytes() == before
    assert store.remark == ""


def test_a_file_that_went_away_comes_back(path: Path) -> None:
    store = StatsStore(path)
    store.add([entry()])
    for each in path.parent.glob("stats.db*"):
        each.unlink()
    store.add([entry()])
    assert count(path) == 1


def test_a_place_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = StatsStore(tmp_path / "file" / "stats.db")
    with pytest.raises(DFlashError, match="cannot write to the folder"):
        store.add([entry()])
    (tmp_path / "folder.db").mkdir()
    with pytest.raises(DFlashError, match="cannot use the statistics in"):
        StatsStore(tmp_path / "folder.db").add([entry()])


def as_nobody(action: Callable[[], str]) -> str:
    """What `action` says in a child process that may write nowhere: to root every disk is writable."""
    import filelock  # noqa: F401  (a user without rights cannot import it any more)

    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.getuid() == 0:
                os.setuid(NOBODY)
            said = action()
        except BaseException as err:
            said = f"{type(err).__name__}: {err}"
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        said = file.read()
    os.waitpid(child, 0)
    return said


@pytest.mark.skipif(sys.platform == "win32", reason="needs another user")
def test_a_read_only_disk_is_read_and_refuses_in_words() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "stats.db"
        store = StatsStore(path)
        store.add([entry(), entry()])
        store.close()
        path.chmod(0o444)
        folder.chmod(0o555)

        def use() -> str:
            lines = [str(StatsStore(path).query(COUNT)[0][0])]
            for _ in range(2):
                with pytest.raises(DFlashError) as caught:
                    StatsStore(path).add([entry()])
                lines.append(str(caught.value))
            return "\n".join(lines)

        said = as_nobody(use)
        folder.chmod(0o755)
    number, message, again = said.splitlines()
    assert number == "2"
    assert message == again == f"cannot use the statistics in {path}: the file or disk is read-only"


def test_prune_forgets_days_and_their_sums(path: Path) -> None:
    store = StatsStore(path)
    old = [entry(day="2026-01-01", blocks="[]"), entry(day="2026-01-30")]
    store.add([*old, entry(day="2026-01-31", blocks="[]")])
    assert store.prune("2026-01-31") == 2
    for table in ("turns", "sums"):
        assert [row[0] for row in store.query(f"SELECT day FROM {table}")] == ["2026-01-31"]
    assert store.query("SELECT SUM(blocks) FROM length_sums")[0][0] == 2
    assert store.query("SELECT MAX(drafted) FROM position_sums")[0][0] == 2
    assert [row[0] for row in store.query("SELECT turn FROM blocks")] == [3]
    store.add([entry()])
    assert store.query("SELECT MAX(id) FROM turns")[0][0] == 4
    assert store.prune("2030-01-01") == 2
    store.add([entry()])
    assert store.query("SELECT MAX(id) FROM turns")[0][0] == 5  # a number is never given twice


def test_the_file_says_whose_it_is(path: Path) -> None:
    StatsStore(path).add([entry()])
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID
