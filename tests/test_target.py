"""The target equals Hugging Face's models on tiny random checkpoints, and its taps are what they are said to be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from backends.engine import PREFILL_CHUNK
from backends.weights import load_target
from tests.tiny import VOCAB, make_drafter, make_engine, make_target, randomize, target_dict

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
CASES: dict[str, dict[str, Any]] = {
    "qwen3": {"kind": "qwen3"},
    "qwen3-tied": {"kind": "qwen3", "tie_word_embeddings": True},
    "qwen3-mha": {"kind": "qwen3", "num_key_value_heads": 4},
    "llama": {"kind": "llama"},
    "llama-untied-llama3": {"kind": "llama", "tie_word_embeddings": False, "rope_scaling": LLAMA3},
    "llama-linear": {"kind": "llama", "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    "llama-bias": {"kind": "llama", "attention_bias": True},
}


def huggingface_model(case: str) -> Any:
    config = target_dict(**CASES[case])
    config_class, model_class = (
        (Qwen3Config, Qwen3ForCausalLM) if config["model_type"] == "qwen3" else (LlamaConfig, LlamaForCausalLM)
    )
    model = model_class(config_class(**config)).eval()
    randomize(model, 3)
    return model


@pytest.fixture(params=CASES)
def both(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    theirs = huggingface_model(request.param)
    theirs.save_pretrained(tmp_path)
    return theirs, load_target(tmp_path, torch.float32, torch.device("cpu"))


@torch.no_grad()
def test_prefill_and_cached_steps_equal_huggingface(both: Any) -> None:
    theirs, target = both
    ids = torch.randint(0, VOCAB, (40,), generator=torch.Generator().manual_seed(0))
    expected = theirs(ids[None]).logits[0]
    engine = make_engine(target)
    torch.testing.assert_close(engine.prefill(ids[:20], 0), expected[19], atol=1e-5, rtol=1e-5)
    stepped = [engine.verify(ids[None, at : at + 1], [at])[0, 0].clone() for at in range(20, 30)]
    torch.testing.assert_close(torch.stack(stepped), expected[20:30], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(engine.verify(ids[None, 30:], [30])[0], expected[30:], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_rows_at_different_lengths_equal_huggingface(both: Any) -> None:
    theirs, target = both
    generator = torch.Generator().manual_seed(1)
    rows = [torch.randint(0, VOCAB, (n,), generator=generator) for n in (9, 31, 17)]
    engine = make_engine(target, batch_size=3)
    for row, ids in enumerate(rows):
        logits = engine.prefill(ids, 0, row)
        torch.testing.assert_close(logits, theirs(ids[None]).logits[0, -1], atol=1e-5, rtol=1e-5)
    steps = torch.randint(0, VOCAB, (3, 5), generator=generator)
    got = engine.verify(steps, [len(ids) for ids in rows])
    for row, ids in enumerate(rows):
        expected = theirs(torch.cat((ids, steps[row]))[None]).logits[0, -5:]
        torch.testing.assert_close(got[row], expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_taps_are_the_outputs_of_the_named_layers(both: Any) -> None:
    theirs, target = both
    ids = torch.randint(0, VOCAB, (1, 12), generator=torch.Generator().manual_seed(2))
    states = theirs(ids, output_hidden_states=True).hidden_states
    engine = make_engine(target, make_drafter(dflash_config={"mask_token_id": 1, "target_layer_ids": [3, 0, 2]}))
    seen: list[torch.Tensor] = []
    engine.drafter.project_context = lambda taps: seen.append(taps) or torch.zeros(1, 12, 32)  # type: ignore
    engine.prefill(ids[0], 0)
    expected = torch.cat([states[i + 1] for i in (3, 0, 2)], -1)
    torch.testing.assert_close(seen[0], expected, atol=1e-4, rtol=1e-4)


def test_prefill_in_chunks_equals_one_pass() -> None:
    ids = torch.randint(0, VOCAB, (PREFILL_CHUNK + 70,), generator=torch.Generator().manual_seed(4))
    target = make_target()
    engine = make_engine(target, max_len=len(ids))
    chunked = engine.prefill(ids, 0)
    at_once = make_engine(target, max_len=len(ids)).verify(ids[None], [0])[0, -1]
    torch.testing.assert_close(chunked, at_once, atol=1e-5, rtol=1e-5)


def test_rewinding_needs_no_cleanup() -> None:
    generator = torch.Generator().manual_seed(5)
    first, second = (torch.randint(0, VOCAB, (30,), generator=generator) for _ in range(2))
    target = make_target()
    used = make_engine(target)
    used.prefill(first, 0)
    used.verify(first[None, :6], [30])
    again = used.prefill(torch.cat((first[:10], second))[10:], 10)
    fresh = make_engine(target).prefill(torch.cat((first[:10], second)), 0)
    torch.testing.assert_close(again, fresh, atol=1e-5, rtol=1e-5)
