"""Cost estimates from noisy measurements, their file, and the calibration."""

from __future__ import annotations

import random
import stat
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from backends.base import Clock
from dflash_cli.costs import MAX_ENTRIES, Costs, CostsKey, calibrate, load, save

KEY = CostsKey("target", "drafter", "eager", "cpu", "float32", 2, 1, "1.0")
TIMES = st.floats(0.1, 1000)


def test_between_measured_widths_lies_a_straight_line() -> None:
    costs = Costs({1: 30.0, 8: 37.0, 16: 53.0}, 6.0)
    assert [costs.verify_ms(width) for width in (1, 2, 8, 12, 16)] == pytest.approx([30, 31, 37, 45, 53])
    assert costs.draft_ms == 6.0


@given(st.dictionaries(st.integers(1, 16), TIMES), st.lists(st.tuples(st.integers(1, 16), TIMES), max_size=40))
def test_a_wider_pass_never_costs_less(priors: dict[int, float], samples: list[tuple[int, float]]) -> None:
    costs = Costs(priors)
    for width, ms in samples:
        costs.observe(width, ms)
    curve = [costs.verify_ms(width) for width in range(1, 17)]
    assert all(wide >= narrow * (1 - 1e-9) for narrow, wide in pairwise(curve))
    assert min(curve) > 0


def test_measured_widths_replace_wrong_priors() -> None:
    costs = Costs({1: 10.0, 8: 100.0}, 50.0)
    for _ in range(5):
        costs.observe(8, 20.0, 4.0)
    for _ in range(5):
        costs.observe(1, 16.0)
    assert costs.verify_ms(8) == pytest.approx(20)
    assert costs.verify_ms(1) == pytest.approx(16)
    assert costs.draft_ms == pytest.approx(4)


