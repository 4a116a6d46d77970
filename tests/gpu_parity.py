"""What `gpu_check` compares: lossless text, and the logits of backends with eager's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from backends import create_backend
from backends.base import Backend
from backends.self_test import TOLERANCE
from dflash_cli.bench.entrants import Weights, compiled_code
from dflash_cli.bench.synthetic import synthetic_weights
from dflash_cli.events import BlockVerified, Prefilled
from dflash_cli.speculative import Decoder, Request
from tests.gpu_graphs import REDUCE_OVERHEAD, ReduceOverheadEngine

WRONG_EVERY = 5  # of the guided drafts of the check for lossless text
ROWS, PROMPT = 512, 20  # of the cache and of the prompt there


class Guided:
    """A backend whose drafts are the text that plain decoding gave, with an error now and then."""

    def __init__(self, backend: Backend, text: Sequence[int]) -> None:
        self.backend, self.text = backend, torch.tensor(text, device=backend.device)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.backend, name)

    def draft(self, anchors: Tensor, start: Sequence[int]) -> Tensor:
        logits = self.backend.draft(anchors, start).clone()
        places = torch.arange(1, self.backend.block_size, device=anchors.device) + start[0]
        ids = self.text[places.clamp(max=len(self.text) - 1)]
        ids = torch.where(places % WRONG_EVERY == 0, (ids + 1) % logits.shape[-1], ids)
        return torch.zeros_like(logits).scatter_(-1, ids.view(1, -1, 1), 1.0)


def answer(decoder: Decoder, prompt: list[int], tokens: int) -> tuple[list[int], int]:
    """The ids of a greedy answer, and how many verify passes it took."""
    events = list(decoder.generate(Request(prompt, max_new_tokens=tokens)))
    ids = [each for e in events if isinstance(e, Prefilled | BlockVerified) for each in e.new_ids]
    return ids, sum(isinstance(e, BlockVerified) for e in events)


def some_ids(count: int, vocab: int, seed: int = 0) -> list[int]:
    ids: list[int] = torch.randint(0, vocab, (count,), generator=torch.Generator().manual_seed(seed)).tolist()
    return ids


def make(name: str, weights: Weights, max_len: int, *, drafting: bool = True) -> Backend:
    """A backend, or the engine with torch.compile's own CUDA graphs."""
    drafter = weights.drafter if drafting else None
    if name == REDUCE_OVERHEAD:
        return ReduceOverheadEngine(weights.target, drafter, max_len=max_len)
    return create_backend(name, weights.target, drafter, max_len=max_len, artefacts=compiled_code(name))


def lossless(name: str, device: torch.device, tokens: int) -> dict[str, Any]:
    """Speculative greedy = eager's plain greedy in fp32, token for token, with guided and with the drafter's drafts."""
    weights = synthetic_weights("tiny", torch.float32, device, ROWS)
    prompt = some_ids(PROMPT, weights.target.config.vocab_size)
    plain, _ = answer(Decoder(make("eager", weights, ROWS, drafting=False), 1), prompt, tokens)
    backend = make(name, weights, ROWS)
    backend.warm_up()
    own, own_passes = answer(Decoder(backend), prompt, tokens)
    guided: Any = Guided(backend, prompt + plain)
    told, passes = answer(Decoder(guided), prompt, tokens)
    holds = own == plain and told == plain and passes < own_passes and backend.recompiles == 0
    return {
        "holds": holds, "own_drafts": own == plain, "guided_drafts": told == plain, "passes": [own_passes, passes],
        "recompiles": backend.recompiles,
    }  # fmt: skip


def parity(backends: dict[str, Backend], contexts: Sequence[int]) -> dict[str, Any]:
    """The largest difference of logits from eager's, over the largest logit, and how often the argmax is the same."""
    eager = backends["eager"]
    vocab = eager.target.config.vocab_size  # type: ignore[attr-defined]
    found: dict[str, Any] = {"holds": True}
    for context in contexts:
        ids = torch.tensor(some_ids(context, vocab), device=eager.device)
        block = torch.tensor([some_ids(eager.block_size, vocab, 1)], device=eager.device)
        expected: dict[str, Tensor] = {}
        for name, backend in backends.items():
            backend.prefill(ids, 0)
            got = {
                "draft": backend.draft(block[:, 0], [context]).float().clone(),
                "verify": backend.verify(block, [context]).float().clone(),
                "plain": backend.verify(block[:, :1], [context]).float().clone(),
            }
            expected = expected or got
            for kind, logits in got.items():
                error = float((logits - expected[kind]).abs().max() / expected[kind].abs().max())
                same = float((logits.argmax(-1) == expected[kind].argmax(-1)).float().mean())
                found[f"{name} {kind} at {context}"] = {"error": error, "same_argmax": same}
                found["holds"] &= error <= TOLERANCE[eager.dtype]
    return found
