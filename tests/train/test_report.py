"""Progress without a terminal, durations, and metrics that end where a run goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from dflash_cli.train import report as report_module
from dflash_cli.train.metrics import Metrics
from dflash_cli.train.report import Reporter, duration


def test_without_a_terminal_a_line_comes_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(report_module.time, "monotonic", lambda: now[0])
    with Reporter().stage("training", 10, 2) as advance:
        for count in range(3, 11):
            now[0] += 20.0
            advance(count, "loss 1")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "dflash: training 4/10 · loss 1 · 2 min left"
    assert lines[-1] == "dflash: training 10/10 · loss 1 · 0 s left"
    assert len(lines) == 4
    with Reporter(quiet=True).stage("training", 1) as advance:
        advance(1, "")
    assert capsys.readouterr().err == ""


def test_durations_are_short() -> None:
    assert [duration(each) for each in (45, 600, 12_600)] == ["45 s", "10 min", "3.5 h"]


def test_metrics_after_the_step_a_run_goes_on_from_are_forgotten(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path / "work" / "m.jsonl", Reporter(quiet=True))
    metrics.cut(0)
    for step in (1, 2, 3):
        metrics.add({"step": step})
    with metrics.path.open("a") as file:
        file.write('{"step": 3, "cut')
    metrics.cut(2)
    assert metrics.path.read_text() == '{"step": 1}\n{"step": 2}\n'


def test_metrics_that_cannot_be_written_cost_one_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metrics = Metrics(tmp_path, Reporter())  # a folder
    metrics.add({"step": 1})
    metrics.add({"step": 2})
    assert capsys.readouterr().err.count("training goes on without it") == 1
