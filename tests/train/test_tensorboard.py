"""What TensorBoard reads back: every number, each step once however often a run goes on, and no word of a full disk."""

from __future__ import annotations

import errno
import logging
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from dflash_cli.errors import DFlashError
from dflash_cli.train.metrics import Metrics
from dflash_cli.train.report import Reporter
from dflash_cli.train.tensorboard import Board, require_tensorboard, scalars

STEP = {"step": 3, "tokens": 40, "loss": 2.5, "proxy_tau": 1.5, "hits": [0.5, 0.25], "lr": 1e-3, "norm": 0.7}
MEASURED = {"step": 3, "tau": 2.0, "tau_by_source": {"math": 3.0}, "positions_by_source": {"math": [0.9]}, "note": "x"}


def read(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard's own reader makes of the files: tag -> (step, value)."""
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logging.getLogger("tensorboard").setLevel(logging.ERROR)
    found = EventAccumulator(str(folder))
    found.Reload()
    return {tag: [(each.step, each.value) for each in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def test_every_number_has_a_name() -> None:
    assert dict(scalars(STEP)) == {
        "training/tokens": 40, "training/loss": 2.5, "training/proxy_tau": 1.5, "hits/slot_01": 0.5,
        "hits/slot_02": 0.25, "training/lr": 1e-3, "training/norm": 0.7,
    }  # fmt: skip
    assert dict(scalars(MEASURED)) == {
        "measured/tau": 2.0, "tau_by_source/math": 3.0, "positions_by_source/math/slot_01": 0.9
    }  # fmt: skip


def test_a_run_that_goes_on_writes_no_step_twice(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    for begin, end in ((0, 6), (3, 5), (4, 9)):  # killed at 6, its checkpoint is of step 3, and so on
        metrics = Metrics(tmp_path / "m.jsonl", Reporter(quiet=True), Board(tmp_path / "board"))
        metrics.cut(begin)
        for step in range(begin + 1, end + 1):
            metrics.add(STEP | {"step": step, "loss": begin * 100 + step})
        metrics.add(MEASURED | {"step": end})
        metrics.close()
    found = read(tmp_path / "board")
    expected = [(1, 1), (2, 2), (3, 3), (4, 304), *((step, 400 + step) for step in range(5, 10))]
    assert found["training/loss"] == expected == [(e["step"], e["loss"]) for e in metrics.entries() if "loss" in e]
    assert found["measured/tau"] == [(9, 2.0)]
    files = list((tmp_path / "board").iterdir())
    assert len(files) == 3
    if os.name == "posix":
        assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


def test_a_full_disk_costs_the_board_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorboard")
    metrics = Metrics(tmp_path / "m.jsonl", Reporter(), board := Board(tmp_path / "board"))
    metrics.cut(0)
    metrics.add(STEP)
    real = board._write

    def full(event: Any) -> None:
        if event.step > 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(event)

    monkeypatch.setattr(board, "_write", full)
    metrics.add(STEP | {"step": 4})
    metrics.add(STEP | {"step": 5})
    metrics.close()
    told = capsys.readouterr().err
    assert told.count("No space left on device; training goes on without TensorBoard") == 1
    assert "Traceback" not in told
    assert [entry["step"] for entry in metrics.entries()] == [3, 4, 5]
    assert [step for step, _ in read(tmp_path / "board")["training/loss"]] == [3]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_costs_lines_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metrics = Metrics(tmp_path / "m.jsonl", Reporter())
    metrics.path.symlink_to("/dev/full")
    for step in (1, 2):
        metrics.add(STEP | {"step": step})
    assert capsys.readouterr().err.count("No space left on device; training goes on without it") == 1


def test_a_board_that_cannot_begin_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tensorboard")
    (tmp_path / "board").write_text("a file where the folder should be")
    metrics = Metrics(tmp_path / "m.jsonl", Reporter(), Board(tmp_path / "board"))
    metrics.cut(0)
    metrics.add(STEP)
    assert "training goes on without TensorBoard" in capsys.readouterr().err
    assert len(metrics.entries()) == 1


def test_without_tensorboard_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto.event_pb2", None)
    with pytest.raises(DFlashError, match=r"--tensorboard needs tensorboard: pip install 'dflash-cli\[tensorboard\]'"):
        require_tensorboard()
