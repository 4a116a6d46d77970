"""One run at a time in a folder: the second ends at once, a plan disturbs nobody, several processes are one run."""

from __future__ import annotations

from pathlib import Path

import pytest

from dflash_cli.cli import main
from dflash_cli.errors import DFlashError
from dflash_cli.train.own_folder import alone_in
from tests.train.lessons import write_prompts, write_target


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    target, prompts = write_target(tmp_path / "target"), write_prompts(tmp_path / "prompts.jsonl", 12)
    where = ["--model", str(target), "--device", "cpu", "--dtype", "float32", "--out", str(tmp_path / "out")]
    small = ["--block", "4", "--layers", "1", "--taps", "1,3", "--answer-tokens", "12", "--anchors", "4"]
    return ["train-drafter", *where, "--prompts", str(prompts), "--holdout", "2", "--steps", "1", *small]


def test_a_second_run_ends_at_once_and_leaves_all_as_it_is(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    monkeypatch.setattr("dflash_cli.train.command.load_model", None)  # it does not come so far
    with alone_in(out):
        for flags in ([], ["--check"]):
            assert main([*arguments, *flags]) == 1
            told = capsys.readouterr().err.splitlines()
            assert told == [
                f"dflash: error: another dflash train-drafter is at work in {out}, and two would mix their files "
                "there: wait until it ends, end it, or pass another --out"
            ]
    assert [path.name for path in out.rglob("*") if path.name != "lock"] == ["work"]
    assert (out / "work").stat().st_mode & 0o777 == 0o700


def test_a_plan_takes_no_lock(arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with alone_in(tmp_path / "out"):
        assert main([*arguments, "--plan", "--synthesize", "3"]) == 0
        assert {path.name for path in (tmp_path / "out").rglob("*")} == {"work", "lock"}
    assert "in all: about" in capsys.readouterr().out


def test_the_folder_is_free_after_a_run_and_after_a_failure(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--mask-id", "97"]) == 2
    assert main(arguments) == 0
    assert "done: τ" in capsys.readouterr().err
    with alone_in(tmp_path / "out"), pytest.raises(DFlashError), alone_in(tmp_path / "out"):
        pass
