"""What `gpu_check` compares: lossless text, the logits of backends with eager's, gradients of two attentions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from backends import create_backend
from backends.base import Backend
from backends.dflash import DFlashDrafter
from backends.self_test import TOLERANCE
from dflash_cli.bench.entrants import Weights, compiled_code
from dflash_cli.bench.synthetic import synthetic_weights
from dflash_cli.events import BlockVerified, Prefilled
from dflash_cli.request import Request
from dflash_cli.speculative import Decoder
from dflash_cli.train.blocks import draw_anchors, generator, make_row
from dflash_cli.train.features import FeatureReader, joined
from dflash_cli.train.forward import MakeAttention, TrainingForward
from dflash_cli.train.row_attention import ByDocument, Flex
from tests.gpu_graphs import REDUCE_OVERHEAD, ReduceOverheadEngine
from tests.tiny import KINDS, MASK_ID, make_drafter, make_target
from tests.train.lessons import documents

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


def training_gradients(device: torch.device, kernel: Callable[..., Tensor] | None = None) -> dict[str, Any]:
    """The largest difference of a gradient through Flex Attention from the one through dense masks, over the largest
    gradient of that weight; fp32. `kernel`: by default the compiled one, which has a backward pass on GPUs only."""
    found: dict[str, Any] = {"holds": True}
    for kind, changes in KINDS.items():
        drafter = make_drafter(seed=4, **changes).to(device)
        wanted, got = (_gradients(drafter, each) for each in (ByDocument, partial(Flex, kernel=kernel)))
        error = max(float((b - a).abs().max() / a.abs().max()) for a, b in zip(wanted, got, strict=True))
        found[kind] = {"error": error}
        found["holds"] &= error <= TOLERANCE[torch.float32]
    return found


def _gradients(drafter: DFlashDrafter, attention: MakeAttention) -> tuple[Tensor, ...]:
    """Of a drafter's weights, from a row of several documents."""
    weights, config = list(drafter.parameters()), drafter.config
    device, docs = weights[0].device, documents()
    target = make_target(seed=3).to(device)
    anchors = [draw_anchors(each, 99, generator("anchors")) for each in docs]
    row = make_row(docs, anchors, config.block_size, MASK_ID).to(device)
    taps = joined(FeatureReader(target, config.target_layer_ids, 64).read(docs)).taps
    hidden = TrainingForward(drafter, target, 64, attention)(row, taps)
    direction = torch.randn(hidden.shape, generator=torch.Generator().manual_seed(1))
    return torch.autograd.grad(hidden, weights, direction.to(device))
