"""JSON and CSV that programs can read."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from dflash_cli.stats_store.export import to_csv, to_json
from dflash_cli.stats_store.selection import Selection
from dflash_cli.stats_store.show import show
from dflash_cli.stats_store.store import StatsStore
from dflash_cli.stats_store.views import GROUPS
from tests.stats_store.rows import entry

VIEWS = (*GROUPS, "overview", "lengths", "positions", "time", "trend", "turns")


@pytest.mark.parametrize("what", VIEWS)
@pytest.mark.parametrize("count", [0, 2])
def test_every_view_goes_both_ways(tmp_path: Path, what: str, count: int) -> None:
    store = StatsStore(tmp_path / "stats.db")
    store.add([entry(pair='a, "b"')] * count)
    shown = show(store, Selection(), what, 9)
    assert shown.is_empty == (count == 0)
    data = json.loads(to_json(shown.data))
    rows = list(csv.DictReader(io.StringIO(to_csv(shown.rows))))
    assert len(rows) == len(shown.rows)
    if count and what == "pair":
        assert data[0]["pair"] == rows[0]["pair"] == 'a, "b"'
        assert (data[0]["drafter"], float(rows[0]["tau"])) == ("d", data[0]["tau"])


def test_a_cell_is_no_formula() -> None:
    text = to_csv([{"a": "=1+1", "b": -1.5, "c": None, "d": {"1": 2}, "e": "@x"}])
    assert text == 'a,b,c,d,e\n\'=1+1,-1.5,,"{""1"": 2}",\'@x\n'


def test_json_is_ascii() -> None:
    assert to_json({"ü": "\x1b"}).isascii()
