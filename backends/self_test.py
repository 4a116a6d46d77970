"""One block of a backend against eager: what is shown to be equal may be trusted with the rest."""

from __future__ import annotations

import torch
from torch import Tensor

from backends.base import BackendUnavailable
from backends.engine import Engine

PROMPT_ROWS = 24
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 8e-2, torch.float16: 2e-2}
"""By dtype: the largest difference of two logits that is rounding, as a share of the largest logit."""


def self_test(backend: Engine, eager: Engine, tolerance: float | None = None) -> dict[str, float]:
    """Compare prefill, draft and verify of one block; what `backend`'s caches hold is kept.

    `eager` has the same target and drafter, and at least one batch row. Returns the largest difference of each pass,
    as a share of its largest logit. Raises BackendUnavailable, with the figures, where one is above `tolerance`.
    """
    tolerance = TOLERANCE[eager.dtype] if tolerance is None else tolerance
    num_rows = min(PROMPT_ROWS, backend.max_len - 1, eager.max_len - 1)
    ids = _ids(eager.target.config.vocab_size, num_rows + eager.block_size).to(eager.device)
    with backend.rows_kept(0, num_rows + backend.block_size):
        got = _passes(backend, ids, num_rows)
    expected = _passes(eager, ids, num_rows)
    differences = {name: _difference(got[name], expected[name]) for name in expected}
    # Written so that a NaN fails, too.
    if wrong := [name for name, difference in differences.items() if not difference <= tolerance]:
        figures = ", ".join(f"{name} by {differences[name]:.3g}" for name in wrong)
        raise BackendUnavailable(
            f"the {backend.name} backend computes something else than eager on this machine: {figures} of the largest "
            f"logit (at most {tolerance:g} is rounding in {str(eager.dtype).removeprefix('torch.')}); "
            "use --backend eager"
        )
    return differences


def _ids(vocab_size: int, count: int) -> Tensor:
    return torch.randint(0, vocab_size, (count,), generator=torch.Generator().manual_seed(0))


def _passes(backend: Engine, ids: Tensor, num_rows: int) -> dict[str, Tensor]:
    """Logits of the passes of a block after a prompt in batch row 0; other rows compute junk."""
    start = [num_rows] + [0] * (backend.batch_size - 1)
    block = ids[num_rows:].repeat(backend.batch_size, 1)
    logits = {"prefill": backend.prefill(ids[:num_rows], 0).float()}
    if backend.block_size > 1:
        logits["draft"] = backend.draft(block[:, 0].contiguous(), start)[0].float()
    logits["verify"] = backend.verify(block, start)[0].float()
    return logits


def _difference(got: Tensor, expected: Tensor) -> float:
    return float((got - expected).abs().max() / expected.abs().max())
