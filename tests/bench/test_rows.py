"""Rows: medians over rounds, speed-ups within a round, the share of the limit, the documented JSON."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console

from backends.config import TargetConfig
from dflash_cli.bench.agreement import Agreement
from dflash_cli.bench.case import Case
from dflash_cli.bench.limit import Limit
from dflash_cli.bench.rows import Row, make_rows
from dflash_cli.bench.runner import Runner, Watch
from dflash_cli.bench.subject import Place
from dflash_cli.bench.table import BEYOND, PEAK_OF_ALL, bench_view
from tests.bench.fakes import PLACE, FakeSubject
from tests.tiny import target_dict

CASES = [Case("math", None, (1,) * 20), Case("math", None, (2,) * 30)]
DOCUMENTED = [
    "name", "kind", "backend", "dtype", "block_size", "batch", "context", "tokens_per_s", "speedup", "tau", "ttft_ms",
    "draft_ms", "verify_ms", "step_ms", "overhead_ms", "peak_mb",
]  # fmt: skip
LIMIT = Limit(TargetConfig.from_dict(target_dict()), None, 4, 1e9)


def rows_of(*subjects: FakeSubject, rounds: int = 3, agreement: Agreement | None = None) -> list[Row]:
    runner = Runner(subjects, CASES, rounds, Watch())
    runner.run()
    measured = list(runner.measured.values())
    agreements = {id(each): agreement for each in measured} if agreement else {}
    return make_rows(measured, agreements, {"float32": LIMIT})


def test_medians_spread_and_speed_ups_within_a_round() -> None:
    # The machine is three times slower in the second round, for both alike.
    slow = [1.0, 1.0, 3.0, 3.0, 1.0, 1.0]
    plain, fast = rows_of(
        FakeSubject("plain", [], lambda nth: 100 * slow[nth]), FakeSubject("dflash", [], lambda nth: 50 * slow[nth])
    )
    assert (plain.tokens_per_s, fast.tokens_per_s) == pytest.approx((100.0, 200.0))
    assert (plain.speedup, fast.speedup) == pytest.approx((1.0, 2.0))
    assert fast.spread == pytest.approx((200 - 200 / 3) / 200)
    assert (fast.tau, fast.rate, fast.survival) == (2.0, 1.0, [1.0])
    assert (fast.step_ms, fast.draft_ms, fast.verify_ms, fast.overhead_ms) == pytest.approx((10, 1, 5, 4))
    assert (fast.context, fast.peak_mb, fast.rounds, fast.tokens) == (25, 2.0, 3, 66)


def test_the_share_of_the_limit() -> None:
    (plain,) = rows_of(FakeSubject("plain", []))
    assert plain.limit_ms == pytest.approx(LIMIT.step_ms(25 + 11 / 2))
    assert plain.limit_share == pytest.approx(LIMIT.step_ms(25 + 11 / 2) / 20)


def test_speed_ups_need_the_same_place_and_a_peer_names_its_own() -> None:
    other = Place("compile", "float32", 1, 0.0)
    peer = Place("transformers", "float32", 1, 0.0)
    plain, alone, hf = rows_of(
        FakeSubject("plain", []), FakeSubject("dflash", [], place=other),
        FakeSubject("hf-generate", [], lambda _: 400.0, place=peer, baseline=PLACE, block_size=None),
    )  # fmt: skip
    assert plain.speedup == 1.0
    assert alone.speedup is None
    assert hf.speedup == pytest.approx(0.25)
    assert hf.limit_ms is None
    assert (hf.label, alone.label) == ("hf-generate", "dflash 1")


def test_after_ctrl_c_only_whole_rounds_count_and_the_same_prompts_are_compared() -> None:
    def stops(nth: int) -> float:
        if nth == 3:
            raise KeyboardInterrupt
        return 50.0

    plain, fast = rows_of(FakeSubject("plain", []), FakeSubject("dflash", [], stops))
    assert (plain.rounds, fast.rounds) == (1, 1)
    assert fast.speedup == pytest.approx(2.0)


def test_the_json_object_begins_with_what_is_documented() -> None:
    (row,) = rows_of(FakeSubject("dflash", [], block_size=8), agreement=Agreement(4, 1, 1))
    entry = row.as_dict()
    assert list(entry)[: len(DOCUMENTED)] == DOCUMENTED
    assert (entry["name"], entry["kind"], entry["block_size"]) == ("dflash", "math", 8)
    assert (entry["identical"], entry["differing"], entry["ties"]) == (False, 1, 1)
    assert entry["simulated"] is False


@pytest.mark.parametrize("applies", [True, False])
def test_the_heads_say_what_the_numbers_are_of(applies: bool) -> None:
    """Peak memory may be of all that is loaded; weights in a large cache are read faster than memory gives them."""
    (row,) = rows_of(FakeSubject("plain", []))
    console = Console(width=300)
    with console.capture() as caught:
        console.print(bench_view("x", [], [replace(row, limit_share=1.5 if applies else 0.9)], whole_process=applies))
    assert [each in caught.get() for each in (PEAK_OF_ALL, BEYOND)] == [applies, applies]
