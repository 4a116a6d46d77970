"""Draft times: all shapes and depths are measured, and what is told of them."""

from __future__ import annotations

import json

import pytest
import torch
from click.testing import CliRunner

from dflash_cli.bench.command import bench_command
from dflash_cli.bench.draft_latency import BLOCKS, DEPTHS, EAGLE, draft_latency
from dflash_cli.bench.timing import time_calls

CPU = torch.device("cpu")


def test_all_drafts_are_timed() -> None:
    told: list[str] = []
    found = draft_latency("tiny", ["eager"], torch.float32, CPU, 20, 2, told.append)
    keys = [(each.drafter, each.layers, each.tokens, each.drafts) for each in found]
    deep = [(f"DFlash, {depth} layer{'s' if depth > 1 else ''}", depth, n, n - 1) for depth in DEPTHS for n in BLOCKS]
    assert keys == [*deep, *((EAGLE, 1, n, n - 1) for n in BLOCKS)]
    assert all(0 < each.low <= each.ms <= each.high for each in found)
    assert told == ["draft latency: warm-up of eager", "draft latency: measuring eager"]


def test_the_command_prints_a_table_or_json() -> None:
    arguments = ["--draft-latency", "--synthetic", "tiny", "--device", "cpu", "--dtype", "float32", "--rounds", "1"]
    arguments += ["--contexts", "20", "-q"]
    table = CliRunner().invoke(bench_command, arguments, catch_exceptions=False).stdout
    assert "DFlash, 5 layers" in table
    assert EAGLE in table
    result = json.loads(CliRunner().invoke(bench_command, [*arguments, "--json"], catch_exceptions=False).stdout)
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
