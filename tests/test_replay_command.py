"""`dflash replay`, as whole commands."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dflash_cli.cli import main
from dflash_cli.trace import TraceWriter
from tests.test_replay import ANSWER


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "trace.jsonl"
    TraceWriter(path).write(ANSWER)
    TraceWriter(path).write(replace(ANSWER, head=replace(ANSWER.head, prompt="Two\x1b[2J\nlines")))
    return path


def test_all_answers_are_played(path: Path, capfd: Any) -> None:
    assert main(["replay", str(path), "--speed", "4"]) == 0
    out, err = capfd.readouterr()
    assert out.startswith("A[ b]~")
    assert out.count("A[ b]") == 2
    first, second = err.splitlines()
    assert first == "dflash: pair, eager, 2026-01-01T00:00:00+00:00"
    assert second == first + ": Two␛[2J lines"


def test_one_answer_quietly(path: Path, capfd: Any) -> None:
    assert main(["replay", str(path), "--answer", "2", "-q"]) == 0
    out, err = capfd.readouterr()
    assert (out.count("A[ b]"), err) == (1, "")


def test_a_page(path: Path, tmp_path: Path, capfd: Any) -> None:
    page = tmp_path / "out.html"
    assert main(["replay", str(path), "--html", str(page)]) == 0
    out, err = capfd.readouterr()
    assert (out, err) == ("", f"dflash: written to {page}\n")
    assert page.read_text(encoding="utf-8").count("<section>") == 2


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["{path}", "--speed", "fast"], 2, "a replay takes a speed"),
        (["{path}", "--answer", "3"], 2, "holds 2 answers; there is no answer 3"),
        (["{path}", "--html", "x.txt"], 2, "ends in .html"),
        (["{folder}/nothing"], 1, "cannot be read: No such file"),
        (["{folder}/empty"], 1, "holds no answer"),
        ([], 2, "FILE"),
    ],
)
def test_what_cannot_be_played(
    path: Path, tmp_path: Path, args: list[str], code: int, message: str, capfd: Any
) -> None:
    (tmp_path / "empty").touch()
    assert main(["replay", *(each.format(path=path, folder=tmp_path) for each in args)]) == code
    out, err = capfd.readouterr()
    assert out == ""
    assert message in err
    assert len(err.splitlines()) == 1


def test_ctrl_c_ends_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dflash_cli.replay.replay", lambda *_, **__: False)
    assert main(["replay", str(path)]) == 130
