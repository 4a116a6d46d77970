"""The GPU script as a dry run on the CPU: every stage runs, and what fails is reported while the others go on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from backends import compiled
from dflash_cli.bench import entrants, shapes
from tests import gpu_check, gpu_graphs, gpu_parity
from tests.compilers import artefacts, needs_compiler
from tests.gpu_check import Options, Report, check, main
from tests.gpu_times import graphs

__all__ = ["artefacts"]
DRY = ["--device", "cpu", "--shape", "tiny", "--dtype", "float32", "--tokens", "40", "--rounds", "2"]


def dry_run(path: Path, *arguments: str) -> dict[str, Any]:
    """The report of one in which all is well."""
    assert main([str(path), *DRY, *arguments]) == 0
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_a_dry_run_fills_every_part_of_the_report(tmp_path: Path) -> None:
    found = dry_run(tmp_path / "report.json", "--backends", "eager", "--contexts", "30,90")
    assert list(found) == [
        "options", "machine", "bandwidth", "lossless eager", "weights", "limit", "build eager", "parity", "times",
        "recompiles", "simulated eager", "draft latency eager", "goals",
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
    assert len(found["draft latency eager"]["value"]) == 12
    assert len(found["simulated eager"]["value"]["rows"]) == 4
    goals = found["goals"]["value"]["eager"]
    assert len(goals) == 6
    assert all(isinstance(each["met"], bool) for each in goals.values())


@pytest.fixture
def short(artefacts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Little to compile: few layers, widths and lengths, and what is compiled once is found again."""
    target = shapes.TINY | {"num_hidden_layers": 2, "max_position_embeddings": 128}
    monkeypatch.setitem(shapes.SHAPES, "tiny", (target, shapes._drafter(target, 1, 16, [0, 1], 511)))
    monkeypatch.setattr(compiled, "verify_widths", lambda block_size: tuple(sorted({1, block_size})))
    monkeypatch.setattr(gpu_check, "SPACE", 28)
    monkeypatch.setattr(gpu_parity, "ROWS", 128)
    for module in (gpu_parity, gpu_graphs, entrants):
        monkeypatch.setattr(module, "compiled_code", lambda name: None if name == "eager" else artefacts)


@needs_compiler
@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("name", ["compile", "flex"])
def test_a_dry_run_checks_and_times_compiled_backends_too(name: str, tmp_path: Path) -> None:
    found = dry_run(tmp_path / "report.json", "--backends", name, "--contexts", "30,100", "--no-latencies")
    others = ["reduce-overhead"] if name == "compile" else []
    assert list(found) == [
        "options", "machine", "bandwidth", f"lossless {name}", "weights", "limit",
        *(f"build {each}" for each in ("eager", name, *others)),
        "parity", "times", "recompiles", *(["graphs"] if others else []), f"simulated {name}", "goals",
    ]  # fmt: skip
    assert found[f"lossless {name}"]["value"]["holds"] is True
    assert found["parity"]["value"]["holds"] is True
    assert found["recompiles"]["value"]["holds"] is True
    for each in (name, *others):
        assert 0 < found["parity"]["value"][f"{each} verify at 100"]["error"] < 1e-4  # other code than eager's ran
        assert f"{each} verify 16" in found["times"]["value"]["100"]
    if others:
        assert found["graphs"]["value"]["verify 16 at 100"]["faster"] in ("compile", "reduce-overhead")
    assert found["goals"]["value"].keys() == {name}
    assert all(isinstance(each["met"], bool) for each in found["goals"]["value"][name].values())


def test_the_faster_graphs_are_named() -> None:
    times = {"compile draft": {"ms": 2.0}, "reduce-overhead draft": {"ms": 1.5}, "eager draft": {"ms": 1.0}}
    assert graphs({"30": times}, 4) == {
        "skipped_by_torch": 4,
        "draft at 30": {"compile": 2.0, "reduce-overhead": 1.5, "faster": "reduce-overhead"},
    }


def broken(*_: object, **__: object) -> None:
    raise RuntimeError("no kernel")


OPTIONS = ("tiny", "cpu", "float32", ("eager",), (30,))


def test_a_stage_that_fails_is_reported_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_check, "pass_times", broken)
    monkeypatch.setattr(gpu_check, "latencies", broken)
    options = Options(tmp_path / "r.json", *OPTIONS, tokens=20, rounds=1)
    report = check(options)
    assert report.failed == ["times", "draft latency eager"]
    assert "no kernel" in json.loads(options.report.read_text())["times"]["error"]
    assert "simulated eager" in report.values
    assert "goals" not in report.values


def test_without_weights_there_still_is_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_check, "synthetic_weights", broken)
    options = Options(tmp_path / "r.json", *OPTIONS, tokens=20, rounds=1, latencies=False)
    assert check(options).failed == ["weights"]
    found = json.loads(options.report.read_text())
    assert "no kernel" in found["weights"]["error"]
    assert "value" in found["simulated eager"]


def test_one_backend_that_fails_leaves_the_goals_of_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "create", broken)
    options = Options(tmp_path / "r.json", "tiny", "cpu", "float32", ("eager", "compile"), (30,), 20, 1, False)
    monkeypatch.setattr(gpu_parity, "ReduceOverheadEngine", broken)
    report = check(options)
    assert report.failed == ["lossless compile", "build compile", "build reduce-overhead", "simulated compile"]
    assert report.values["goals"]["value"].keys() == {"eager"}


def test_a_device_that_is_not_there_fails_stages_only(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    assert main([str(path), "--device", "nowhere", "--shape", "tiny", "--backends", "eager"]) == 1
    found = json.loads(path.read_text())
    assert all("error" in found[each] for each in ("bandwidth", "lossless eager", "weights", "simulated eager"))


def test_where_the_script_ends_is_seen_in_the_report(tmp_path: Path) -> None:
    report = Report(tmp_path / "r.json")

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        report.stage("long", interrupted)
    assert "in the middle" in json.loads(report.path.read_text())["long"]["error"]


def test_what_json_does_not_know_is_a_failure_of_its_stage(tmp_path: Path) -> None:
    report = Report(tmp_path / "r.json")
    assert report.stage("odd", lambda: {1, 2}) is None
    assert "not JSON serializable" in json.loads(report.path.read_text())["odd"]["error"]


def test_a_check_that_does_not_hold_is_a_failure(tmp_path: Path) -> None:
    report = Report(tmp_path / "r.json")
    report.stage("good", lambda: {"holds": True})
    report.stage("bad", lambda: {"holds": False})
    assert report.failed == ["bad"]
