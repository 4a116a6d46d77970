"""Draft times, and the one-layer drafter they are compared with."""

from __future__ import annotations

import json

import pytest
import torch
from click.testing import CliRunner

from backends.layers import run_layers
from dflash_cli.bench.command import bench_command
from dflash_cli.bench.draft_latency import BLOCKS, DEPTHS, EAGLE, draft_latency
from dflash_cli.bench.eagle import EagleDrafter, EagleDrafting
from dflash_cli.bench.timing import time_calls
from tests.tiny import make_target, randomize

CPU = torch.device("cpu")


def drafting(max_len: int = 64) -> EagleDrafting:
    target = make_target()
    drafter = EagleDrafter(target.config)
    randomize(drafter, 3)
    return EagleDrafting(target, drafter.eval(), max_len)


def test_a_chain_is_the_same_however_much_of_the_cache_is_read() -> None:
    each = drafting()
    anchors, start = torch.tensor([5]), torch.tensor([10])
    chain = each.draft(anchors, start, 6, 20)
    assert chain.shape == (1, 6)
    assert torch.equal(chain, each.draft(anchors, start, 6, 63))
    assert len(chain.unique()) > 1


def test_each_guess_follows_the_one_before() -> None:
    each, seen = drafting(), list[torch.Tensor]()

    def run(layers: object, x: torch.Tensor, *rest: object) -> object:
        seen.append(x)
        return run_layers(layers, x, *rest)  # type: ignore[arg-type]

    each.run = run  # type: ignore[assignment]
    chain = each.draft(torch.tensor([5]), torch.tensor([10]), 3, 20)
    embedded = each.target.embed(torch.cat((torch.tensor([[5]]), chain[:, :2]), 1))
    assert torch.equal(torch.cat([x[..., : embedded.shape[-1]] for x in seen], 1), embedded)
    assert x_features_differ(seen, embedded.shape[-1])


def x_features_differ(seen: list[torch.Tensor], size: int) -> bool:
    features = [x[0, 0, size:] for x in seen]
    return bool(features[0].abs().max() == 0) and not torch.equal(features[1], features[2])


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