def test_passes_that_were_held_up_do_not_count() -> None:
    noise = random.Random(3)
    costs = Costs()
    for index in range(3000):
        held_up = 5 if noise.random() < 0.05 else 1
        width = (1, 4, 8)[index // 100 % 3]
        costs.observe(width, (30 + width) * noise.gauss(1, 0.02) * held_up, 6 * held_up)
    for width in (1, 4, 8):
        assert costs.verify_ms(width) == pytest.approx(30 + width, rel=0.04)
    assert costs.draft_ms == pytest.approx(6, rel=0.04)


def test_one_pass_that_is_held_up_does_not_condemn_a_new_width() -> None:
    costs = Costs({1: 30.0, 16: 45.0}, 6.0)
    costs.observe(8, 5 * 37.0, 6.0)
    assert costs.verify_ms(8) < 40


def test_a_width_not_in_use_moves_with_the_context() -> None:
    costs = Costs({1: 30.0, 8: 36.0}, 6.0)
    for step in range(400):
        slower = 1 + 0.6 * step / 400
        costs.observe(8, 36 * slower, 6 * slower)
    assert costs.verify_ms(1) == pytest.approx(1.6 * 30, rel=0.03)
    for _ in range(3):
        costs.observe(1, 50.0)
    assert costs.verify_ms(1) == pytest.approx(50, rel=0.03)


@pytest.mark.parametrize("ms", [0.0, -1.0, float("nan"), float("inf")])
def test_impossible_times_are_ignored(ms: float) -> None:
    costs = Costs({1: 30.0, 8: 36.0}, 6.0)
    costs.observe(8, ms, ms)
    assert (costs.verify_ms(8), costs.draft_ms) == (36, 6)


def test_saved_figures_come_back_under_their_key_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "costs.json"
    save(path, KEY, Costs({1: 30.0, 8: 36.0}, 6.0))
    save(path, replace(KEY, threads=4), Costs({1: 20.0}))
    found = load(path, KEY)
    assert found is not None
    assert [found.verify_ms(1), found.verify_ms(8), found.draft_ms] == [30, 36, 6]
    assert load(path, replace(KEY, dtype="bfloat16")) is None
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_the_file_keeps_the_newest_entries(tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    for threads in range(MAX_ENTRIES + 2):
        save(path, replace(KEY, threads=threads), Costs({1: 30.0}))
    assert [load(path, replace(KEY, threads=threads)) is None for threads in (0, 1, 2)] == [True, True, False]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not json",
        "[]",
        '{"version": 99, "entries": {}}',
        '{"version": 1, "entries": []}',
        '{"version": 1, "entries": {KEY: 3}}',
        '{"version": 1, "entries": {KEY: {"verify_ms": {"8": 3.0}, "draft_ms": 1.0}}}',
        '{"version": 1, "entries": {KEY: {"verify_ms": {"1": "3"}, "draft_ms": 1.0}}}',
        '{"version": 1, "entries": {KEY: {"verify_ms": {"1": 3.0, "x": 1.0}, "draft_ms": 1.0}}}',
        '{"version": 1, "entries": {KEY: {"verify_ms": {"1": 3.0}, "draft_ms": -1.0}}}',
        '{"version": 1, "entries": {KEY: {"verify_ms": {"1": NaN}, "draft_ms": null}}}',
    ],
)
def test_a_damaged_file_holds_nothing_and_is_written_anew(text: str, tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    quoted = '"' + str(KEY).replace('"', '\\"') + '"'
    path.write_text(text.replace("KEY", quoted))
    assert load(path, KEY) is None
    save(path, KEY, Costs({1: 30.0}))
    assert load(path, KEY) is not None


class TimedBackend:
    """Takes `ms` by (what, width) on a clock of its own; the first pass of each shape takes ten times as long."""

    name, block_size, max_len, batch_size = "timed", 8, 64, 2
    device, dtype, quantize, draft_ids = torch.device("cpu"), torch.float32, "none", None

    def __init__(self, slower: float = 1.0) -> None:
        self.seconds, self.slower = 0.0, slower
        self.calls: list[tuple[str, int]] = []

    def _take(self, what: str, width: int, ms: float) -> None:
        first = (what, width) not in self.calls
        self.calls.append((what, width))
        self.seconds += ms * self.slower * (10 if first else 1) / 1e3

    def prefill(self, ids: Tensor, start: int, row: int = 0) -> Tensor:
        raise AssertionError("a calibration needs no prompt")

    def draft(self, anchors: Tensor, start: Sequence[int]) -> Tensor:
        assert (list(anchors.shape), list(start)) == ([2], [5, 5])
        self._take("draft", self.block_size, 6.0)
        return torch.zeros(2, self.block_size - 1, 4)

    def verify(self, ids: Tensor, start: Sequence[int]) -> Tensor:
        assert (ids.shape[0], list(start)) == (2, [5, 5])
        self._take("verify", ids.shape[1], 30.0 + ids.shape[1])
        return torch.zeros(2, ids.shape[1], 4)


class BackendClock(Clock):
    """Reads the time of a TimedBackend."""

    def __init__(self, backend: TimedBackend) -> None:
        super().__init__(backend.device)
        self.backend = backend

    def mark(self) -> float:
        return self.backend.seconds


def calibrated(backend: TimedBackend) -> Costs:
    return calibrate(backend, BackendClock(backend), 5, now=lambda: backend.seconds)


def test_a_calibration_measures_a_few_widths_without_their_first_pass() -> None:
    backend = TimedBackend(slower=0.1)
    costs = calibrated(backend)
    assert [costs.verify_ms(width) for width in (1, 2, 4, 6, 8)] == pytest.approx([3.1, 3.2, 3.4, 3.6, 3.8])
    assert costs.draft_ms == pytest.approx(0.6)
    assert {width for what, width in backend.calls if what == "verify"} == {1, 2, 4, 8}


def test_a_calibration_of_a_slow_model_is_cut_short_but_knows_what_is_needed() -> None:
    backend = TimedBackend(slower=100.0)
    costs = calibrated(backend)
    assert sorted(backend.calls) == [("draft", 8), ("verify", 1), ("verify", 8)]
    assert all(costs.is_measured(key) for key in (0, 1, 8))


def test_a_first_pass_counts_for_nothing_where_it_can_be_helped() -> None:
    backend = TimedBackend()
    costs = calibrated(backend)
    assert [costs.verify_ms(width) for width in (1, 2, 4, 8)] == pytest.approx([31, 32, 34, 38])
    assert costs.draft_ms == pytest.approx(6)


def test_a_calibration_without_a_drafter_is_one_figure() -> None:
    backend = TimedBackend()
    backend.block_size = 1
    costs = calibrated(backend)
    assert costs.verify_ms(1) == pytest.approx(31)
    assert {what for what, _ in backend.calls} == {"verify"}


def test_no_torch_is_imported() -> None:
    code = "import sys, dflash_cli.costs, dflash_cli.depth; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
