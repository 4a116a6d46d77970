"""One run at a time in a folder: the second ends at once, a plan disturbs nobody, several processes are one run."""

from __future__ import annotations

from pathlib import Path

import pytest

from dflash_cli.cli import main
from dflash_cli.errors import DFlashError, UsageError
from dflash_cli.train.own_folder import alone_in, check_out
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


@pytest.mark.parametrize("flags", [[], ["--check"], ["--plan"]])
def test_a_folder_of_something_else_is_left_alone(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    flags: list[str],
) -> None:  # fmt: skip
    monkeypatch.setattr("dflash_cli.train.command.load_model", None)  # it does not come so far
    begun, project, target = tmp_path / "begun", tmp_path / "project", tmp_path / "target"
    for folder in (begun, project):
        (folder / "work").mkdir(parents=True)
    (begun / "work" / "metrics.jsonl").touch()  # a run's own
    (project / "README.md").write_text("mine")
    at = arguments.index(str(tmp_path / "out"))
    (tmp_path / "link").symlink_to(target)
    arguments += ["--warm-start", str(begun), *flags]
    shape = arguments.index("--block")
    del arguments[shape : shape + 6]
    for out, words in (
        (target, "is the folder of --model"),
        (tmp_path / "link", "is the folder of --model"),
        (begun, "is the folder of --warm-start"),
        (project, "has a README.md that is no training run's and would be overwritten; pass another --out"),
    ):
        arguments[at] = str(out)
        assert main(arguments) == 2
        assert words in capsys.readouterr().err
    assert {path.name for path in project.rglob("*")} == {"README.md", "work"}
    monkeypatch.chdir(project)
    arguments[at] = "."
    assert main(arguments) == 2


def test_a_runs_own_folder_and_a_new_one_are_taken(tmp_path: Path) -> None:
    check_out(tmp_path / "none", {"--model": tmp_path / "nowhere"})
    for name in ("README.md", "config.json", "model.safetensors"):
        (tmp_path / name).touch()
    with pytest.raises(UsageError):
        check_out(tmp_path, {})
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "checkpoint.safetensors").touch()
    check_out(tmp_path, {"--model": tmp_path / "work"})


def test_a_folder_that_cannot_be_written_is_to_be_another(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").write_text("a file")
    assert main(arguments) == 1
    told = capsys.readouterr().err
    assert f"cannot write to the folder {tmp_path / 'out'}: " in told
    assert "Make it writable, or pass another --out" in told


def test_what_a_killed_run_was_writing_is_removed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    gone = ["work/.checkpoint.safetensors.x1_2y3z4", "work/features/.00007.safetensors.abcdefgh", ".README.md.12345678"]
    kept = ["work/checkpoint.safetensors", ".gitignore.original", ".README.md.swp", "work/features/index.json"]
    for name in (*gone, *kept):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text("")
    with alone_in(out):
        found = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    assert found == {*kept, "work/lock"}
