"""Device, dtype, context and sampling defaults, and what is refused before any weight is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from backends.config import TargetConfig
from dflash_cli.config import Config
from dflash_cli.errors import DFlashError, UsageError
from dflash_cli.loading import CONTEXT_CAP, load, pick_context, pick_device, pick_dtype, sampling_params
from dflash_cli.sampling import SamplingParams
from tests.tiny import target_dict, write_pair

QWEN3 = {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "eos_token_id": [1, 2]}


@pytest.mark.parametrize(
    ("config", "defaults", "expected"),
    [
        (Config(), {}, SamplingParams()),
        (Config(), QWEN3, SamplingParams(0.6, 20, 0.95)),
        (Config(), {"do_sample": True, "top_p": 0.9}, SamplingParams(1.0, top_p=0.9)),
        (Config(), {"temperature": 0.7}, SamplingParams()),
        (Config(), QWEN3 | {"do_sample": False}, SamplingParams(0.0, 20, 0.95)),
        (Config(temperature=0.0), QWEN3, SamplingParams(0.0, 20, 0.95)),
        (Config(temperature=1.1, top_k=0, seed=3), QWEN3, SamplingParams(1.1, 0, 0.95, seed=3)),
        (Config(), {"repetition_penalty": 1.1, "min_p": None}, SamplingParams(repetition_penalty=1.1)),
    ],
)
def test_sampling_defaults_come_from_the_checkpoint(
    config: Config, defaults: dict[str, Any], expected: SamplingParams
) -> None:
    assert sampling_params(config, defaults) == expected


def test_a_checkpoints_sampling_must_be_numbers() -> None:
    with pytest.raises(DFlashError, match=r"generation_config.json has temperature '0.6'; expected a number"):
        sampling_params(Config(), QWEN3 | {"temperature": "0.6"})


def test_devices() -> None:
    assert pick_device("cpu").type == "cpu"
    assert pick_device("auto").type in ("cpu", "cuda", "mps")
    with pytest.raises(DFlashError, match="cuda:63 is not there"):
        pick_device("cuda:63")
    with pytest.raises(UsageError, match="unknown device 'tpu9'"):
        pick_device("tpu9")


def test_dtypes() -> None:
    assert pick_dtype("float16", torch.device("cpu")) == torch.float16
    assert pick_dtype("auto", torch.device("mps")) == torch.float16
    assert pick_dtype("auto", torch.device("cpu")) in (torch.bfloat16, torch.float32)


def test_contexts() -> None:
    small, large = (TargetConfig.from_dict(target_dict(max_position_embeddings=n)) for n in (512, 40960))
    assert pick_context(None, small) == 512
    assert pick_context(None, large) == CONTEXT_CAP
    assert pick_context(40960, large) == 40960
    with pytest.raises(UsageError, match="at most 512"):
        pick_context(513, small)


def test_a_pair_that_does_not_fit_is_refused_before_its_weights_are_read(tmp_path: Path) -> None:
    target, drafter = write_pair(tmp_path)
    for file in (target / "model.safetensors", drafter / "model.safetensors"):
        file.write_bytes(b"not weights at all")
    config = json.loads((drafter / "config.json").read_text())
    (drafter / "config.json").write_text(json.dumps(config | {"num_target_layers": 7}))
    with pytest.raises(DFlashError, match="number of target layers 7, the target has 5"):
        load(Config(model=str(target), draft=str(drafter)))


def test_a_drafter_with_another_tokenizer_is_refused(tmp_path: Path) -> None:
    target, drafter = write_pair(tmp_path)
    text = (target / "tokenizer.json").read_text()
    (drafter / "tokenizer.json").write_text(text)
    (drafter / "tokenizer_config.json").write_text((target / "tokenizer_config.json").read_text())
    load(Config(model=str(target), draft=str(drafter)))
    (drafter / "tokenizer.json").write_text(text.replace("<|endoftext|>", "<|other|>"))
    with pytest.raises(DFlashError, match="its tokenizer is another one"):
        load(Config(model=str(target), draft=str(drafter)))


def test_too_little_memory_is_refused_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, drafter = write_pair(tmp_path)
    monkeypatch.setattr("dflash_cli.loading.free_memory", lambda _device: 1000)
    with pytest.raises(DFlashError, match=r"not enough memory on cpu: .* free\. Use "):
        load(Config(model=str(target), draft=str(drafter)))


def test_a_target_is_told_apart_from_a_drafter(tmp_path: Path) -> None:
    target, drafter = write_pair(tmp_path)
    with pytest.raises(ValueError, match="is a DFlash drafter, not a target: pass it as --draft"):
        load(Config(model=str(drafter)))
    with pytest.raises(ValueError, match="not a DFlash drafter"):
        load(Config(model=str(target), draft=str(target)))
