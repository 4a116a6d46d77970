"""Draft times: all shapes and depths are measured, and what is told of them."""

from __future__ import annotations

import json
import weakref
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from backends.drafter import Drafter
from dflash_cli.bench import draft_latency as module
from dflash_cli.bench.command import bench_command
from dflash_cli.bench.draft_latency import BLOCKS, DEPTHS, EAGLE, draft_latency
from dflash_cli.bench.runner import Watch
from dflash_cli.bench.timing import Timed, time_calls
from dflash_cli.cli import main
from dflash_cli.memory_fit import NotEnoughMemory

CPU = torch.device("cpu")
COMMAND = ["--draft-latency", "--synthetic", "tiny", "--device", "cpu", "--dtype", "float32", "--rounds", "1"]
COMMAND += ["--contexts", "20", "-q"]


def test_all_drafts_are_timed() -> None:
    told: list[str] = []
    watch = Watch(stage=told.append)
    found = list(draft_latency("tiny", ["eager"], torch.float32, CPU, 20, 2, watch))
    keys = [(each.drafter, each.layers, each.tokens, each.drafts) for each in found]
    deep = [(f"DFlash, {depth} layer{'s' if depth > 1 else ''}", depth, n, n - 1) for depth in DEPTHS for n in BLOCKS]
    assert keys == [*deep, *((EAGLE, 1, n, n - 1) for n in BLOCKS)]
    assert all(0 < each.low <= each.ms <= each.high for each in found)
    assert told[:3] == [
        "draft latency: making weights", "draft latency: warm-up of DFlash, 1 layer, 4 ids, eager",
        "draft latency: warm-up of DFlash, 1 layer, 8 ids, eager",
    ]  # fmt: skip
    assert told[-1] == f"draft latency: measuring {EAGLE}"


def test_one_drafter_at_a_time_is_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[weakref.ref[Drafter]] = []
    real = module.random_drafter

    def watched(*arguments: Any) -> Drafter:
        assert [each() for each in made] == [None] * len(made)
        drafter = real(*arguments)
        made.append(weakref.ref(drafter))
        return drafter

    monkeypatch.setattr(module, "random_drafter", watched)
    list(draft_latency("tiny", ["eager"], torch.float32, CPU, 20, 1))
    assert len(made) == len(DEPTHS) + 1


def test_what_does_not_fit_is_refused_before_anything_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "free_memory", lambda _device: 5 * 10**9)
    monkeypatch.setattr(module, "random_target", lambda *_: pytest.fail("made"))
    for dtype, advice in (
        (torch.bfloat16, "Use smaller --contexts"),
        (torch.float32, "Use --dtypes bfloat16, smaller"),
    ):
        with pytest.raises(NotEnoughMemory, match=rf"DFlash, 5 layers needs .* GB .*, 5\.0 GB free\. {advice}"):
            next(draft_latency("qwen3-8b", ["eager"], dtype, CPU, 200, 1))


def test_ctrl_c_keeps_the_drafters_that_were_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = module.time_calls
    count = [0]

    def stopping(*arguments: Any) -> dict[str, Timed]:
        count[0] += 1
        if count[0] == 3:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(module, "time_calls", stopping)
    assert main(["bench", *COMMAND, "--json"]) == 130
    found = json.loads(capsys.readouterr().out)
    assert found["settings"]["interrupted"] is True
    assert [each["drafter"] for each in found["draft_latency"]] == ["DFlash, 1 layer"] * 3 + ["DFlash, 3 layers"] * 3


def test_the_command_prints_a_table_or_json() -> None:
    table = CliRunner().invoke(bench_command, COMMAND, catch_exceptions=False).stdout
    assert "DFlash, 5 layers" in table
    assert EAGLE in table
    result = json.loads(CliRunner().invoke(bench_command, [*COMMAND, "--json"], catch_exceptions=False).stdout)
    assert len(result["draft_latency"]) == 12
    assert {"machine", "settings"} < result.keys()


def test_calls_are_timed_by_turns_after_a_warm_up() -> None:
    order: list[str] = []

    def call(name: str) -> torch.Tensor:
        order.append(name)
        return torch.zeros(1, 4)

    timed = time_calls({"a": lambda: call("a"), "b": lambda: call("b")}, CPU, 2)
    assert "".join(order) == "aaabbb" + "abab"
    assert timed["a"].low <= timed["a"].ms <= timed["a"].high
    assert timed["a"].as_dict().keys() == {"ms", "low", "high"}


@pytest.mark.parametrize("values", [torch.zeros(1, 3), torch.zeros(1, 3, dtype=torch.long)])
def test_logits_and_ids_can_both_be_timed(values: torch.Tensor) -> None:
    assert time_calls({"x": lambda: values}, CPU, 1)["x"].ms >= 0
