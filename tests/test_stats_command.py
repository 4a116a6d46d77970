"""`dflash stats`, as whole commands."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dflash_cli.cli import main
from dflash_cli.stats_store.definitions import DEFINITIONS
from dflash_cli.stats_store.schema import SCHEMA
from dflash_cli.stats_store.store import StatsStore
from dflash_cli.trace import TraceWriter
from tests.command import Command
from tests.sessions import ROOT
from tests.stats_store.rows import entry
from tests.test_replay import ANSWER

OVERVIEW = ["turns", "new_tokens", "blocks", "tau", "acceptance_rate", "tokens_per_s", "lengths", "positions"]


@pytest.fixture
def run(capfd: Any) -> Command:
    return Command("stats", capfd)


@pytest.fixture
def store() -> StatsStore:
    return StatsStore()


def test_help_prints_the_definitions_without_torch_or_sqlite() -> None:
    code = (
        "import sys; from dflash_cli.cli import main; main(['stats', '--help']); "
        "assert not {'torch', 'sqlite3', 'prompt_toolkit'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    text = " ".join(done.stdout.split())
    for name, meaning in DEFINITIONS:
        assert f"{name}: {meaning}" in text


@pytest.mark.parametrize("args", [[], ["--by", "day"], ["--view", "turns"], ["--view", "trend"], ["--view", "time"]])
def test_an_empty_store_is_told(run: Command, store: StatsStore, args: list[str]) -> None:
    code, out, err = run(*args)
    assert (code, out) == (0, "")
    assert err == (
        f"dflash: no turns yet: each answer of `dflash chat` and `dflash run` leaves its figures in {store.path}, "
        "unless --no-stats or stats = false turns that off\n"
    )
    assert not store.path.exists()


def test_an_empty_store_for_programs(run: Command) -> None:
    code, out, err = run("--json")
    assert (code, err) == (0, "")
    assert list(json.loads(out)) == OVERVIEW
    assert run("--by", "pair", "--json")[1] == "[]\n"
    assert run("--by", "pair", "--csv")[1] == ""
    assert run("--html", "x.html")[0] == 1


def test_the_overview(run: Command, store: StatsStore) -> None:
    store.add([entry(), entry(backend="flex", interrupted=1)])
    code, out, err = run()
    assert (code, err) == (0, "")
    assert (
        "2 turns · 10 tokens · 4 blocks\nτ 2.00 · 33% of drafts accepted · 400.0 tok/s · speed-up not measured" in out
    )
    assert "40% of the prompts' tokens reused · 1 interrupted" in out
    assert json.loads(run("--json")[1])["tau"] == 2.0
    assert list(json.loads(run("--json")[1])) == OVERVIEW
    code, out, err = run("--backend", "flex", "--since", "2026-01-31", "--last", "5")
    assert "1 turn · 5 tokens · 2 blocks (since 2026-01-31, backend flex, the last 5)" in out
    code, out, err = run("--backend", "slow")
    assert (code, out, err) == (0, "", "dflash: no turn matches (backend slow); `dflash stats` shows what there is\n")


def test_a_regression_is_told(run: Command, store: StatsStore) -> None:
    store.add([entry([(3, 3)] * 4)] * 9 + [entry([(0, 3)] * 4, version="2.0")] * 9)
    assert "regression: τ of p (prose, temperature 0, cpu) went from 4.00 to 1.00 (-75%, 9 turns since)" in run()[1]
    found = json.loads(run("--view", "trend", "--json")[1])
    assert [each["figure"] for each in found["regressions"]] == ["τ", "tok/s"]
    assert found["days"][0]["turns"] == 18


def test_text_of_the_store_does_not_reach_the_terminal_as_it_is(run: Command, store: StatsStore) -> None:
    store.add([entry(pair="\x1b]0;title\x07[bold]x[/bold]", backend="\x1b[2J", kind="\x9b")])
    for args in ([], ["--by", "pair"], ["--view", "turns"], ["show", "1"], ["--backend", "\x1b[2J"]):
        _, out, err = run(*args)
        assert "\x1b" not in out + err
        assert "\x9b" not in out + err
    assert "[bold]x[/bold]" in run("--by", "pair")[1]


def test_symbols_for_a_terminal_that_has_no_others(store: StatsStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.add([entry(pair="日本")])
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    assert main(["stats"]) == 0
    stream.flush()
    text = stream.buffer.getvalue().decode("ascii")  # type: ignore[attr-defined]
    assert "1 turn | 5 tokens" in text
    assert "###" in text


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--by", "day", "--view", "time"], "--view and --by do not go together"),
        (["--json", "--csv"], "--json and --csv do not go together"),
        (["--watch", "--by", "day"], "--watch shows what it shows"),
        (["--last", "0"], "--last"),
        (["--since", "soon"], "expected a day such as"),
        (["--json", "show", "1"], "--json has no place before 'show'"),
        (["show", "7"], "there is no turn 7"),
        (["show", "nothing.jsonl"], "expected a turn's number, `last`, or the file of a trace"),
        (["compare", "eagr", "eager"], "did you mean 'eager'"),
        (["prune"], "--before"),
        (["prune", "--before", "2030-01-01"], "--yes does not ask"),
        (["--plot", "x.gif"], "ends in .png or .svg"),
        (["--html", "x.txt"], "ends in .html or .htm"),
    ],
)
def test_what_does_not_go(run: Command, store: StatsStore, args: list[str], message: str) -> None:
    store.add([entry()])
    code, out, err = run(*args)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1


def test_show(run: Command, store: StatsStore) -> None:
    store.add([entry(), entry(pair="q", blocks="[[3,3,2,3,1.0,2.0],[3,1,1,1,1.0,2.0],[0,0,0,1,0,2.0]]", seed=7)])
    code, out, err = run("show")
    assert (code, err) == (0, "")
    assert out.startswith("turn 2 ")
    assert out.rstrip().endswith("▮▮▯ ▮⋅⋅ ⋅")
    assert "greedy, seed 7" in out
    assert "its blocks were not kept; `--trace FILE` keeps those of later turns" in run("show", "1")[1]
    data = json.loads(run("show", "2", "--json")[1])
    assert data["blocks"][0] == {
        "drafted": 3, "reached": 3, "accepted": 2, "length": 3, "draft_ms": 1.0, "verify_ms": 2.0,
    }  # fmt: skip
    assert json.loads(run("show", "1", "--json")[1])["blocks"] is None
    assert run("show", "last")[1] == run("show", "2")[1]


def test_show_a_trace(run: Command, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    TraceWriter(path).write(ANSWER)
    code, out, err = run("show", str(path))
    assert (code, err) == (0, "")
    first, strip = out.splitlines()
    assert first.startswith("pair · 4 tokens · ")
    assert strip == "▮▯ ▯▯"
    (data,) = json.loads(run("show", str(path), "--json")[1])
    assert data["acceptance"] == {"tau": 1.5, "rate": 0.25, "lengths": [2, 1]}


def test_compare(run: Command, store: StatsStore) -> None:
    store.add([entry([(3, 3)]), entry([(1, 3)], backend="flex")])
    code, out, err = run("compare", "eager", "flex")
    assert (code, err) == (0, "")
    assert "-50.0 % (too few turns to tell from chance)" in out
    assert json.loads(run("compare", "1", "2", "--json")[1])["tau_ratio"] == 0.5


def test_prune(run: Command, store: StatsStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.add([entry(), entry(day="2026-02-01")])
    assert run("prune", "--before", "2026-01-31") == (0, "", "dflash: there are no turns before 2026-01-31\n")
    assert run("prune", "--before", "2026-02-01", "--yes") == (0, "", "dflash: forgot 1 turn\n")
    assert json.loads(run("--json")[1])["turns"] == 1
    monkeypatch.setattr("dflash_cli.stats_command.is_terminal", lambda _: True)
    monkeypatch.setattr("click.confirm", lambda *_, **__: False)
    assert run("prune", "--before", "2030-01-01") == (0, "", "dflash: nothing is forgotten\n")
    assert json.loads(run("--json")[1])["turns"] == 1


def test_files(run: Command, store: StatsStore, tmp_path: Path) -> None:
    store.add([entry()])
    page = tmp_path / "report.html"
    assert run("--html", str(page)) == (0, "", f"dflash: written to {page}\n")
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_a_damaged_file_is_a_warning(run: Command, store: StatsStore) -> None:
    store.path.parent.mkdir(parents=True)
    store.path.write_bytes(b"garbage" * 1000)
    code, out, err = run()
    assert (code, out) == (0, "")
    assert "no turns yet" in err
    assert "dflash: warning: the statistics in" in err
    assert "set aside as stats.db.damaged-" in err


def test_a_newer_file_is_an_error(run: Command, store: StatsStore) -> None:
    store.add([entry()])
    store.query(f"PRAGMA user_version={SCHEMA + 1}")
    store.close()
    code, out, err = run()
    assert (code, out) == (1, "")
    assert "kept by a newer dflash" in err
    assert len(err.splitlines()) == 1
