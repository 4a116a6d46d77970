"""Parity with the published `dflash` package (0.1.0, MIT): same weights, same block logits, same text and acceptance.

It brings a command also called `dflash`, so it is not installed beside this project: DFLASH_REFERENCE names its wheel
(`pip download --no-deps dflash==0.1.0`), from which only `dflash/model.py` is read.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from backends.weights import load_drafter, load_target
from dflash_cli.bench.peer_reference import reference_module
from dflash_cli.bench.subject import PeerUnavailable
from dflash_cli.events import BlockVerified, Prefilled
from dflash_cli.fetch import fetch
from dflash_cli.request import Request
from dflash_cli.speculative import Decoder
from dflash_cli.text import TextCodec
from tests.test_drafter import KINDS
from tests.tiny import VOCAB, drafter_dict, make_engine, randomize, target_dict

pytestmark = pytest.mark.reference
CPU = torch.device("cpu")

PROMPTS = [
    "Natalia sold clips to 48 friends in April, and half as many in May. How many clips did she sell altogether?",
    "A baker makes 12 loaves an hour and works 7 hours. He sells 50 loaves. How many are left?",
    "Tom has 3 boxes with 15 pencils each and gives away 9 pencils. How many pencils does he have?",
    "A train travels 60 miles an hour for 3 hours, then 40 miles an hour for 2 hours. How far does it go?",
    "If a shirt costs $25 and is 20% off, what is the price?",
    "Why is the sky blue?",
    "Write a Python function that reverses a string.",
    "Name three primary colours.",
    "What is the capital of France?",
    "Explain photosynthesis in one sentence.",
    "Give me a recipe for pancakes.",
    "Write a haiku about rain.",
    "How do I boil an egg?",
    "Translate 'good morning' to Spanish.",
    "List four animals that can fly.",
    "What is 17 plus 26?",
    "Describe a bicycle to someone who has never seen one.",
    "Who wrote Romeo and Juliet?",
    "A pen costs 3 dollars. How much do 14 pens cost?",
    "Write a short thank-you note to a teacher.",
]


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    try:
        return reference_module()
    except PeerUnavailable as err:
        pytest.skip(str(err))


def their_run(reference: ModuleType, model: Any, target: Any, ids: list[int], count: int, stop: list[int]) -> Any:
    # The reference times with CUDA's clock alone.
    reference._cuda_time = lambda: 0.0  # type: ignore[attr-defined]
    return reference.dflash_generate(model, target, torch.tensor([ids]), count, stop, return_stats=True)


def our_run(engine: Any, ids: list[int], count: int, stop: list[int]) -> tuple[list[int], list[int]]:
    events = list(Decoder(engine).generate(Request(ids, max_new_tokens=count, stop_ids=frozenset(stop))))
    new = [each for e in events if isinstance(e, Prefilled | BlockVerified) for each in e.new_ids]
    return new, [len(e.new_ids) for e in events if isinstance(e, BlockVerified)]


@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_tiny_random_pairs_agree(reference: ModuleType, kind: str, tmp_path: Path) -> None:
    theirs = Qwen3ForCausalLM(Qwen3Config(**target_dict())).eval()
    randomize(theirs, 5)
    theirs.save_pretrained(tmp_path / "target")
    config = Qwen3Config(**drafter_dict(**KINDS[kind]))
    their_drafter = reference.DFlashDraftModel(config).eval()
    randomize(their_drafter, 6)
    their_drafter.save_pretrained(tmp_path / "drafter")
    (tmp_path / "drafter" / "config.json").write_text(json.dumps(drafter_dict(**KINDS[kind])))
    engine = make_engine(
        load_target(tmp_path / "target", torch.float32, CPU), load_drafter(tmp_path / "drafter", torch.float32, CPU)
    )
    generator = torch.Generator().manual_seed(0)
    for length in (3, 20, 50):
        ids = torch.randint(0, VOCAB, (length,), generator=generator).tolist()
        block_logits_agree(reference, their_drafter, theirs, engine, ids)
        result = their_run(reference, their_drafter, theirs, ids, 40, [])
        new, lengths = our_run(engine, ids, 40, [])
        assert new == result.output_ids[0, length:].tolist()
        # Its last blocks are drafted at a smaller width; every whole block before must agree.
        whole = [n for n in range(len(lengths)) if 1 + sum(lengths[:n]) + 6 <= 40]
        assert lengths[: len(whole)] == result.acceptance_lengths[: len(whole)]


@pytest.mark.embedded
@torch.inference_mode()
def test_the_embedded_pair_agrees_on_20_prompts(reference: ModuleType, embedded_target: Path) -> None:
    target_folder = embedded_target
    drafter_folder = fetch("embedded:smollm2-135m-drafter", offline=True, quiet=True)
    theirs = LlamaForCausalLM.from_pretrained(target_folder, dtype=torch.float32).eval()
    their_drafter = reference.DFlashDraftModel.from_pretrained(drafter_folder, dtype=torch.float32).eval()
    codec = TextCodec.from_folder(target_folder)
    target = load_target(target_folder, torch.float32, CPU)
    engine = make_engine(target, load_drafter(drafter_folder, torch.float32, CPU), max_len=256)
    for prompt in PROMPTS:
        ids = codec.encode_chat([{"role": "user", "content": prompt}])
        result = their_run(reference, their_drafter, theirs, ids, 24, [2])
        new, lengths = our_run(engine, ids, 24, [2])
        assert new == result.output_ids[0, len(ids) :].tolist(), prompt
        whole = [n for n in range(len(lengths)) if 1 + sum(lengths[:n]) + 8 <= 24]
        assert lengths[: len(whole)] == result.acceptance_lengths[: len(whole)], prompt
    block_logits_agree(reference, their_drafter, theirs, engine, ids)


def block_logits_agree(reference: ModuleType, their_drafter: Any, theirs: Any, engine: Any, ids: list[int]) -> None:
    """The logits of one whole block, to 1e-4 in fp32."""
    states = theirs(torch.tensor([ids[:-1]]), output_hidden_states=True).hidden_states
    taps = reference.extract_context_feature(states, their_drafter.target_layer_ids)
    size = their_drafter.block_size
    block = torch.tensor([[ids[-1]] + [their_drafter.mask_token_id] * (size - 1)])
    scale = getattr(their_drafter.config, "input_embedding_scale", 1.0)
    hidden = their_drafter(
        target_hidden=taps,
        noise_embedding=theirs.model.embed_tokens(block) * scale,
        position_ids=torch.arange(len(ids) - 1 + size)[None],
    )
    expected = their_drafter.compute_logits(hidden[:, 1:], theirs.lm_head)
    engine.prefill(torch.tensor(ids[:-1]), 0)
    got = engine.draft(torch.tensor(ids[-1:]), [len(ids) - 1])
    torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)
