"""Progress without a terminal, durations, and metrics that end where a run goes on."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from dflash_cli.train import report as report_module
from dflash_cli.train.metrics import Metrics
from dflash_cli.train.report import Reporter, duration, rate


def test_without_a_terminal_a_line_comes_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(report_module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(report_module, "peak_memory", lambda: 1_640_000_000)
    with Reporter().stage("training", 10, 2) as advance:
        for count in range(3, 11):
            now[0] += 20.0
            advance(count, "loss 1")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "dflash: training 4/10 · loss 1 · 20.00 s each · 2 min left · peak 1.6 GB"
    assert lines[-1] == "dflash: training 10/10 · loss 1 · 20.00 s each · 0 s left · peak 1.6 GB"
    assert len(lines) == 4
    with Reporter(quiet=True).stage("training", 1) as advance:
        advance(1, "")
    assert capsys.readouterr().err == ""


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def test_a_bar_has_rate_time_left_and_memory_also_within_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_module, "peak_memory", lambda: 1_640_000_000)
    monkeypatch.setattr(report_module, "peak_gpu_memory", lambda: 7_000_000_000)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setattr(sys, "stderr", screen := Screen())
    report = Reporter()
    with report.stage("training", 4, 1) as advance:
        advance(2, "loss [1]")
        with report.stage("measuring", 30) as inner:
            inner(3, "")
            assert report._bar is not None
            report._bar.refresh()
        assert [task.fields["text"] for task in report._bar.tasks] == ["training"]
    assert report._bar is None
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
    pattern = r"{} +\S+ +{} +[-\d:]+ +{}[\d.]+ (a second|s each) · peak 1\.6 GB · GPU peak 7\.0 GB"
    assert re.search(pattern.format("training", "2/4", r"loss \[1\] · "), shown), shown
    assert re.search(pattern.format("measuring", " 3/30", ""), shown), shown


def test_rates_are_read_either_way() -> None:
    assert [rate(*each) for each in ((25, 2.0), (2, 5.0), (0, 3.0), (3, 0.0))] == [
        "12.5 a second",
        "2.50 s each",
        "",
        "",
    ]


@pytest.mark.parametrize(("initialised", "expected"), [(True, 30), (False, 0)])
def test_a_gpu_that_is_not_in_use_is_not_asked(
    monkeypatch: pytest.MonkeyPatch, initialised: bool, expected: int
) -> None:
    asked: list[int] = []
    cuda = SimpleNamespace(
        is_initialized=lambda: initialised,
        device_count=lambda: 2,
        max_memory_allocated=lambda device: asked.append(device) or 10 * (device + 1),
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert report_module.peak_gpu_memory() == expected
    assert asked == ([0, 1] if initialised else [])
    monkeypatch.delitem(sys.modules, "torch")
    assert report_module.peak_gpu_memory() == 0


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
