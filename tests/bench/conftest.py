"""Benchmarks in tests do not wait for an exact bandwidth."""

from __future__ import annotations

import pytest

from dflash_cli import doctor_machine


@pytest.fixture(autouse=True)
def small_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read to measure it is a megabyte."""
    monkeypatch.setattr(doctor_machine, "MOST_BYTES", 1 << 20)
    monkeypatch.setattr(doctor_machine, "MEASURE_SECONDS", 0.0)
