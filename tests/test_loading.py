"""Device, dtype, context and sampling defaults, and what is refused before any weight is read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from backends.config import TargetConfig
from backends.weights import stored_dtype
from dflash_cli.config import Config
from dflash_cli.errors import DFlashError, UsageError
from dflash_cli.loading import CONTEXT_CAP, checkpoint_sampling, load, pick_context, pick_device, pick_dtype
from dflash_cli.model import Model
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
    whatever: Any = None
    model = Model(whatever, config, whatever, whatever, None, checkpoint_sampling(defaults), 64)
    assert model.params == expected
    assert model.with_config(temperature=0.3).with_config(temperature=None).params == replace(
        expected, temperature=replace(model, config=Config()).params.temperature
    )


def test_a_checkpoints_sampling_must_be_numbers() -> None:
    with pytest.raises(DFlashError, match=r"generation_config.json has temperature '0.6'; expected a number"):
        checkpoint_sampling(QWEN3 | {"temperature": "0.6"})
    with pytest.raises(DFlashError, match=r"generation_config.json: top_p is 0; expected above 0 and at most 1"):
        checkpoint_sampling(QWEN3 | {"top_p": 0})


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
    with pytest.raises(ValueError, match="is a drafter, not a target: pass it as --draft"):
        load(Config(model=str(drafter)))
    with pytest.raises(ValueError, match="not a DFlash drafter"):
        load(Config(model=str(target), draft=str(target)))


def test_weights_that_are_there_are_taken(tmp_path: Path) -> None:
    target, drafter = write_pair(tmp_path)
    config = Config(model=str(target), draft=str(drafter), device="cpu", dtype="float32")
    model, told = load(config), list[str]()
    again = load(replace(config, context=64), reuse=model, tell=told.append)
    assert (again.target, again.drafter, again.max_len) == (model.target, model.drafter, 64)
    assert told == []
    plain = load(replace(config, draft="none"), reuse=model)
    assert plain.target is model.target
    assert plain.drafter is None
    other = load(replace(config, dtype="bfloat16"), reuse=model, tell=told.append)
    assert other.target is not model.target
    assert len(told) == 1


def test_weights_kept_otherwise_are_loaded_anew(tmp_path: Path) -> None:
    target, drafter = write_pair(tmp_path)
    config = Config(model=str(target), draft=str(drafter), device="cpu", dtype="float32")
    told: list[str] = []
    whole = load(config)
    small = load(replace(config, quantize="int8"), reuse=whole, tell=told.append)
    assert small.target is not whole.target
    assert (whole.target.quantize, small.target.quantize) == ("none", "int8")
    assert "cpu, float32 with int8 weights, about" in told[0]
    assert load(replace(config, quantize="int8"), reuse=small).target is small.target
    assert small.decoder().backend.quantize == "int8"


def test_only_what_is_loaded_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, drafter = write_pair(tmp_path)
    config = Config(model=str(target), draft=str(drafter), device="cpu", dtype="float32")
    model = load(config)
    weights = sum(p.numel() * 4 for module in (model.target, model.drafter) for p in module.parameters())  # type: ignore[union-attr]
    plan: list[Any] = []
    monkeypatch.setattr("dflash_cli.loading.check_fits", lambda each, *_, **__: plan.append(each))
    load(config)
    load(config, reuse=model)
    assert plan[0].total - plan[1].total == weights
    assert plan[0].loading == 0
    load(replace(config, dtype="bfloat16"))  # the files hold float32
    assert plan[2].loading == plan[2].weights


def test_the_stored_precision(tmp_path: Path) -> None:
    target, drafter = write_pair(tmp_path)
    assert stored_dtype(target) == stored_dtype(drafter) == torch.float32
    tensors = {name: tensor.to(torch.bfloat16) for name, tensor in load_file(target / "model.safetensors").items()}
    save_file(tensors, target / "model.safetensors")
    assert stored_dtype(target) == torch.bfloat16
    save_file({"x": torch.zeros(1)}, target / "model.safetensors")
    assert stored_dtype(target) is None


def test_bf16_that_is_only_emulated_is_not_picked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda including_emulation=True: including_emulation)
    assert pick_dtype("auto", torch.device("cuda")) == torch.float16
