"""Peak memory of a CPU process: it sees what was allocated since the reset."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from dflash_cli.bench import peak
from dflash_cli.bench.peak import PeakMemory

SIZE = 300_000_000


def test_an_allocation_raises_the_peak() -> None:
    memory = PeakMemory(torch.device("cpu"))
    memory.reset()
    before = memory.bytes()
    torch.ones(SIZE, dtype=torch.uint8)
    after = memory.bytes()
    assert before is not None
    assert after is not None
    assert after - before > SIZE / 2


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can reset a process's peak")
def test_a_reset_forgets_what_was_let_go() -> None:
    memory = PeakMemory(torch.device("cpu"))
    torch.ones(SIZE, dtype=torch.uint8)
    high = memory.bytes()
    memory.reset()
    low = memory.bytes()
    assert high is not None
    assert low is not None
    assert high - low > SIZE / 2


def test_without_procfs_it_is_the_peak_since_the_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(peak, "_STATUS", tmp_path / "none")
    monkeypatch.setattr(peak, "_CLEAR", tmp_path / "none" / "none")
    memory = PeakMemory(torch.device("cpu"))
    memory.reset()
    found = memory.bytes()
    assert found is not None
    assert found > 10_000_000


def test_elsewhere_it_is_not_known() -> None:
    assert PeakMemory(torch.device("meta")).bytes() is None
