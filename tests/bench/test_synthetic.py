"""Random weights of real shapes, and a whole simulated benchmark on tiny ones."""

from __future__ import annotations

import json

import pytest
import torch
from click.testing import CliRunner

from backends.config import DrafterConfig, TargetConfig
from dflash_cli.bench.command import bench_command
from dflash_cli.bench.shapes import SHAPES, shape_of
from dflash_cli.bench.synthetic import random_cases, synthetic_weights
from dflash_cli.errors import DFlashError, UsageError
from dflash_cli.memory import target_parameters
from dflash_cli.pairing import mismatches


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_is_a_pair_that_fits(name: str) -> None:
    target, drafter = shape_of(name)
    assert list(mismatches(TargetConfig.from_dict(target), DrafterConfig.from_dict(drafter))) == []


def test_the_shapes_have_the_sizes_they_are_named_for() -> None:
    billions = {name: target_parameters(TargetConfig.from_dict(target)) / 1e9 for name, (target, _) in SHAPES.items()}
    assert billions == pytest.approx({"qwen3-8b": 8.19, "qwen3-4b": 4.02, "llama-3.1-8b": 8.03, "tiny": 0.0}, abs=0.01)
    with pytest.raises(UsageError, match="did you mean 'qwen3-8b'"):
        shape_of("qwen3-8")


def test_weights_are_made_in_the_dtype_and_are_the_same_every_time() -> None:
    one, two = (synthetic_weights("tiny", torch.float32, torch.device("cpu"), 512) for _ in range(2))
    assert one.dtype == "float32"
    assert torch.equal(one.target.lm_head.weight, two.target.lm_head.weight)
    assert one.target.model.norm.weight.unique().tolist() == [1.0]
    assert [len(case.ids) for case in random_cases(one, (7, 9), 2)] == [7, 7, 9, 9]


def test_what_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dflash_cli.bench.synthetic.free_memory", lambda _: 10**9)
    with pytest.raises(DFlashError, match="not enough memory"):
        synthetic_weights("qwen3-8b", torch.bfloat16, torch.device("cpu"), 512)


def test_a_simulated_benchmark() -> None:
    arguments = "--synthetic tiny --device cpu --dtype float32 --rounds 2 --samples 1 -n 61 --contexts 30 --json -q"
    done = CliRunner().invoke(bench_command, [*arguments.split(), "--taus", "3,5.5"], catch_exceptions=False)
    result = json.loads(done.stdout)
    plain, *simulated = result["rows"]
    assert (plain["name"], plain["simulated"], plain["tau"]) == ("plain", False, 1.0)
    assert [(each["name"], each["simulated_tau"], each["block_size"]) for each in simulated] == [
        ("dflash", 3.0, 16), ("dflash", 5.5, 16),
    ]  # fmt: skip
    assert [each["tau"] for each in simulated] == pytest.approx([3.0, 5.5], abs=0.3)
    assert all(each["simulated"] and each["identical"] is None for each in simulated)
    assert result["settings"]["target"] == "synthetic:tiny"


def test_quantised_weights_must_fit_as_they_are_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    """8 GB once they are in int8, 16 GB before."""
    monkeypatch.setattr("dflash_cli.bench.synthetic.free_memory", lambda _: 14 * 10**9)
    with pytest.raises(DFlashError, match=r"weights 8\.\d GB, .* more while they are converted"):
        synthetic_weights("qwen3-8b", torch.bfloat16, torch.device("cpu"), 512, quantize="int8")
