"""The GPU script as a dry run on the CPU: every stage runs, and what fails is reported while the others go on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import gpu_check
from tests.gpu_check import Options, Report, check, main

DRY = ["--device", "cpu", "--shape", "tiny", "--dtype", "float32", "--backends", "eager", "--contexts", "30,90"]


def test_a_dry_run_fills_every_part_of_the_report(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    assert main([str(path), *DRY, "--tokens", "40", "--rounds", "2"]) == 0
    found: dict[str, Any] = json.loads(path.read_text())
    assert list(found) == [
        "options", "machine", "bandwidth", "lossless eager", "limit", "build eager", "parity", "times", "recompiles",
        "simulated", "draft latency", "goals",
    ]  # fmt: skip
    assert found["lossless eager"]["value"]["holds"] is True
    own, guided = found["lossless eager"]["value"]["passes"]
    assert guided < own / 3
    assert found["parity"]["value"]["eager verify at 90"] == {"error": 0.0, "same_argmax": 1.0}
    assert found["times"]["value"]["30"].keys() == {
        "eager plain step",
        "eager draft",
        "eager verify 8",
        "eager verify 16",
    }
    assert len(found["draft latency"]["value"]) == 12
    assert len(found["simulated"]["value"]["rows"]) == 4
    goals = found["goals"]["value"]["eager"]
    assert len(goals) == 6
    assert all(isinstance(each["met"], bool) for each in goals.values())


def test_a_stage_that_fails_is_reported_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no kernel")

    monkeypatch.setattr(gpu_check, "pass_times", broken)
    monkeypatch.setattr(gpu_check, "draft_latency", broken)
    options = Options(tmp_path / "r.json", "tiny", "cpu", "float32", ("eager",), (30,), tokens=20, rounds=1)
    report = check(options)
    assert report.failed == ["times", "draft latency"]
    assert "no kernel" in json.loads(options.report.read_text())["times"]["error"]
    assert "simulated" in report.values
    assert "goals" not in report.values


def test_a_check_that_does_not_hold_is_a_failure(tmp_path: Path) -> None:
    report = Report(tmp_path / "r.json")
    report.stage("good", lambda: {"holds": True})
    report.stage("bad", lambda: {"holds": False})
    assert report.failed == ["bad"]
