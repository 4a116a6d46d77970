"""`dflash bench` from end to end on a tiny pair: tables, JSON, CSV, pictures, wrong options, Ctrl-C."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dflash_cli.bench import bench as bench_module
from dflash_cli.bench.ours import Ours
from dflash_cli.bench.sample import Sample
from dflash_cli.cli import main
from dflash_cli.run import run_command
from dflash_cli.stats_store.selection import Selection
from dflash_cli.stats_store.store import StatsStore
from dflash_cli.stats_store.views import overview
from tests.bench.test_rows import DOCUMENTED
from tests.tiny import write_pair


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_pair(tmp_path_factory.mktemp("pair"))


def bench(pair: tuple[Path, Path], *arguments: str) -> Result:
    from dflash_cli.bench.command import bench_command

    model = ["-m", str(pair[0]), "-d", str(pair[1]), "--dtype", "float32", "--device", "cpu"]
    small = ["--kinds", "chat", "--samples", "2", "--rounds", "2", "-n", "12", "--blocks", "auto,4"]
    return CliRunner().invoke(bench_command, [*model, *small, *arguments], catch_exceptions=False)


def rows_of(result: Result) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(result.stdout)["rows"]
    return rows


def test_json_holds_what_is_documented(pair: tuple[Path, Path]) -> None:
    result = bench(pair, "--json", "--kinds", "chat,code")
    found = json.loads(result.stdout)
    assert list(found) == ["machine", "settings", "limit", "rows"]
    assert {"device", "cpu", "threads", "torch", "dflash"} < found["machine"].keys()
    assert found["settings"]["interrupted"] is False
    assert (found["settings"]["blocks"], found["settings"]["rounds"]) == (["auto", 4], 2)
    assert found["limit"]["float32"]["bandwidth_gb_s"] > 0
    rows = found["rows"]
    assert [(row["kind"], row["name"], row["block_size"], row["adaptive"]) for row in rows] == [
        (kind, *row)
        for kind in ("chat", "code")
        for row in (("plain", 1, False), ("dflash", 6, True), ("dflash", 4, False))
    ]
    for row in rows:
        assert list(row)[: len(DOCUMENTED)] == DOCUMENTED
        assert row["tokens_per_s"] > 0
        assert row["step_ms"] == pytest.approx(row["draft_ms"] + row["verify_ms"] + row["overhead_ms"], abs=0.5)
        assert row["limit_share"] == pytest.approx(row["limit_ms"] / row["step_ms"], rel=0.02, abs=1e-4)
        assert row["identical"] is (None if row["name"] == "plain" else True)
        assert row["speedup"] > 0
    assert {row["speedup"] for row in rows if row["name"] == "plain"} == {1.0}


def test_every_combination_is_a_row(pair: tuple[Path, Path]) -> None:
    result = bench(pair, "--json", "--batches", "1,2", "--temperatures", "0,0.9", "--contexts", "150,250",
                   "--blocks", "4", "--seed", "5", "--context", "400")  # fmt: skip
    rows = rows_of(result)
    keys = {(row["name"], row["batch"], row["temperature"], row["context"] >= 250) for row in rows}
    assert len(rows) == len(keys) == 2 * 2 * 2 * 2
    assert all(row["identical"] for row in rows if row["name"] == "dflash")  # sampled too: the seed is the same


def test_dtypes_are_measured_one_after_the_other(pair: tuple[Path, Path]) -> None:
    found = json.loads(bench(pair, "--json", "--dtypes", "float32,bfloat16", "--blocks", "4").stdout)
    assert [row["dtype"] for row in found["rows"]] == ["float32"] * 2 + ["bfloat16"] * 2
    assert list(found["limit"]) == ["float32", "bfloat16"]
    assert found["limit"]["float32"]["target_mb"] == pytest.approx(
        2 * found["limit"]["bfloat16"]["target_mb"], rel=0.05
    )


def test_quantised_targets_are_measured_against_their_own_plain_decoding(pair: tuple[Path, Path]) -> None:
    found = json.loads(bench(pair, "--json", "--quantizations", "none,int8", "--blocks", "4").stdout)
    assert [row["quantize"] for row in found["rows"]] == ["none"] * 2 + ["int8"] * 2
    assert list(found["limit"]) == ["float32", "float32 int8"]
    assert found["limit"]["float32 int8"]["target_mb"] < found["limit"]["float32"]["target_mb"] / 2
    assert [row["identical"] for row in found["rows"]] == [None, True, None, True]


def test_the_tables_have_every_row_and_no_cut_number(pair: tuple[Path, Path]) -> None:
    result = bench(pair)
    lines = result.stdout.splitlines()
    assert sum(line.startswith("dflash 4") for line in lines) == 3
    assert sum(line.startswith("dflash auto") for line in lines) >= 2  # a short answer may draft nothing
    assert sum(line.startswith("plain") for line in lines) == 2  # nothing was drafted, so no positions
    assert "as plain" in result.stdout
    assert "…" not in result.stdout
    assert "backend eager, dtype float32, quantize none, batch 1, temperature 0" in lines
    assert "GB/s measured" in result.stdout
    assert "peak MB of the whole process" in result.stdout
    assert "warm-up 1 of 3: plain, eager" in result.stderr


def test_all_that_is_loaded_gets_huge_pages_before_the_first_answer(
    pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The eager backend asks for none, and a compiled one asks before others are loaded."""
    order: list[str] = []
    real_warm_up, real_answer = Ours.warm_up, Ours.answer
    monkeypatch.setattr(bench_module, "use_huge_pages", lambda: order.append("huge pages"))
    monkeypatch.setattr(Ours, "warm_up", lambda self, rows: order.append("warm-up") or real_warm_up(self, rows))
    monkeypatch.setattr(Ours, "answer", lambda self, rows: order.append("answer") or real_answer(self, rows))
    bench(pair, "--json", "--samples", "1", "--rounds", "1")
    assert order == ["warm-up"] * 3 + ["huge pages"] + ["answer"] * 3


