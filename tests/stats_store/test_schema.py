"""The tables, and how an older file becomes a newer one."""

from __future__ import annotations

import sqlite3
from dataclasses import fields
from pathlib import Path

import pytest

from dflash_cli.stats_store import schema, store
from dflash_cli.stats_store.figures import Figures
from dflash_cli.stats_store.row import Baseline, Row
from dflash_cli.stats_store.store import StatsStore
from tests.stats_store.rows import entry


def columns(path: Path, table: str) -> list[str]:
    with sqlite3.connect(path) as connection:
        return [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]


def test_the_tables_are_what_the_code_writes_and_adds(tmp_path: Path) -> None:
    path = tmp_path / "stats.db"
    StatsStore(path).add([entry()])
    assert columns(path, "turns") == ["id", *(each.name for each in fields(Row))]
    assert columns(path, "baselines") == ["id", *(each.name for each in fields(Baseline))]
    assert columns(path, "sums") == [*schema.DIMENSIONS, "first", *schema.SUMMED]
    assert columns(path, "turn_sums") == columns(path, "sums")
    assert [each.name for each in fields(Figures)][: len(schema.SUMMED)] == list(schema.SUMMED)


def test_an_older_file_becomes_a_newer_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "stats.db"
    old = StatsStore(path)
    old.add([entry(), entry(pair="q")])
    old.close()
    wider = "ALTER TABLE turns ADD COLUMN mood TEXT NOT NULL DEFAULT 'calm';"
    monkeypatch.setattr(store, "MIGRATIONS", (*schema.MIGRATIONS, wider))
    monkeypatch.setattr(store, "SCHEMA", 2)
    new = StatsStore(path)
    assert [tuple(row) for row in new.query("SELECT pair, mood FROM turns")] == [("p", "calm"), ("q", "calm")]
    assert new.query("PRAGMA user_version")[0][0] == 2
    new.add([entry()])
    assert new.query("SELECT SUM(turns) FROM sums")[0][0] == 3


def test_a_migration_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "stats.db"
    StatsStore(path).add([entry()])
    monkeypatch.setattr(store, "MIGRATIONS", (*schema.MIGRATIONS, "CREATE TABLE x (a); CREATE TABLE turns (a);"))
    monkeypatch.setattr(store, "SCHEMA", 2)
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
