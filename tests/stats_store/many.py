"""A store with very many turns, made by SQL: `python -m tests.stats_store.many FILE COUNT` makes one to look at."""

from __future__ import annotations

import sys
from dataclasses import astuple, fields
from pathlib import Path

from dflash_cli.stats_store.row import Row
from dflash_cli.stats_store.schema import REBUILD, run_script
from dflash_cli.stats_store.store import StatsStore
from tests.stats_store.rows import entry

DAYS = 365
PASSES = [(2, 3), (0, 3)]  # few kinds of them: to add up their histograms is most of the time this takes
VARIED = {
    "day": "date('2026-01-01', '+' || (n * {days} / {count}) || ' days')",
    "version": "CASE WHEN n * 2 < {count} THEN '1.0' ELSE '1.1' END",
    "pair": "'pair-' || (n % 3)",
    "backend": "CASE n % 2 WHEN 0 THEN 'eager' ELSE 'compiled' END",
    "kind": "CASE n % 5 WHEN 0 THEN 'code' WHEN 1 THEN 'math' WHEN 2 THEN 'thinking' ELSE 'prose' END",
    "temperature": "(n % 2) * 0.7",
    "depth": "512 << (n % 4)",
    "decode_ms": "900 + n % 200",
}


def fill(store: StatsStore, count: int) -> None:
    """Add `count` turns over a year; sums are made at the end, as a migration makes them."""
    store.add([entry(PASSES)])
    names = [each.name for each in fields(Row)]
    values = [VARIED.get(name, "?").format(count=count, days=DAYS) for name in names]
    given = [value for name, value in zip(names, astuple(entry(PASSES).row), strict=True)
             if name not in VARIED]  # fmt: skip
    rest = f"INSERT INTO turns ({', '.join(names)}) WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {count - 1}) SELECT {', '.join(values)} FROM numbers"  # noqa: E501
    store.query("DROP TRIGGER add_turn")
    store.query(rest, given)
    store._try(lambda connection: run_script(connection, REBUILD))


if __name__ == "__main__":
    fill(StatsStore(Path(sys.argv[1])), int(sys.argv[2]))