def test_what_does_not_fit_is_told_with_the_flags_of_bench(
    pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("dflash_cli.loading.free_memory", lambda _device: 2_500_000)
    arguments = ["bench", "-m", str(pair[0]), "-d", "none", "--device", "cpu", "--dtype", "float32", "-q"]
    assert main([*arguments, "--batches", "64"]) == 1
    error = capsys.readouterr().err
    assert "not enough memory" in error
    assert "--batches " in error


def test_quiet_says_nothing_on_stderr(pair: tuple[Path, Path]) -> None:
    assert bench(pair, "-q", "--json").stderr == ""


def test_csv_has_a_line_a_row(pair: tuple[Path, Path]) -> None:
    lines = list(csv.DictReader(io.StringIO(bench(pair, "--csv").stdout)))
    assert [line["name"] for line in lines] == ["plain", "dflash", "dflash"]
    assert list(lines[0])[: len(DOCUMENTED)] == DOCUMENTED
    assert float(lines[1]["tokens_per_s"]) > 0


def test_own_prompts_from_a_file(pair: tuple[Path, Path], tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text('{"prompt": "One?"}\n{"prompt": "Two?"}\n{"prompt": "Three?"}\n')
    from dflash_cli.bench.command import bench_command

    arguments = ["-m", str(pair[0]), "-d", "none", "--device", "cpu", "--dtype", "float32", "--json", "-n", "4"]
    result = CliRunner().invoke(bench_command, [*arguments, "--prompts", str(file), "--rounds", "1"])
    (row,) = rows_of(result)
    assert (row["kind"], row["name"], row["tokens"]) == ("mine", "plain", 8)


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_a_picture(pair: tuple[Path, Path], tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"bench{suffix}"
    result = bench(pair, "--plot", str(path))
    assert result.exit_code == 0
    assert path.read_bytes()[:5] in (b"\x89PNG\r", b"<?xml")
    assert f"written to {path}" in result.stderr


def test_without_matplotlib_nothing_is_measured(
    pair: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main(["bench", "-m", str(pair[0]), "--plot", str(tmp_path / "x.png")]) == 1
    assert "pip install 'dflash-cli[plot]'" in capsys.readouterr().err


def test_plain_decoding_becomes_the_baseline_of_the_statistics(pair: tuple[Path, Path]) -> None:
    """One of each backend, of all rounds; not of what is unlike a turn, and not where --no-stats forbids it."""
    store = StatsStore()
    assert bench(pair, "--no-stats").exit_code == 0
    for unlike in (("--batches", "2"), ("--contexts", "150"), ("--temperatures", "0.8")):
        assert bench(pair, *unlike).exit_code == 0
    assert store.query("SELECT COUNT(*) FROM baselines") == []
    rows = rows_of(bench(pair, "--json", "--blocks", "4"))
    (found,) = store.query("SELECT * FROM baselines")
    assert found["tokens"] == rows[0]["tokens"] - 4  # the first of each answer, in two rounds
    assert 0.2 < found["tokens"] / found["ms"] * 1e3 / rows[0]["tokens_per_s"] < 5
    assert store.query("SELECT COUNT(*) FROM turns")[0][0] == 0
    # A turn of the same place has a speed-up now.
    arguments = ["-m", str(pair[0]), "-d", str(pair[1]), "--dtype", "float32", "--device", "cpu", "-n", "8"]
    assert CliRunner().invoke(run_command, [*arguments, "-"], input="hello", catch_exceptions=False).exit_code == 0
    assert overview(store, Selection()).figures.speedup is not None


def stopping(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Ctrl-C in the answer number `at`."""
    real, count = Ours.answer, [0]

    def answer(self: Ours, rows: Any) -> Sample:
        count[0] += 1
        if count[0] == at:
            raise KeyboardInterrupt
        return real(self, rows)

    monkeypatch.setattr(Ours, "answer", answer)


def test_ctrl_c_prints_what_was_measured_and_ends_with_130(
    pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stopping(monkeypatch, 6)
    arguments = ["bench", "-m", str(pair[0]), "-d", str(pair[1]), "--device", "cpu", "--dtype", "float32", "-n", "8"]
    status = main([*arguments, "--kinds", "chat,code", "--blocks", "4", "--rounds", "2", "--json", "-q"])
    found = json.loads(capsys.readouterr().out)
    assert status == 130
    assert found["settings"]["interrupted"] is True
    assert [(row["name"], row["kind"], row["rounds"]) for row in found["rows"]] == [
        ("plain", "chat", 1), ("dflash", "chat", 1), ("plain", "code", 1),
    ]  # fmt: skip


def test_ctrl_c_while_the_next_dtype_is_loaded_keeps_the_first(
    pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = bench_module.load_model

    def load(config: Any, **how: Any) -> Any:
        if config.dtype == "bfloat16":
            raise KeyboardInterrupt
        return real(config, **how)

    monkeypatch.setattr(bench_module, "load_model", load)
    arguments = ["bench", "-m", str(pair[0]), "-d", "none", "--device", "cpu", "--dtypes", "float32,bfloat16"]
    assert main([*arguments, "--kinds", "chat", "--rounds", "1", "-n", "4", "--json", "-q"]) == 130
    assert [row["dtype"] for row in json.loads(capsys.readouterr().out)["rows"]] == ["float32"]


def test_ctrl_c_before_the_first_answer_says_so(
    pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stopping(monkeypatch, 1)
    arguments = ["bench", "-m", str(pair[0]), "-d", str(pair[1]), "--device", "cpu", "--dtype", "float32"]
    assert main([*arguments, "--kinds", "chat", "-q"]) == 130
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "nothing was measured" in captured.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--kinds", "maths"], "did you mean 'math'"),
        (["--kinds", "chat", "--prompts", "x"], "--kinds and --prompts do not go together"),
        (["--json", "--csv"], "--json and --csv do not go together"),
        (["--synthetic", "tiny", "--kinds", "chat"], "prompts mean nothing"),
        (["--synthetic", "tiny", "--peer", "hf"], "no peer can load"),
        (["--draft-latency", "-m", "x"], "makes its own weights"),
        (["--draft-latency", "--plot", "x.png"], "has no picture"),
        (["--draft-latency", "--samples", "3"], "to which --samples means nothing"),
        (["--draft-latency", "--blocks", "auto"], "to which --blocks means nothing"),
        (["--draft-latency", "--batches", "2"], "to which --batches means nothing"),
        (["--draft-latency", "--temperatures", "0"], "to which --temperatures means nothing"),
        (["--draft-latency", "--quantizations", "int8"], "to which --quantizations means nothing"),
        (["--draft-latency", "--draft-vocabularies", "full"], "to which --draft-vocabularies means nothing"),
        (["--draft-latency", "--contexts", "9,99"], "takes one length of --contexts, and got 2"),
        (["--taus", "3"], "--taus goes with --synthetic only"),
        (["--gguf", "x.gguf"], "--gguf goes with --peer llama.cpp"),
        (["--assistant", "x"], "--assistant goes with --peer hf"),
        (["--batches", "0"], "expected"),
        (["--blocks", ","], "expected"),
        (["--plot", "x.pdf"], "expected a name that ends in .png or .svg"),
    ],
)
def test_wrong_options_are_told_before_anything_is_loaded(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *arguments]) == 2
    captured = capsys.readouterr()
    assert told in captured.err
    assert captured.err.count("\n") == 1


def test_help_imports_no_torch() -> None:
    code = (
        "import sys; from dflash_cli.cli import main; main(['bench', '--help']); "
        "sys.exit(any(name in sys.modules for name in ('torch', 'prompt_toolkit', 'transformers', 'rich.progress')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--draft-latency" in done.stdout
