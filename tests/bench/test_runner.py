"""Taking turns: warm-up apart, everybody on the same prompts, every second round backwards, a clean end by Ctrl-C."""

from __future__ import annotations

from dflash_cli.bench.case import Case
from dflash_cli.bench.runner import Runner, Watch
from tests.bench.fakes import FakeSubject, Place

CASES = [Case("math", None, (1, 7, 7)), Case("math", None, (2, 7)), Case("code", None, (3,))]


def test_all_take_turns_on_each_prompt() -> None:
    calls: list[str] = []
    seen: list[tuple[int, int]] = []
    watch = Watch(advance=lambda done, total: seen.append((done, total)))
    runner = Runner([FakeSubject("a", calls), FakeSubject("b", calls)], CASES, 2, watch)
    runner.run()
    assert calls == ["warm a3", "warm b3", "a1", "b1", "a2", "b2", "a3", "b3", "b1", "a1", "b2", "a2", "b3", "a3"]
    assert seen[-1] == (12, 12)
    assert not runner.interrupted
    math = runner.measured[0, ("math", None)]
    assert [sorted(each) for each in math.rounds] == [[0, 1], [0, 1]]


def test_each_stage_is_told() -> None:
    stages: list[str] = []
    runner = Runner([FakeSubject("dflash", [], block_size=8)], CASES, 1, Watch(stage=stages.append))
    runner.run()
    assert stages == ["warm-up 1 of 1: dflash 8, eager", "measuring"]


def test_all_settles_once_between_warm_up_and_measuring() -> None:
    calls: list[str] = []
    subjects = [FakeSubject("a", calls), FakeSubject("b", calls)]
    Runner(subjects, CASES[:1], 1, Watch(), lambda: calls.append("settle")).run()
    assert calls == ["warm a3", "warm b3", "settle", "a1", "b1"]


def test_what_compiles_tells_how_far_it_is() -> None:
    stages: list[str] = []
    progress = Watch(stage=stages.append).follow("making compile ready")
    progress(0, 0)
    progress(1, 2)
    assert stages == ["making compile ready", "making compile ready, compiling 1 of 2"]


def test_a_batch_takes_the_next_prompts_of_its_kind() -> None:
    runner = Runner([FakeSubject("a", [], place=Place("eager", "float32", 3, 0.0))], CASES, 1, Watch())
    assert runner._rows(0, ("math", None), 1) == [(2, 7), (1, 7, 7), (2, 7)]


def test_ctrl_c_keeps_what_was_measured() -> None:
    def ms(nth: int) -> float:
        if nth == 2:
            raise KeyboardInterrupt
        return 100.0

    runner = Runner([FakeSubject("a", [], ms), FakeSubject("b", [])], CASES, 3, Watch())
    runner.run()
    assert runner.interrupted
    assert len(runner.measured[0, ("math", None)].samples) == 2
    assert runner.measured[0, ("code", None)].samples == []


def test_ctrl_c_in_the_warm_up_measures_nothing() -> None:
    class Stopped(FakeSubject):
        def warm_up(self, rows: object) -> None:
            raise KeyboardInterrupt

    runner = Runner([Stopped("a", [])], CASES, 1, Watch())
    runner.run()
    assert runner.interrupted
    assert not any(each.samples for each in runner.measured.values())
