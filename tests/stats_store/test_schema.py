"""The tables, and how an older file becomes a newer one."""

from __future__ import annotations

import sqlite3
from dataclasses import fields
from pathlib import Path

import pytest

from dflash_cli.stats_store import schema, store
from dflash_cli.stats_store.figures import Figures
from dflash_cli.stats_store.row import Baseline, Row
from dflash_cli.stats_store.selection import Selection
from dflash_cli.stats_store.store import StatsStore
from dflash_cli.stats_store.views import blocks_of_turn, overview
from tests.sessions import python
from tests.stats_store.rows import entry

HERE = Path(__file__).parent


def columns(path: Path, table: str) -> list[str]:
    with sqlite3.connect(path) as connection:
        return [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]


def test_the_tables_are_what_the_code_writes_and_adds(tmp_path: Path) -> None:
    path = tmp_path / "stats.db"
    StatsStore(path).add([entry()])
    assert columns(path, "turns") == ["id", *(each.name for each in fields(Row))]
    assert columns(path, "baselines") == ["id", *(each.name for each in fields(Baseline))]
    assert columns(path, "sums") == [*schema.DIMENSIONS, "first", "last", *schema.SUMMED]
    assert columns(path, "turn_sums") == columns(path, "sums")
    assert [each.name for each in fields(Figures)][: len(schema.SUMMED)] == list(schema.SUMMED)


def old_file(path: Path, version: int = 1) -> Path:
    """A file as an older dflash left it: three turns, two baselines."""
    with sqlite3.connect(path) as connection:
        connection.executescript((HERE / f"schema_{version}.sql").read_text(encoding="utf-8"))
        connection.execute(f"PRAGMA application_id={schema.APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version={version}")
    connection.close()
    return path


def shape(path: Path) -> list[tuple[str, list[str]]]:
    """Tables, views and triggers, each with its columns."""
    with sqlite3.connect(path) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master ORDER BY name")]
    return [(name, columns(path, name)) for name in names]


def test_a_file_of_the_first_schema_is_read_and_written(tmp_path: Path) -> None:
    path = old_file(tmp_path / "stats.db")
    old = StatsStore(path)
    assert overview(old, Selection()).figures.turns == 3
    names = "id, pair, kind, adaptive, draft_vocabulary, target_hash"
    assert [tuple(row) for row in old.query(f"SELECT {names} FROM turns")] == [
        (1, "p", "prose", -1, 0, ""), (2, "p", "code", -1, 0, ""), (3, "q", "prose", -1, 0, ""),
    ]  # fmt: skip
    assert blocks_of_turn(old, 2) == [[3, 2, 1, 2, 1.0, 2.0]]
    # A baseline is of the weights that the turns of its target had.
    assert [row["quantisation"] for row in old.query("SELECT * FROM baselines ORDER BY id")] == ["Q4_1", "none"]
    assert overview(old, Selection()).figures.speedup == pytest.approx(6 / 15 * 1e3 / 100)
    old.add([entry()])
    assert old.query("SELECT MAX(id), SUM(turns), MAX(last) FROM turns, sums")[0]["MAX(last)"] == 4
    old.close()
    assert_shape_is_new(path)


def assert_shape_is_new(path: Path) -> None:
    new = StatsStore(path.with_name("new.db"))
    new.add([entry()])
    assert shape(path) == shape(new.path)


def test_a_file_of_the_second_schema_is_read_and_written(tmp_path: Path) -> None:
    """Whether its turns drafted of all ids is not known, but of those without a drafter."""
    path = old_file(tmp_path / "stats.db", 2)
    old = StatsStore(path)
    assert [tuple(row) for row in old.query("SELECT id, pair, adaptive, draft_vocabulary, target_hash FROM turns")] == [
        (1, "p", 0, -1, "aa"), (2, "p", 1, -1, "aa"), (3, "q", 0, 0, "aa"),
    ]  # fmt: skip
    assert [tuple(row) for row in old.query("SELECT draft_vocabulary, SUM(turns) FROM sums GROUP BY 1")] == [
        (-1, 2), (0, 1),
    ]  # fmt: skip
    assert blocks_of_turn(old, 2) == [[3, 2, 1, 2, 1.0, 2.0]]
    old.add([entry(draft_vocabulary=8000)])
    where = (("draft_vocabulary", 8000),)
    assert overview(old, Selection(where=where)).figures.turns == 1
    old.close()
    assert_shape_is_new(path)


def test_several_processes_renew_an_old_file_at_once(tmp_path: Path) -> None:
    path = old_file(tmp_path / "stats.db")
    code = (
        "import sys; from pathlib import Path; from dflash_cli.stats_store.store import StatsStore; "
        "from tests.stats_store.rows import entry; sys.stdin.readline(); StatsStore(Path(sys.argv[1])).add([entry()])"
    )
    others = [python(code, str(path)) for _ in range(4)]
    for each in others:
        assert each.stdin is not None
        each.stdin.write("\n")
        each.stdin.flush()
    for each in others:
        each.communicate(timeout=120)
        assert each.returncode == 0
    assert StatsStore(path).query("SELECT SUM(turns) FROM sums")[0][0] == 7
    assert not list(tmp_path.glob("*damaged*"))


def test_sums_are_made_anew_after_a_migration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "stats.db"
    old = StatsStore(path)
    old.add([entry(), entry([(1, 2)], pair="q"), entry(kind="code"), entry()])
    before = [[tuple(row) for row in old.query(f"SELECT * FROM {table}")] for table in schema.SUM_TABLES]
    assert all(before)
    old.query("UPDATE sums SET turns = 99")
    old.close()
    wider = "ALTER TABLE turns ADD COLUMN mood TEXT NOT NULL DEFAULT 'calm';"
    monkeypatch.setattr(store, "MIGRATIONS", (*schema.MIGRATIONS, wider))
    monkeypatch.setattr(store, "SCHEMA", schema.SCHEMA + 1)
    new = StatsStore(path)
    assert [row["mood"] for row in new.query("SELECT mood FROM turns")] == ["calm"] * 4
    assert new.query("PRAGMA user_version")[0][0] == schema.SCHEMA + 1
    assert [[tuple(row) for row in new.query(f"SELECT * FROM {table}")] for table in schema.SUM_TABLES] == before
    new.add([entry()])
    assert new.query("SELECT SUM(turns) FROM sums")[0][0] == 5


def test_a_migration_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "stats.db"
    StatsStore(path).add([entry()])
    monkeypatch.setattr(store, "MIGRATIONS", (*schema.MIGRATIONS, "CREATE TABLE x (a); CREATE TABLE turns (a);"))
    monkeypatch.setattr(store, "SCHEMA", schema.SCHEMA + 1)
    with pytest.raises(Exception, match="already exists"):
        StatsStore(path).query("SELECT 1")
    monkeypatch.undo()
    assert StatsStore(path).query("SELECT COUNT(*) FROM turns")[0][0] == 1
    assert StatsStore(path).query("SELECT COUNT(*) FROM sqlite_master WHERE name = 'x'")[0][0] == 0


def test_statements_are_told_apart_within_a_trigger() -> None:
    connection = sqlite3.connect(":memory:")
    script = (
        "CREATE TABLE a (x); CREATE TRIGGER t AFTER INSERT ON a BEGIN\nDELETE FROM a WHERE x = 1; "
        "DELETE FROM a WHERE x = 2;\nEND; INSERT INTO a VALUES (3)\n;"
    )
    schema.run_script(connection, script)
    assert connection.execute("SELECT x FROM a").fetchall() == [(3,)]
