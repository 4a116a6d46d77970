"""The curve: rows that tell its form, what the last doubling brought, and a picture whatever the sources are called."""

from __future__ import annotations

import errno
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_cli.overlay_render import ASCII
from dflash_cli.train.curve import curve_lines, last_doubling, show_curve, thinned
from dflash_cli.train.report import Reporter

CURVE = [(100, 1000, 1.5), (200, 2000, 2.0), (300, 3000, 2.25), (400, 4000, 2.5)]
ODD = "a$b_{ <&>\x1b 数学"
ENTRIES = [{"step": n, "tokens": 10 * n, "loss": 5 / n, "proxy_tau": 1 + n / 400} for n in range(1, 401)]
ENTRIES += [
    {"step": step, "tokens": tokens, "tau": tau, "tau_by_source": {"_math": tau, ODD: 1.2} if step > 100 else {}}
    for step, tokens, tau in CURVE
]


def test_rows_and_what_the_last_doubling_brought() -> None:
    assert curve_lines(CURVE) == [
        "  answer tokens      τ",
        "          1,000   1.50  " + "▮" * 11,
        "          2,000   2.00  " + "▮" * 21,
        "          3,000   2.25  " + "▮" * 27,
        "          4,000   2.50  " + "▮" * 32,
        "the last doubling of the tokens brought +0.50",
    ]
    assert "".join(curve_lines(CURVE, ASCII)).isascii()
    assert curve_lines([]) == []
    assert curve_lines([(0, 0, 1.0)])[1:] == ["              0   1.00"]


def test_half_way_between_two_measurements() -> None:
    assert last_doubling([(1, 100, 1.0), (2, 200, 2.0), (3, 300, 4.0)]) == pytest.approx(2.5)
    assert last_doubling([(1, 200, 1.0), (2, 300, 2.0)]) is None


@given(st.lists(st.integers(), max_size=60), st.integers(2, 20))
def test_thinned_keeps_both_ends(items: list[int], most: int) -> None:
    found = thinned(items, most)
    assert len(found) == min(len(items), most)
    assert (found[:1], found[-1:]) == (items[:1], items[-1:])


@given(st.lists(st.tuples(st.integers(0, 5), st.floats(1, 9)), max_size=40))
def test_any_curve_can_be_told(steps: list[tuple[int, float]]) -> None:
    """Measured twice at a place, or going down: a row each, no row without an end."""
    curve, tokens = [], 0
    for step, (more, tau) in enumerate(steps):
        tokens += more
        curve.append((step, tokens, tau))
    lines = curve_lines(curve)
    assert len(lines) <= 14
    assert all(len(line) < 60 for line in lines)


def test_a_picture_whatever_the_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    show_curve(CURVE, ENTRIES, tmp_path / "work" / "curve.svg", Reporter())
    assert ET.parse(tmp_path / "work" / "curve.svg").getroot().tag.endswith("svg")
    told = capsys.readouterr().err
    assert "τ" in told.splitlines()[0]
    assert told.endswith(f"the curve is drawn in {tmp_path / 'work' / 'curve.svg'}\n")
    assert "Warning" not in told


def test_a_run_stopped_before_it_was_measured_has_no_curve(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show_curve([], ENTRIES[:3], tmp_path / "curve.svg", Reporter())
    assert capsys.readouterr().err == ""
    assert not list(tmp_path.iterdir())


def test_without_matplotlib_one_line_says_how_to_have_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    show_curve(CURVE, ENTRIES, tmp_path / "curve.svg", Reporter())
    told = capsys.readouterr().err.splitlines()
    assert told[-1] == "dflash: a picture of the curve needs matplotlib: pip install 'dflash-cli[plot]'"
    assert len(told) == len(curve_lines(CURVE)) + 1


def test_a_full_disk_costs_the_picture_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    show_curve(CURVE, ENTRIES, tmp_path / "curve.svg", Reporter())
    assert "cannot write" in capsys.readouterr().err.splitlines()[-1]
    assert not list(tmp_path.iterdir())
