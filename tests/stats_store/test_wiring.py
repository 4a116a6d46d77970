"""That `run` and `chat` leave the figures of their answers, and go on where they cannot."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from dflash_cli import loading
from dflash_cli.cli import main
from dflash_cli.config import Config
from dflash_cli.stats_store.store import StatsStore
from tests.scripted_model import ScriptedModel, scripted_model
from tests.tiny import write_pair


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    target, drafter = write_pair(tmp_path_factory.mktemp("pair"))
    return ["--model", str(target), "--draft", str(drafter), "--device", "cpu", "--dtype", "float32"]


@pytest.fixture
def run(pair: list[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    def begin(*args: str, stdin: str = "hello\n") -> int:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        return main(["run", *pair, "-n", "12", *args])

    return begin


@pytest.fixture
def chat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def load(config: Config, **_: Any) -> ScriptedModel:
        return scripted_model(tmp_path, ["One.", "Two."], stats=config.stats, quiet=config.quiet)

    def begin(*args: str, stdin: str = "a\nb\n") -> int:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        return main(["chat", *args])

    monkeypatch.setattr(loading, "load", load)
    return begin


def rows(sql: str = "SELECT * FROM turns ORDER BY id") -> list[dict[str, Any]]:
    store = StatsStore()
    found = [dict(row) for row in store.query(sql)]
    store.close()
    return found


def test_run_leaves_a_row_that_agrees_with_its_json(run: Any, capfd: Any) -> None:
    assert run("--json") == 0
    told = json.loads(capfd.readouterr().out)
    (row,) = rows()
    assert (row["command"], row["new_tokens"], row["prompt_tokens"]) == ("run", 12, told["prompt_tokens"])
    assert round(row["tau"], 3) == told["acceptance"]["tau"]
    assert round(row["tokens_per_s"], 2) == told["timings"]["tokens_per_s"]
    assert sum(json.loads(row["lengths"]).values()) == len(told["acceptance"]["lengths"])
    assert len(row["target_hash"]) == len(row["drafter_hash"]) == 12
    assert row["target_hash"] != row["drafter_hash"]
    assert rows("SELECT * FROM blocks") == []


def test_compare_measures_the_baseline(run: Any, capfd: Any) -> None:
    assert run("--compare") == 0
    (row,) = rows()
    (baseline,) = rows("SELECT * FROM baselines")
    assert baseline["tokens"] == 11
    assert baseline["target_hash"] == row["target_hash"]
    capfd.readouterr()
    assert main(["stats", "--by", "pair", "--json"]) == 0
    (told,) = json.loads(capfd.readouterr().out)
    assert told["speedup"] == pytest.approx(baseline["ms"] / row["decode_ms"], abs=0.001)


def test_a_trace_keeps_the_blocks(run: Any, tmp_path: Path) -> None:
    assert run("--trace", str(tmp_path / "t.jsonl")) == 0
    (row,), (blocks,) = rows(), rows("SELECT * FROM blocks")
    told = json.loads(blocks["blocks"])
    assert blocks["turn"] == row["id"]
    assert sum(length for _, _, _, length, _, _ in told) == row["committed"]
    assert sum(accepted for _, _, accepted, *_ in told) == row["accepted"]


def test_a_batch_leaves_a_row_for_each(run: Any, tmp_path: Path) -> None:
    lines = "".join(json.dumps({"prompt": f"number {number}"}) + "\n" for number in range(5))
    assert run("--jsonl", "--batch", "2", "--trace", str(tmp_path / "t.jsonl"), stdin=lines) == 0
    assert [(row["batch"], row["new_tokens"]) for row in rows()] == [(2, 12)] * 5
    assert len(rows("SELECT * FROM blocks")) == 5


def test_off(run: Any, chat: Any) -> None:
    assert run("--no-stats") == 0
    assert chat("--no-stats") == 0
    assert not StatsStore().path.exists()


def test_a_chat_leaves_a_row_for_each_answer(chat: Any, tmp_path: Path) -> None:
    assert chat("--trace", str(tmp_path / "t.jsonl")) == 0
    assert [(row["command"], row["new_tokens"], row["reason"]) for row in rows()] == [("chat", 5, "stop")] * 2
    assert len(rows("SELECT * FROM blocks")) == 2
    assert not StatsStore().path.with_name("stats.db-wal").exists()  # closed


@pytest.mark.parametrize("command", ["run", "chat"])
def test_where_they_cannot_be_kept_answers_come_all_the_same(
    command: str, run: Any, chat: Any, home: Path, tmp_path: Path, capfd: Any
) -> None:
    """Told once for all answers."""
    place = home / ".local" / "state"
    place.parent.mkdir()
    place.touch()
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("hello", encoding="utf-8")
    assert (run(str(prompt), str(prompt)) if command == "run" else chat("--no-history", "--no-save")) == 0
    out, err = capfd.readouterr()
    assert out
    assert err.count("The answers are not affected, only their figures (--no-stats keeps none)") == 1
